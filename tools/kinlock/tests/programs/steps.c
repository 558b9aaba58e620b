/* Threads take `hot` for some steps of a xorshift loop, then work without it; every fourth time they
 * take `cold`. Work is counted in steps: a thread that has lost its CPU gets nothing done. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t hot = PTHREAD_MUTEX_INITIALIZER, cold = PTHREAD_MUTEX_INITIALIZER;
static long inside, outside, in_cold;
static volatile int ends;

struct worker {
    pthread_t thread;
    long rounds;
    uint64_t x;
} __attribute__((aligned(128)));

static uint64_t steps(uint64_t x, long n)
{
    while (n-- > 0) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

static void *work(void *argument)
{
    struct worker *me = argument;
    uint64_t x = me->x;
    long rounds = 0;
    for (; !ends; rounds++) {
        pthread_mutex_lock(&hot);
        x = steps(x, inside);
        pthread_mutex_unlock(&hot);
        x = steps(x, outside);
        if (in_cold && rounds % 4 == 0) {
            pthread_mutex_lock(&cold);
            x = steps(x, in_cold);
            pthread_mutex_unlock(&cold);
        }
    }
    me->x = x;
    me->rounds = rounds;
    return NULL;
}

/* THREADS MILLISECONDS INSIDE OUTSIDE [COLD], the last three in steps. Prints the rounds per second. */
int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: steps THREADS MILLISECONDS INSIDE OUTSIDE [COLD]\n");
        return 2;
    }
    int threads = atoi(argv[1]);
    inside = atol(argv[3]), outside = atol(argv[4]), in_cold = argc > 5 ? atol(argv[5]) : 0;
    struct worker *all = aligned_alloc(128, sizeof *all * threads);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < threads; i++) {
        all[i].x = i + 1;
        pthread_create(&all[i].thread, NULL, work, &all[i]);
    }
    usleep(1000 * atol(argv[2]));
    ends = 1;
    long rounds = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(all[i].thread, NULL);
        rounds += all[i].rounds;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("rounds/s: %.0f\n", rounds / (to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9));
    return 0;
}
