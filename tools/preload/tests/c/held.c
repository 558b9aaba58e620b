/* Notifications while the mutex is held, so that woken waiters have to wait for it. No waiter is forgotten if another
   one times out, is cancelled or destroys the condition variable at that time. */
#include "common.h"

enum { THREADS = 16, ROUNDS = 150 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static long arrived, generation;

static void lock(void) { CHECK(pthread_mutex_lock(&mutex) == 0); }
static void unlock(void) { CHECK(pthread_mutex_unlock(&mutex) == 0); }

static void await(long i)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, i % 5);
    int error = i % 7 ? pthread_cond_wait(&more, &mutex) : pthread_cond_timedwait(&more, &mutex, &soon);
    CHECK(error == 0 || (i % 7 == 0 && error == ETIMEDOUT));
}

static void *meet(void *unused)
{
    for (long i = 0; i < ROUNDS; i++) {
        lock();
        long mine = generation;
        if (++arrived == THREADS) {
            arrived = 0, generation++;
            CHECK(pthread_cond_broadcast(&more) == 0);
        }
        while (mine == generation)
            await(i);
        unlock();
    }
    return NULL;
}

/* A thread is cancelled in its wait, while others are notified and the mutex is held. */
static void release(void *unused) { unlock(); }

static void *waits_until_cancelled(void *unused)
{
    lock();
    pthread_cleanup_push(release, NULL);
    for (;;)
        CHECK(pthread_cond_wait(&more, &mutex) == 0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancellations(void)
{
    for (int i = 0; i < 100; i++) {
        pthread_t threads[4];
        for (int t = 0; t < 4; t++)
            threads[t] = start(waits_until_cancelled, NULL);
        lock();
        CHECK(pthread_cond_signal(&more) == 0);
        CHECK(pthread_cancel(threads[i % 4]) == 0);
        CHECK(pthread_cond_broadcast(&more) == 0);
        unlock();
        for (int t = 0; t < 4; t++) {
            pthread_cancel(threads[t]);
            CHECK(end(threads[t]) == PTHREAD_CANCELED);
        }
    }
}

/* The notifier destroys the condition variable with the mutex held, and fills its memory. */
struct once {
    pthread_cond_t condvar;
    int done, waiting;
};

static void *waits_once(void *argument)
{
    struct once *once = argument;
    int *done = &once->done;
    lock();
    once->waiting++;
    while (!*done)
        CHECK(pthread_cond_wait(&once->condvar, &mutex) == 0);
    unlock();
    return NULL;
}

static void destroyed_at_once(int waiters, int all)
{
    for (int i = 0; i < 120; i++) {
        struct once *once = calloc(1, sizeof *once);
        pthread_t threads[THREADS];
        CHECK(pthread_cond_init(&once->condvar, NULL) == 0);
        for (int t = 0; t < waiters; t++)
            threads[t] = start(waits_once, once);
        lock();
        while (once->waiting < waiters) {
            unlock();
            sched_yield();
            lock();
        }
        once->done = 1;
        CHECK((all ? pthread_cond_broadcast : pthread_cond_signal)(&once->condvar) == 0);
        CHECK(pthread_cond_destroy(&once->condvar) == 0);
        memset(&once->condvar, 0xa5, sizeof once->condvar);
        unlock();
        for (int t = 0; t < waiters; t++)
            end(threads[t]);
        free(once);
    }
}

int main(void)
{
    run_threads(THREADS, meet);
    printf("generation %ld\n", generation);
    cancellations();
    destroyed_at_once(1, 0);
    destroyed_at_once(1, 1);
    destroyed_at_once(6, 1);
    SHOW(pthread_cond_destroy(&more));
    SHOW(pthread_mutex_destroy(&mutex));
    return 0;
}
