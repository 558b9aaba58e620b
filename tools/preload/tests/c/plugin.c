/* A library that early.c loads and unloads. */
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long sum;

__attribute__((constructor)) static void load(void)
{
    pthread_mutex_lock(&mutex);
    sum = 0;
    pthread_mutex_unlock(&mutex);
}

__attribute__((destructor)) static void unload(void)
{
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    pthread_mutex_destroy(&mutex);
}

long work(void)
{
    long i;
    for (i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        sum++;
        pthread_mutex_unlock(&mutex);
    }
    return i;
}
