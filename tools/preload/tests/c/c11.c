/* The mutexes and condition variables of C11. */
#include "common.h"
#include <threads.h>

static mtx_t mutex;
static cnd_t changed;
static int turn;

static int play(void *argument)
{
    int me = (int)(intptr_t)argument;
    for (int i = 0; i < 500; i++) {
        CHECK(mtx_lock(&mutex) == thrd_success);
        while (turn != me)
            CHECK(cnd_wait(&changed, &mutex) == thrd_success);
        turn = (me + 1) % 3;
        CHECK((i % 2 ? cnd_broadcast(&changed) : cnd_broadcast(&changed)) == thrd_success);
        CHECK(mtx_unlock(&mutex) == thrd_success);
    }
    return me;
}

static int try_it(void *unused)
{
    int result = mtx_trylock(&mutex);
    if (result == thrd_success)
        mtx_unlock(&mutex);
    return result;
}

static int wait_for_it(void *unused)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 10);
    int result = mtx_timedlock(&mutex, &soon);
    if (result == thrd_success)
        mtx_unlock(&mutex);
    return result;
}

static int bad_wait(void *unused)
{
    struct timespec bad = {0, -1};
    return mtx_timedlock(&mutex, &bad);
}

static int elsewhere_11(thrd_start_t function)
{
    thrd_t thread;
    int result;
    CHECK(thrd_create(&thread, function, NULL) == thrd_success);
    CHECK(thrd_join(thread, &result) == thrd_success);
    return result;
}

int main(void)
{
    static const int kinds[] = {mtx_plain, mtx_timed, mtx_plain | mtx_recursive, mtx_timed | mtx_recursive};
    for (int i = 0; i < 4; i++) {
        printf("kind %d: %d\n", i, mtx_init(&mutex, kinds[i]));
        printf("lock %d, ", mtx_lock(&mutex));
        printf("trylock %d, ", mtx_trylock(&mutex));
        if (kinds[i] & mtx_recursive)
            printf("unlock %d, ", mtx_unlock(&mutex));
        printf("elsewhere %d %d %d, ", elsewhere_11(try_it), elsewhere_11(wait_for_it), elsewhere_11(bad_wait));
        printf("unlock %d, ", mtx_unlock(&mutex));
        printf("elsewhere %d %d\n", elsewhere_11(try_it), elsewhere_11(wait_for_it));
        mtx_destroy(&mutex);
    }
    printf("bad kind %d\n", mtx_init(&mutex, 77));
    printf("%d %d\n", mtx_init(&mutex, mtx_plain), cnd_init(&changed));
    thrd_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(thrd_create(threads + i, play, (void *)(intptr_t)i) == thrd_success);
    for (int i = 0; i < 3; i++) {
        int result;
        CHECK(thrd_join(threads[i], &result) == thrd_success);
        printf("%d ended\n", result);
    }
    struct timespec soon = in_ms(CLOCK_REALTIME, 10), bad = {0, 1000000000};
    CHECK(mtx_lock(&mutex) == thrd_success);
    printf("timedwait %d %d\n", cnd_timedwait(&changed, &mutex, &soon), cnd_timedwait(&changed, &mutex, &bad));
    printf("signal %d\n", cnd_signal(&changed));
    CHECK(mtx_unlock(&mutex) == thrd_success);
    cnd_destroy(&changed);
    mtx_destroy(&mutex);
    return 0;
}
