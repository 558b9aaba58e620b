/* A wait with a time limit is one sleep. */
#include "common.h"
#include <sys/resource.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;

static void *wait_by(void *clock)
{
    clockid_t id = (clockid_t)(intptr_t)clock;
    struct rusage before, after;
    struct timespec end = in_ms(id, 5500);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    getrusage(RUSAGE_THREAD, &before);
    int error;
    while ((error = pthread_cond_clockwait(&condvar, &mutex, id, &end)) == 0)
        ;
    getrusage(RUSAGE_THREAD, &after);
    CHECK(error == ETIMEDOUT);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    /* One switch for the sleep, and some for pages that may not be in memory. */
    return (void *)(intptr_t)(after.ru_nvcsw - before.ru_nvcsw <= 4);
}

int main(void)
{
    pthread_t by_day = start(wait_by, (void *)(intptr_t)CLOCK_REALTIME);
    pthread_t monotonic = start(wait_by, (void *)(intptr_t)CLOCK_MONOTONIC);
    printf("one sleep by the time of day: %d\n", (int)(intptr_t)end(by_day));
    printf("one sleep by the monotonic clock: %d\n", (int)(intptr_t)end(monotonic));
    return 0;
}
