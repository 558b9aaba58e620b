/* 100,000 threads, or as many as the argument says, over the life of the process, each of which contends, also in its last destructors. */
#include "common.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t keys[8];
static long counter, destructors;
static atomic_int arrived;

static void destructor(void *value)
{
    pthread_mutex_lock(&mutex);
    destructors++;
    pthread_mutex_unlock(&mutex);
    /* The destructor is called again, as often as the C library allows. */
    if ((intptr_t)value > 1)
        pthread_setspecific(keys[(intptr_t)value % 8], (void *)((intptr_t)value - 1));
}

static void *life(void *unused)
{
    int n = ++arrived;
    if (n % 16 == 0)
        for (int i = 0; i < 8; i++)
            pthread_setspecific(keys[i], (void *)2);
    for (int i = 0; i < 10; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        if (i == 5 && n % 64 == 0)
            sched_yield();
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    long all = argc > 1 ? atol(argv[1]) : 100000;
    for (int i = 0; i < 8; i++)
        CHECK(pthread_key_create(&keys[i], destructor) == 0);
    for (long done = 0; done < all; done += 50)
        run_threads(50, life);
    printf("%ld\n", counter);
    CHECK(destructors >= all / 16 * 8);
    return 0;
}
