/* Waits are cancellation points, and cleanup handlers find the mutex held. */
#include "common.h"
#include <threads.h>

static pthread_mutex_t mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER, shared_condvar;
static atomic_int waits, cleaned, go;
static int tokens, done;

static void cleanup(void *unused)
{
    /* Only the holder may unlock this kind. */
    int error = pthread_mutex_unlock(&mutex);
    cleaned += error == 0;
    if (error)
        printf("cleanup: %s\n", name(error));
}

static void *waiter(void *argument)
{
    int way = (int)(intptr_t)argument;
    struct timespec far = in_ms(CLOCK_REALTIME, 20000), monotonic = in_ms(CLOCK_MONOTONIC, 20000);
    if (way == 5)
        while (!go)
            sched_yield();
    if (way == 6)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_mutex_lock(&mutex);
    pthread_cleanup_push(cleanup, NULL);
    waits++;
    for (;;) {
        if (way == 0 || way >= 5)
            pthread_cond_wait(&condvar, &mutex);
        else if (way == 1)
            pthread_cond_timedwait(&condvar, &mutex, &far);
        else if (way == 2)
            pthread_cond_clockwait(&condvar, &mutex, CLOCK_MONOTONIC, &monotonic);
        else if (way == 3)
            cnd_wait((cnd_t *)&condvar, (mtx_t *)&mutex);
        else
            pthread_cond_wait(&shared_condvar, &mutex);
        if (way == 6 && done)
            break;
    }
    pthread_cleanup_pop(1);
    return "ended by itself";
}

static void one(int way)
{
    waits = 0, cleaned = 0, go = 0, done = 0;
    pthread_t thread = start(waiter, (void *)(intptr_t)way);
    if (way == 5) {
        /* The thread is cancelled before it waits. */
        pthread_cancel(thread);
        go = 1;
    } else {
        while (!waits)
            sched_yield();
        nap(way % 2 ? 1 : 20);
        if (way != 6)
            pthread_mutex_lock(&mutex);
        pthread_cancel(thread);
        if (way != 6) {
            nap(5);
            /* The thread cannot run its cleanup handlers before it has the mutex. */
            printf("cleaned %d, ", cleaned);
            pthread_mutex_unlock(&mutex);
        }
    }
    if (way == 6) {
        nap(20);
        pthread_mutex_lock(&mutex);
        done = 1;
        pthread_cond_broadcast(&condvar);
        pthread_mutex_unlock(&mutex);
    }
    void *result = end(thread);
    printf("way %d: %s, cleaned %d\n", way, result == PTHREAD_CANCELED ? "cancelled" : (char *)result, cleaned);
}

static void *consumer(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&mutex);
        pthread_cleanup_push(cleanup, NULL);
        while (tokens == 0 && !done)
            pthread_cond_wait(&condvar, &mutex);
        if (tokens > 0)
            tokens--;
        pthread_cleanup_pop(0);
        pthread_mutex_unlock(&mutex);
        if (done)
            return NULL;
    }
}

/* A cancelled waiter takes no notification from others: each token is taken. The one that is cancelled has waited
   longest, so that it is the one that is woken. */
static void none_is_lost(void)
{
    int lost = 0;
    for (int round = 0; round < 300 && !lost; round++) {
        tokens = 0, done = 0;
        pthread_t goes = start(consumer, NULL);
        nap(1);
        pthread_t stays = start(consumer, NULL);
        nap(1);
        pthread_mutex_lock(&mutex);
        tokens++;
        if (round % 2) {
            pthread_cond_signal(&condvar);
            pthread_cancel(goes);
        } else {
            pthread_cancel(goes);
            pthread_cond_signal(&condvar);
        }
        pthread_mutex_unlock(&mutex);
        end(goes);
        double until = now() + 5;
        for (int left = 1; left && !lost;) {
            sched_yield();
            pthread_mutex_lock(&mutex);
            left = tokens;
            pthread_mutex_unlock(&mutex);
            lost = now() > until;
        }
        pthread_mutex_lock(&mutex);
        done = 1;
        pthread_cond_broadcast(&condvar);
        pthread_mutex_unlock(&mutex);
        end(stays);
    }
    printf("lost: %d\n", lost);
}

int main(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&shared_condvar, &attributes);
    for (int way = 0; way < 7; way++)
        for (int times = 0; times < 3; times++)
            one(way);
    none_is_lost();
    /* No waiter is left behind. */
    SHOW(pthread_cond_destroy(&condvar));
    SHOW(pthread_mutex_destroy(&mutex));
    return 0;
}
