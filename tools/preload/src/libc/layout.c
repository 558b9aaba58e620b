/* Samples for layout.rs: objects that the C library's own functions initialise with one attribute
   each.

   Each function returns what the C library's returned, or -1 if the process lacks the functions,
   as one without threads may with a glibc before 2.34. */

#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

static int sharing(int shared)
{
    return shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE;
}

#pragma weak pthread_condattr_init
#pragma weak pthread_condattr_setpshared
#pragma weak pthread_condattr_setclock
#pragma weak pthread_mutexattr_init
#pragma weak pthread_mutexattr_settype
#pragma weak pthread_mutexattr_setpshared
#pragma weak pthread_mutexattr_setrobust
#pragma weak pthread_rwlockattr_init
#pragma weak pthread_rwlockattr_setpshared
#pragma weak pthread_rwlockattr_setkind_np

/* The C library's function that initialises an object. */
typedef int initialise(void *object, const void *attributes);

int kinlock_sample_condvar(initialise *init, void *object, int shared, int monotonic)
{
    pthread_condattr_t attributes;
    if (!pthread_condattr_init || !pthread_condattr_setpshared || !pthread_condattr_setclock)
        return -1;
    pthread_condattr_init(&attributes);
    pthread_condattr_setpshared(&attributes, sharing(shared));
    pthread_condattr_setclock(&attributes, monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME);
    return init(object, &attributes);
}

int kinlock_sample_mutex(initialise *init, void *object, int kind, int shared, int robust)
{
    pthread_mutexattr_t attributes;
    if (!pthread_mutexattr_init || !pthread_mutexattr_settype || !pthread_mutexattr_setpshared ||
        !pthread_mutexattr_setrobust)
        return -1;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, kind);
    pthread_mutexattr_setpshared(&attributes, sharing(shared));
    pthread_mutexattr_setrobust(&attributes, robust ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED);
    return init(object, &attributes);
}

int kinlock_sample_rwlock(initialise *init, void *object, int shared, int preference)
{
    pthread_rwlockattr_t attributes;
    if (!pthread_rwlockattr_init || !pthread_rwlockattr_setpshared ||
        !pthread_rwlockattr_setkind_np)
        return -1;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setpshared(&attributes, sharing(shared));
    pthread_rwlockattr_setkind_np(&attributes, preference);
    return init(object, &attributes);
}
