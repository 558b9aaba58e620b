/* Two workers take `hot` and `rare`; the main thread takes `once`, twice. Times are known. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

pthread_mutex_t hot = PTHREAD_MUTEX_INITIALIZER, rare = PTHREAD_MUTEX_INITIALIZER, once = PTHREAD_MUTEX_INITIALIZER;
static int rounds, hold_us, think_us;

static void busy(long us)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long end = t.tv_sec * 1000000000L + t.tv_nsec + us * 1000;
    do {
        clock_gettime(CLOCK_MONOTONIC, &t);
    } while (t.tv_sec * 1000000000L + t.tv_nsec < end);
}

static void *work(void *unused)
{
    for (int i = 0; i < rounds; i++) {
        pthread_mutex_lock(&hot);
        busy(hold_us);
        pthread_mutex_unlock(&hot);
        busy(think_us);
        if (i % 4 == 0) {
            pthread_mutex_lock(&rare);
            pthread_mutex_unlock(&rare);
        }
    }
    return unused;
}

/* THREADS ROUNDS HOLD THINK, in microseconds. Prints the operations per second. */
int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    rounds = argc > 2 ? atoi(argv[2]) : 4000;
    hold_us = argc > 3 ? atoi(argv[3]) : 5;
    think_us = argc > 4 ? atoi(argv[4]) : 40;
    for (int i = 0; i < 2; i++) {
        pthread_mutex_lock(&once);
        pthread_mutex_unlock(&once);
    }
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    pthread_t all[64];
    for (int i = 0; i < threads; i++)
        pthread_create(&all[i], NULL, work, NULL);
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double s = to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9;
    printf("ops/s: %.0f\n", (double)threads * rounds / s);
    return 7;
}
