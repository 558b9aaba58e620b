/* A mutex that nobody holds cannot be destroyed while a thread that will take it again waits. */
#include "common.h"

static pthread_mutex_t mutex;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static int waiting, go, is_timed;

static void unlock(void *unused)
{
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void *waiter(void *unused)
{
    struct timespec far = in_ms(CLOCK_REALTIME, 1000000);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    pthread_cleanup_push(unlock, NULL);
    for (waiting = 1; !go;)
        CHECK((is_timed ? pthread_cond_timedwait(&condvar, &mutex, &far)
                        : pthread_cond_wait(&condvar, &mutex)) == 0);
    pthread_cleanup_pop(1);
    return NULL;
}

static pthread_t until_it_waits_for_the_condition(void)
{
    int seen = 0;
    waiting = go = 0;
    pthread_t thread = start(waiter, NULL);
    while (!seen) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        seen = waiting;
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        nap(1);
    }
    return thread;
}

static void waits(int cancels)
{
    pthread_t thread = until_it_waits_for_the_condition();
    SHOW(pthread_mutex_destroy(&mutex));
    if (cancels) {
        CHECK(pthread_cancel(thread) == 0);
    } else {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        go = 1;
        CHECK(pthread_cond_signal(&condvar) == 0);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
    }
    end(thread);
}

static void times_out(void)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 1), past = {0};
    CHECK(pthread_mutex_lock(&mutex) == 0);
    SHOW(pthread_cond_timedwait(&condvar, &mutex, &past));
    while (pthread_cond_timedwait(&condvar, &mutex, &soon) == 0)
        ;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

/* By a thread that does not hold it. */
static void is_refused(void)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 1);
    SHOW(pthread_cond_timedwait(&condvar, &mutex, &soon));
}

int main(void)
{
    int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                   PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int n = 0; n < 16; n++)
        for (is_timed = 0; is_timed < 2; is_timed++) {
            int kind = kinds[n % 4], inherits = n / 4 % 2, shared = n / 8;
            printf("kind %d, inherits %d, shared %d, timed %d\n", kind, inherits, shared, is_timed);
            make_mutex(&mutex, kind, PTHREAD_MUTEX_STALLED, inherits ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE,
                       shared);
            waits(0);
            waits(1);
            times_out();
            if (kind == PTHREAD_MUTEX_ERRORCHECK)
                is_refused();
            SHOW(pthread_mutex_destroy(&mutex));
        }
    return 0;
}
