/* Locks of all sorts, contended, beneath a library that wraps what they may call (wrapper.c). */
#include "common.h"

enum { THREADS = 4, TIMES = 3000 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static long count, turn;

static void *work(void *number)
{
    for (int i = 0; i < TIMES; i++) {
        struct timespec now;
        pthread_mutex_lock(&mutex);
        count++;
        if (i % 100 == 0) {
            clock_gettime(CLOCK_REALTIME, &now);
            pthread_cond_timedwait(&condvar, &mutex, &now);
        }
        pthread_cond_signal(&condvar);
        pthread_mutex_unlock(&mutex);
        pthread_rwlock_wrlock(&rwlock);
        turn++;
        pthread_rwlock_unlock(&rwlock);
        pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
    }
    return number;
}

int main(void)
{
    pthread_key_t key;
    CHECK(pthread_key_create(&key, NULL) == 0 && pthread_setspecific(key, &key) == 0);
    run_threads(THREADS, work);
    printf("%ld %ld\n", count, turn);
    return 0;
}
