/* Notifications while the mutex is held: woken waiters run into it. No waiter is forgotten if another times out or
   is cancelled meanwhile. */
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

int main(void)
{
    run_threads(THREADS, meet);
    printf("generation %ld\n", generation);
    cancellations();
    SHOW(pthread_cond_destroy(&more));
    SHOW(pthread_mutex_destroy(&mutex));
    return 0;
}
