/* A library that wraps functions of the C library, as libfaketime and others do, and takes a mutex,
   a reader-writer lock and a condition variable with a time limit in each. The C library's locks
   call none of these functions, so nothing here expects to be called by itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;

static void use_locks(void)
{
    static const struct timespec past = {1, 0};
    int kept = errno;
    pthread_mutex_lock(&mutex);
    pthread_rwlock_wrlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
    pthread_rwlock_rdlock(&rwlock);
    pthread_cond_timedwait(&condvar, &mutex, &past);
    pthread_rwlock_unlock(&rwlock);
    pthread_mutex_unlock(&mutex);
    errno = kept;
}

#define WRAP(result, name, parameters, arguments)                     \
    result wrap_##name parameters __asm__(#name);                     \
    result wrap_##name parameters                                     \
    {                                                                 \
        static result(*next) parameters;                              \
        if (!next)                                                    \
            next = (result(*) parameters)dlsym(RTLD_NEXT, #name);     \
        use_locks();                                                  \
        return next arguments;                                        \
    }

WRAP(int, pthread_cond_init, (pthread_cond_t *o, const pthread_condattr_t *a), (o, a))
WRAP(int, pthread_mutex_init, (pthread_mutex_t *o, const pthread_mutexattr_t *a), (o, a))
WRAP(int, pthread_rwlock_init, (pthread_rwlock_t *o, const pthread_rwlockattr_t *a), (o, a))
WRAP(int, pthread_spin_init, (pthread_spinlock_t *o, int shared), (o, shared))
WRAP(int, pthread_key_create, (pthread_key_t *o, void (*destructor)(void *)), (o, destructor))
WRAP(int, pthread_setspecific, (pthread_key_t key, const void *value), (key, value))
WRAP(int, clock_gettime, (clockid_t clock, struct timespec *time), (clock, time))
WRAP(int, open, (const char *path, int flags, mode_t mode), (path, flags, mode))
WRAP(int, openat, (int at, const char *path, int flags, mode_t mode), (at, path, flags, mode))
WRAP(void *, mmap, (void *p, size_t n, int a, int f, int d, off_t o), (p, n, a, f, d, o))
WRAP(ssize_t, write, (int d, const void *p, size_t n), (d, p, n))
WRAP(ssize_t, read, (int d, void *p, size_t n), (d, p, n))
WRAP(pid_t, getpid, (void), ())
WRAP(int, sched_yield, (void), ())
WRAP(int, sched_getscheduler, (pid_t p), (p))
WRAP(int, sched_getcpu, (void), ())
WRAP(long, syscall, (long n, long a, long b, long c, long d, long e, long f),
     (n, a, b, c, d, e, f))
