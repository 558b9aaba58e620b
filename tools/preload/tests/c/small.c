/* Threads with the smallest possible stack contend, on one CPU and for long enough that even rare paths are taken. */
#include "common.h"
#include <limits.h>
#include <sched.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static atomic_int stop;
static atomic_long counter;

static void *contend(void *unused)
{
    for (long i = 0; !stop; i++) {
        struct timespec soon = in_ms(CLOCK_REALTIME, 1);
        pthread_mutex_lock(&mutex);
        counter++;
        if (i % 16 == 0)
            sched_yield();
        if (i % 1024 == 0)
            pthread_cond_timedwait(&condvar, &mutex, &soon);
        pthread_mutex_unlock(&mutex);
        if (i % 64 == 0 && pthread_mutex_timedlock(&mutex, &soon) == 0)
            pthread_mutex_unlock(&mutex);
        i % 8 ? pthread_rwlock_rdlock(&rwlock) : pthread_rwlock_wrlock(&rwlock);
        if (i % 32 == 0)
            sched_yield();
        pthread_rwlock_unlock(&rwlock);
    }
    return NULL;
}

int main(void)
{
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstacksize(&attributes, sysconf(_SC_THREAD_STACK_MIN)) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(threads + i, &attributes, contend, NULL) == 0);
    do
        nap(1000);
    while (counter == 0);
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        end(threads[i]);
    printf("small stacks suffice\n");
    return 0;
}
