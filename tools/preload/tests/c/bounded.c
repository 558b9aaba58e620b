/* A bounded buffer with 16 threads: no notification is lost, and no lock is held by two. */
#include "common.h"

enum { THREADS = 8, ITEMS = 250 };

static pthread_mutex_t mutex;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER, fewer = PTHREAD_COND_INITIALIZER;
static long items[4], room, first, count, sum;
static atomic_int inside;

static void enter(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(inside++ == 0);
}

static void leave(void)
{
    CHECK(--inside == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void wait_for(pthread_cond_t *condvar, int i)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, i % 7);
    CHECK(--inside == 0);
    int error = i % 3 ? pthread_cond_wait(condvar, &mutex) : pthread_cond_timedwait(condvar, &mutex, &soon);
    CHECK(inside++ == 0);
    CHECK(error == 0 || (i % 3 == 0 && error == ETIMEDOUT));
}

static void *produce(void *unused)
{
    for (long i = 0; i < ITEMS; i++) {
        enter();
        while (count == room)
            wait_for(&fewer, i);
        items[(first + count++) % room] = i;
        /* In turns with the mutex held and without. */
        if (i % 2)
            CHECK(pthread_cond_signal(&more) == 0);
        leave();
        if (i % 2 == 0)
            CHECK(pthread_cond_signal(&more) == 0);
    }
    return NULL;
}

static void *consume(void *unused)
{
    for (long i = 0; i < ITEMS; i++) {
        enter();
        while (count == 0)
            wait_for(&more, i);
        sum += items[first];
        first = (first + 1) % room;
        count--;
        CHECK(pthread_cond_signal(&fewer) == 0);
        leave();
    }
    return NULL;
}

static void *work(void *number)
{
    return (intptr_t)number % 2 ? produce(NULL) : consume(NULL);
}

int main(void)
{
    static const int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK};
    for (int kind = 0; kind < 4; kind++) {
        int robust = kind == 3 ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED;
        make_mutex(&mutex, kinds[kind % 3], robust, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_PRIVATE);
        /* With one place nearly each operation waits. */
        room = kind % 2 ? 4 : 1, first = sum = 0;
        run_threads(2 * THREADS, work);
        printf("kind %d: sum %ld\n", kind, sum);
        SHOW(pthread_mutex_destroy(&mutex));
    }
    SHOW(pthread_cond_destroy(&more));
    SHOW(pthread_cond_destroy(&fewer));
    return 0;
}
