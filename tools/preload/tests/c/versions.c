/* A program that was linked long ago: it asks for the oldest versions of functions. */
#include "common.h"
#include <dlfcn.h>

#ifdef __x86_64__
__asm__(".symver pthread_mutex_trylock, pthread_mutex_trylock@GLIBC_2.2.5");
__asm__(".symver pthread_mutex_timedlock, pthread_mutex_timedlock@GLIBC_2.2.5");
__asm__(".symver pthread_cond_wait, pthread_cond_wait@GLIBC_2.3.2");
__asm__(".symver pthread_cond_signal, pthread_cond_signal@GLIBC_2.3.2");
__asm__(".symver pthread_spin_lock, pthread_spin_lock@GLIBC_2.2.5");
__asm__(".symver pthread_spin_unlock, pthread_spin_unlock@GLIBC_2.2.5");
__asm__(".symver pthread_spin_init, pthread_spin_init@GLIBC_2.2.5");
__asm__(".symver pthread_cond_clockwait, pthread_cond_clockwait@GLIBC_2.30");
__asm__(".symver pthread_mutex_clocklock, pthread_mutex_clocklock@GLIBC_2.30");
__asm__(".symver __pthread_mutex_lock, __pthread_mutex_lock@GLIBC_2.2.5");
__asm__(".symver __pthread_mutex_trylock, __pthread_mutex_trylock@GLIBC_2.2.5");
__asm__(".symver __pthread_mutex_unlock, __pthread_mutex_unlock@GLIBC_2.2.5");
__asm__(".symver __pthread_mutex_init, __pthread_mutex_init@GLIBC_2.2.5");
__asm__(".symver __pthread_mutex_destroy, __pthread_mutex_destroy@GLIBC_2.2.5");
__asm__(".symver pthread_rwlock_rdlock, pthread_rwlock_rdlock@GLIBC_2.2.5");
__asm__(".symver pthread_rwlock_timedwrlock, pthread_rwlock_timedwrlock@GLIBC_2.2.5");
__asm__(".symver pthread_rwlock_clockrdlock, pthread_rwlock_clockrdlock@GLIBC_2.30");
__asm__(".symver __pthread_rwlock_wrlock, __pthread_rwlock_wrlock@GLIBC_2.2.5");
__asm__(".symver __pthread_rwlock_tryrdlock, __pthread_rwlock_tryrdlock@GLIBC_2.2.5");
__asm__(".symver __pthread_rwlock_trywrlock, __pthread_rwlock_trywrlock@GLIBC_2.2.5");
__asm__(".symver __pthread_rwlock_unlock, __pthread_rwlock_unlock@GLIBC_2.2.5");
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
#endif

int __pthread_mutex_lock(pthread_mutex_t *);
int __pthread_mutex_trylock(pthread_mutex_t *);
int __pthread_mutex_unlock(pthread_mutex_t *);
int __pthread_mutex_init(pthread_mutex_t *, const pthread_mutexattr_t *);
int __pthread_mutex_destroy(pthread_mutex_t *);

int __pthread_rwlock_wrlock(pthread_rwlock_t *);
int __pthread_rwlock_tryrdlock(pthread_rwlock_t *);
int __pthread_rwlock_trywrlock(pthread_rwlock_t *);
int __pthread_rwlock_unlock(pthread_rwlock_t *);

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static long counter, ready;

static void *count(void *unused)
{
    struct timespec far = in_ms(CLOCK_REALTIME, 100000), monotonic = in_ms(CLOCK_MONOTONIC, 100000);
    for (int i = 0; i < 40000; i++) {
        /* Each way to take the lock excludes each other way. */
        switch (i % 5) {
        case 0: pthread_mutex_lock(&mutex); break;
        case 1:
            while (pthread_mutex_trylock(&mutex))
                sched_yield();
            break;
        case 2: CHECK(pthread_mutex_timedlock(&mutex, &far) == 0); break;
        case 3: CHECK(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &monotonic) == 0); break;
        case 4:
            if (__pthread_mutex_trylock(&mutex))
                __pthread_mutex_lock(&mutex);
            break;
        }
        counter++;
        if (i % 2)
            pthread_mutex_unlock(&mutex);
        else
            __pthread_mutex_unlock(&mutex);
        pthread_spin_lock(&spin);
        ready++;
        pthread_spin_unlock(&spin);
    }
    return NULL;
}

static void *notify(void *unused)
{
    pthread_mutex_lock(&mutex);
    ready = -1;
    pthread_cond_signal(&condvar);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

int main(void)
{
    struct timespec far = in_ms(CLOCK_MONOTONIC, 10000);
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    run_threads(4, count);
    printf("%ld %ld\n", counter, ready);
    for (int way = 0; way < 2; way++) {
        ready = 0;
        pthread_mutex_lock(&mutex);
        pthread_t thread = start(notify, NULL);
        while (ready != -1)
            CHECK((way ? pthread_cond_wait(&condvar, &mutex)
                       : pthread_cond_clockwait(&condvar, &mutex, CLOCK_MONOTONIC, &far)) == 0);
        pthread_mutex_unlock(&mutex);
        end(thread);
    }
    pthread_mutex_t other;
    SHOW(__pthread_mutex_init(&other, NULL));
    SHOW(__pthread_mutex_destroy(&other));
    SHOW(__pthread_rwlock_wrlock(&rwlock));
    SHOW(pthread_rwlock_rdlock(&rwlock));
    SHOW(__pthread_rwlock_tryrdlock(&rwlock));
    SHOW(__pthread_rwlock_unlock(&rwlock));
    SHOW(pthread_rwlock_clockrdlock(&rwlock, CLOCK_MONOTONIC, &far));
    SHOW(__pthread_rwlock_trywrlock(&rwlock));
    SHOW(pthread_rwlock_unlock(&rwlock));
    SHOW(pthread_rwlock_timedwrlock(&rwlock, &far));
    SHOW(pthread_rwlock_unlock(&rwlock));
    /* By name and version, as wrappers do it. */
    int (*lock)(pthread_mutex_t *) = (int (*)(pthread_mutex_t *))dlsym(RTLD_DEFAULT, "pthread_mutex_lock");
    SHOW(lock(&mutex));
    SHOW(pthread_mutex_trylock(&mutex));
#ifdef __x86_64__
    int (*unlock)(pthread_mutex_t *) =
        (int (*)(pthread_mutex_t *))dlvsym(RTLD_DEFAULT, "pthread_mutex_unlock", "GLIBC_2.2.5");
#else
    int (*unlock)(pthread_mutex_t *) = pthread_mutex_unlock;
#endif
    SHOW(unlock(&mutex));
    SHOW(pthread_mutex_trylock(&mutex));
    return 0;
}
