/* SPDX-License-Identifier: MIT OR Apache-2.0

   The locks of kinlock.h for systems without that library: the same names, implemented by the locks
   of the system, so that a program needs one line to choose.

     #ifdef __linux__
     #include <kinlock.h>
     #else
     #include <kinlock_fallback.h>
     #endif

   Everything is in this header: only the system's threads have to be linked. It needs C99 or C++11,
   and POSIX threads or Windows 7. What kinlock.h says about a function holds here, too, except for
   what this comment lists. KINLOCK_FALLBACK is defined.

   WHAT IS THERE

   The mutex, the condition variable, the reader-writer lock, the spinlock and kinlock_once, with
   time limits on the monotonic clock, and kinlock_now. Zeros are a free lock, and there is nothing
   to destroy. kinlock.hpp works if this header is included before it.

   WHAT IS DIFFERENT

   - Size. A type is as large as what the system needs for it, 64 to 112 bytes with glibc, and its
     alignment is the system's. Objects of this header and of the library must not be mixed.
   - Speed. All types are made of the system's mutex, and are as fast as it: even the spinlock,
     whose waiters sleep, and the reader-writer lock, whose readers write to it.
   - Released by another thread than took it: not allowed for the mutex and the spinlock, allowed
     for the reader-writer lock.
   - The system decides which waiter goes first. In the reader-writer lock readers that wait go
     before the next writer and a waiting writer goes before later readers, as in the library.
   - A thread that waits for a mutex or spinlock with a time limit tries again and again, up to a
     millisecond apart, since some systems have no such function. A thread that waits without a
     limit may overtake it.
   - Freed right after a release: allowed if the system's mutex allows it. POSIX demands that;
     Windows does not say. FreeBSD, OpenBSD and macOS may allocate memory for a lock that has been
     used, and leak it if the lock's memory is freed.
   - A lock cannot be copied at all.
   - Signal handlers: no.
   - Inside malloc: allowed if the system's mutex allows it. A first use may allocate, and ends the
     process if there is no memory.
   - fork: as the system's mutex behaves. The functions named ..._reset_in_child make a new object.

   WHAT IS NOT THERE

   - Concurrency IDs, counters, areas, stacks and delayed invalidation: their types do not exist,
     and the compiler's message contains a name that says so.
   - Knobs and statistics: kinlock_set returns ENOENT, and there are no counters.
   - Topology: kinlock_cpu, kinlock_node and kinlock_cache return -1, unknown. kinlock_usable_cpus
     returns how many CPUs are online. */

#ifndef KINLOCK_FALLBACK_H
#define KINLOCK_FALLBACK_H

#ifdef KINLOCK_H
#error "kinlock.h is included already: a file includes it or kinlock_fallback.h, not both"
#endif
/* Makes kinlock.h add nothing if another header includes it. */
#define KINLOCK_H
#define KINLOCK_FALLBACK 1

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>
#ifndef CLOCK_MONOTONIC
#error "kinlock_fallback.h needs POSIX.1-2001: compile with -std=gnu99 or -D_POSIX_C_SOURCE=200809L"
#endif
#endif

/* ---- as in kinlock.h ------------------------------------------------------------------------- */

#define KINLOCK_VERSION_MAJOR 0
#define KINLOCK_VERSION_MINOR 1
#define KINLOCK_VERSION_PATCH 0
#define KINLOCK_VERSION \
    (KINLOCK_VERSION_MAJOR * 1000000 + KINLOCK_VERSION_MINOR * 1000 + KINLOCK_VERSION_PATCH)
#define KINLOCK_ABI 1
#define KINLOCK_FOREVER UINT64_MAX

#ifdef __cplusplus
#define KINLOCK_NOEXCEPT noexcept
#define KINLOCK_FALLBACK_INLINE inline
#define KINLOCK_FALLBACK_ZEROS {}
#else
#define KINLOCK_NOEXCEPT
#define KINLOCK_FALLBACK_ZEROS {0}
#if defined(__GNUC__)
#define KINLOCK_FALLBACK_INLINE __attribute__((unused)) static inline
#else
#define KINLOCK_FALLBACK_INLINE static inline
#endif
#endif

#define KINLOCK_MUTEX_INIT KINLOCK_FALLBACK_ZEROS
#define KINLOCK_COND_INIT KINLOCK_FALLBACK_ZEROS
#define KINLOCK_RWLOCK_INIT KINLOCK_FALLBACK_ZEROS
#define KINLOCK_SPIN_INIT KINLOCK_FALLBACK_ZEROS
#define KINLOCK_ONCE_INIT KINLOCK_FALLBACK_ZEROS

#if defined(__GNUC__)
#define KINLOCK_MUST_CHECK __attribute__((warn_unused_result))
#else
#define KINLOCK_MUST_CHECK
#endif

#if defined(__clang__) && !defined(KINLOCK_NO_THREAD_SAFETY_ANALYSIS)
#define KINLOCK_ANALYSIS(attribute) __attribute__((attribute))
#else
#define KINLOCK_ANALYSIS(attribute)
#endif

/* ---- what is not there ----------------------------------------------------------------------- */

#define kinlock_ids_t kinlock_fallback_has_no_concurrency_ids
#define kinlock_lease_t kinlock_fallback_has_no_concurrency_ids
#define kinlock_counter_t kinlock_fallback_has_no_counters
#define kinlock_counters_t kinlock_fallback_has_no_counters
#define kinlock_area_t kinlock_fallback_has_no_areas
#define kinlock_stack_t kinlock_fallback_has_no_stacks
#define kinlock_invalidation_t kinlock_fallback_has_no_delayed_invalidation
#define kinlock_tag_t kinlock_fallback_has_no_delayed_invalidation
#define kinlock_section_t kinlock_fallback_has_no_delayed_invalidation
#define kinlock_open_section_t kinlock_fallback_has_no_delayed_invalidation

/* ---- the system: a mutex, a condition to wait for, the time ---------------------------------- */

/* A word that is read without the mutex. */
typedef struct {
#if defined(_MSC_VER) && !defined(__clang__)
    volatile long value;
#else
    long value;
#endif
} kinlock_fallback_word;

KINLOCK_FALLBACK_INLINE long kinlock_fallback_load(const kinlock_fallback_word *word)
    KINLOCK_NOEXCEPT
{
#if defined(_MSC_VER) && !defined(__clang__)
    return InterlockedCompareExchange((volatile long *)&word->value, 0, 0);
#else
    return __atomic_load_n(&word->value, __ATOMIC_ACQUIRE);
#endif
}

KINLOCK_FALLBACK_INLINE void kinlock_fallback_store(kinlock_fallback_word *word, long value)
    KINLOCK_NOEXCEPT
{
#if defined(_MSC_VER) && !defined(__clang__)
    InterlockedExchange(&word->value, value);
#else
    __atomic_store_n(&word->value, value, __ATOMIC_RELEASE);
#endif
}

#ifdef _WIN32

typedef struct {
    SRWLOCK lock;
} kinlock_fallback_mutex;

typedef struct {
    CONDITION_VARIABLE condition;
} kinlock_fallback_cond;

KINLOCK_FALLBACK_INLINE uint64_t kinlock_now(void) KINLOCK_NOEXCEPT
{
    LARGE_INTEGER ticks, per_second;
    uint64_t seconds, rest;
    QueryPerformanceFrequency(&per_second);
    QueryPerformanceCounter(&ticks);
    /* Seconds and rest separately, since the ticks of some weeks times 10^9 would exceed 64 bits.
       */
    seconds = (uint64_t)ticks.QuadPart / (uint64_t)per_second.QuadPart;
    rest = (uint64_t)ticks.QuadPart % (uint64_t)per_second.QuadPart;
    return seconds * 1000000000U + rest * 1000000000U / (uint64_t)per_second.QuadPart;
}

KINLOCK_FALLBACK_INLINE void kinlock_fallback_lock(kinlock_fallback_mutex *mutex) KINLOCK_NOEXCEPT
{
    AcquireSRWLockExclusive(&mutex->lock);
}

KINLOCK_FALLBACK_INLINE int kinlock_fallback_trylock(kinlock_fallback_mutex *mutex)
    KINLOCK_NOEXCEPT
{
    return TryAcquireSRWLockExclusive(&mutex->lock) ? 0 : EBUSY;
}

KINLOCK_FALLBACK_INLINE void kinlock_fallback_unlock(kinlock_fallback_mutex *mutex)
    KINLOCK_NOEXCEPT
{
    ReleaseSRWLockExclusive(&mutex->lock);
}

/* May return 0 for no reason, and before the deadline. */
KINLOCK_FALLBACK_INLINE int kinlock_fallback_wait(kinlock_fallback_cond *cond,
                                                  kinlock_fallback_mutex *mutex,
                                                  uint64_t deadline) KINLOCK_NOEXCEPT
{
    const DWORD error = GetLastError();
    DWORD limit = INFINITE;
    int expired = 0;
    if (deadline != KINLOCK_FOREVER) {
        const uint64_t now = kinlock_now();
        const uint64_t left = deadline > now ? (deadline - now + 999999U) / 1000000U : 0;
        limit = left < 1000000000U ? (DWORD)left : 1000000000U;
    }
    if (!SleepConditionVariableSRW(&cond->condition, &mutex->lock, limit, 0)) {
        expired = kinlock_now() >= deadline;
    }
    SetLastError(error);
    return expired ? ETIMEDOUT : 0;
}

KINLOCK_FALLBACK_INLINE void kinlock_fallback_wake(kinlock_fallback_cond *cond) KINLOCK_NOEXCEPT
{
    WakeConditionVariable(&cond->condition);
}

KINLOCK_FALLBACK_INLINE void kinlock_fallback_wake_all(kinlock_fallback_cond *cond)
    KINLOCK_NOEXCEPT
{
    WakeAllConditionVariable(&cond->condition);
}

/* Lets other threads run: for a moment, or for a millisecond if that was tried often. */
KINLOCK_FALLBACK_INLINE void kinlock_fallback_pause(unsigned tried) KINLOCK_NOEXCEPT
{
    Sleep(tried < 16 ? 0 : 1);
}

KINLOCK_FALLBACK_INLINE uint32_t kinlock_usable_cpus(void) KINLOCK_NOEXCEPT
{
    const DWORD count = GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
    return count > 0 ? (uint32_t)count : 1;
}

#else

/* POSIX does not say that zeros are a mutex, and a condition variable that was not initialised uses
   a clock that may be set. So the first user makes the system's object: `state` is 0 before that, 1
   while it happens, and 2 afterwards. */
typedef struct {
    kinlock_fallback_word state;
    pthread_mutex_t lock;
} kinlock_fallback_mutex;

typedef struct {
    kinlock_fallback_word state;
    pthread_cond_t condition;
} kinlock_fallback_cond;

KINLOCK_FALLBACK_INLINE uint64_t kinlock_now(void) KINLOCK_NOEXCEPT
{
    struct timespec time;
    if (clock_gettime(CLOCK_MONOTONIC, &time) != 0) {
        abort();
    }
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

/* The system's functions that sleep are cancellation points, but the functions of this header must
   not be: a cancelled caller would leave a mutex locked, and a noexcept function in C++ would end
   the process. Returns what kinlock_fallback_cancellable needs. */
KINLOCK_FALLBACK_INLINE int kinlock_fallback_uncancellable(void) KINLOCK_NOEXCEPT
{
    int state = 0;
#ifndef __ANDROID__
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
#endif
    return state;
}

KINLOCK_FALLBACK_INLINE void kinlock_fallback_cancellable(int state) KINLOCK_NOEXCEPT
{
#ifndef __ANDROID__
    pthread_setcancelstate(state, NULL);
#else
    (void)state;
#endif
}

/* Lets other threads run: for a moment, or for a millisecond if that was tried often. */
KINLOCK_FALLBACK_INLINE void kinlock_fallback_pause(unsigned tried) KINLOCK_NOEXCEPT
{
    const int error = errno;
    if (tried < 16) {
        sched_yield();
    } else {
        const int cancel = kinlock_fallback_uncancellable();
        struct timespec time;
        time.tv_sec = 0;
        time.tv_nsec = tried < 32 ? 50000 : 1000000;
        nanosleep(&time, NULL);
        kinlock_fallback_cancellable(cancel);
    }
    errno = error;
}

/* Whether the caller has to make the object. If not, another thread has made it when this returns.
   */
KINLOCK_FALLBACK_INLINE int kinlock_fallback_first(kinlock_fallback_word *state) KINLOCK_NOEXCEPT
{
    long expected = 0;
    unsigned tried = 0;
    if (__atomic_compare_exchange_n(&state->value, &expected, 1, 0, __ATOMIC_ACQUIRE,
                                    __ATOMIC_ACQUIRE)) {
        return 1;
    }
    while (kinlock_fallback_load(state) != 2) {
        kinlock_fallback_pause(tried++);
    }
    return 0;
}

KINLOCK_FALLBACK_INLINE pthread_mutex_t *
kinlock_fallback_made(kinlock_fallback_mutex *mutex) KINLOCK_NOEXCEPT
{
    if (kinlock_fallback_load(&mutex->state) != 2 && kinlock_fallback_first(&mutex->state)) {
        if (pthread_mutex_init(&mutex->lock, NULL) != 0) {
            abort();
        }
        kinlock_fallback_store(&mutex->state, 2);
    }
    return &mutex->lock;
}

KINLOCK_FALLBACK_INLINE pthread_cond_t *
kinlock_fallback_made_cond(kinlock_fallback_cond *cond) KINLOCK_NOEXCEPT
{
    if (kinlock_fallback_load(&cond->state) != 2 && kinlock_fallback_first(&cond->state)) {
        pthread_condattr_t attributes;
        int error = pthread_condattr_init(&attributes);
#ifndef __APPLE__
        error |= pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
        error |= pthread_cond_init(&cond->condition, &attributes);
        if (error != 0) {
            abort();
        }
        pthread_condattr_destroy(&attributes);
        kinlock_fallback_store(&cond->state, 2);
    }
    return &cond->condition;
}

/* A failure is a mistake of the program that the system has noticed, such as a copied lock. The
   process ends, because it would go on without holding the lock. */
KINLOCK_FALLBACK_INLINE void kinlock_fallback_check(int error) KINLOCK_NOEXCEPT
{
    if (error != 0) {
        abort();
    }
}

KINLOCK_FALLBACK_INLINE void kinlock_fallback_lock(kinlock_fallback_mutex *mutex) KINLOCK_NOEXCEPT
{
    kinlock_fallback_check(pthread_mutex_lock(kinlock_fallback_made(mutex)));
}

KINLOCK_FALLBACK_INLINE int kinlock_fallback_trylock(kinlock_fallback_mutex *mutex)
    KINLOCK_NOEXCEPT
{
    const int result = pthread_mutex_trylock(kinlock_fallback_made(mutex));
    kinlock_fallback_check(result == EBUSY ? 0 : result);
    return result;
}

KINLOCK_FALLBACK_INLINE void kinlock_fallback_unlock(kinlock_fallback_mutex *mutex)
    KINLOCK_NOEXCEPT
{
    kinlock_fallback_check(pthread_mutex_unlock(&mutex->lock));
}

/* May return 0 for no reason, and before the deadline. */
KINLOCK_FALLBACK_INLINE int kinlock_fallback_wait(kinlock_fallback_cond *cond,
                                                  kinlock_fallback_mutex *mutex,
                                                  uint64_t deadline) KINLOCK_NOEXCEPT
{
    pthread_cond_t *condition = kinlock_fallback_made_cond(cond);
    const int saved = errno;
    const int cancel = kinlock_fallback_uncancellable();
    int result;
    if (deadline == KINLOCK_FOREVER) {
        result = pthread_cond_wait(condition, &mutex->lock);
    } else {
        struct timespec time;
#ifdef __APPLE__
        const uint64_t now = kinlock_now();
        const uint64_t until = deadline > now ? deadline - now : 0;
#else
        const uint64_t until = deadline;
#endif
        const uint64_t seconds = until / 1000000000U;
        /* Limited to what fits in a time_t of 32 bits. The wait may then end too early, as any wait
           may. */
        time.tv_sec = (time_t)(seconds < INT32_MAX ? seconds : INT32_MAX);
        time.tv_nsec = (long)(until % 1000000000U);
#ifdef __APPLE__
        result = pthread_cond_timedwait_relative_np(condition, &mutex->lock, &time);
#else
        result = pthread_cond_timedwait(condition, &mutex->lock, &time);
#endif
        if (result == ETIMEDOUT && kinlock_now() < deadline) {
            result = 0;
        }
    }
    kinlock_fallback_cancellable(cancel);
    errno = saved;
    kinlock_fallback_check(result == ETIMEDOUT ? 0 : result);
    return result;
}

KINLOCK_FALLBACK_INLINE void kinlock_fallback_wake(kinlock_fallback_cond *cond) KINLOCK_NOEXCEPT
{
    kinlock_fallback_check(pthread_cond_signal(kinlock_fallback_made_cond(cond)));
}

KINLOCK_FALLBACK_INLINE void kinlock_fallback_wake_all(kinlock_fallback_cond *cond)
    KINLOCK_NOEXCEPT
{
    kinlock_fallback_check(pthread_cond_broadcast(kinlock_fallback_made_cond(cond)));
}

KINLOCK_FALLBACK_INLINE uint32_t kinlock_usable_cpus(void) KINLOCK_NOEXCEPT
{
#ifdef _SC_NPROCESSORS_ONLN
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (uint32_t)count : 1;
#else
    return 1;
#endif
}

#endif

/* The moment at which `nanos` nanoseconds from now have passed. */
KINLOCK_FALLBACK_INLINE uint64_t kinlock_fallback_after(uint64_t nanos) KINLOCK_NOEXCEPT
{
    const uint64_t now = nanos == 0 || nanos == KINLOCK_FOREVER ? 0 : kinlock_now();
    return nanos < KINLOCK_FOREVER - now ? now + nanos : KINLOCK_FOREVER;
}

/* Tries to take the mutex until the deadline. */
KINLOCK_FALLBACK_INLINE int kinlock_fallback_lock_until(kinlock_fallback_mutex *mutex,
                                                        uint64_t deadline) KINLOCK_NOEXCEPT
{
    unsigned tried = 0;
    if (deadline == KINLOCK_FOREVER) {
        kinlock_fallback_lock(mutex);
        return 0;
    }
    while (kinlock_fallback_trylock(mutex) != 0) {
        if (deadline == 0 || kinlock_now() >= deadline) {
            return ETIMEDOUT;
        }
        kinlock_fallback_pause(tried++);
    }
    return 0;
}

/* ---- version, knobs, statistics, topology ---------------------------------------------------- */

KINLOCK_FALLBACK_INLINE uint32_t kinlock_version(void) KINLOCK_NOEXCEPT
{
    return KINLOCK_VERSION;
}

KINLOCK_FALLBACK_INLINE const char *kinlock_version_string(void) KINLOCK_NOEXCEPT
{
    return "0.1.0";
}

KINLOCK_MUST_CHECK KINLOCK_FALLBACK_INLINE int kinlock_version_check(uint32_t abi, uint32_t version)
    KINLOCK_NOEXCEPT
{
    return abi == KINLOCK_ABI && version <= KINLOCK_VERSION ? 0 : ENOTSUP;
}

KINLOCK_MUST_CHECK KINLOCK_FALLBACK_INLINE int kinlock_set(const char *name, const char *value)
    KINLOCK_NOEXCEPT
{
    (void)name;
    (void)value;
    return ENOENT;
}

KINLOCK_FALLBACK_INLINE void kinlock_stats_enable(int on) KINLOCK_NOEXCEPT
{
    (void)on;
}

KINLOCK_FALLBACK_INLINE size_t kinlock_stats_count(void) KINLOCK_NOEXCEPT
{
    return 0;
}

KINLOCK_MUST_CHECK KINLOCK_FALLBACK_INLINE int kinlock_stats_name(size_t index, char *buffer,
                                                                  size_t size) KINLOCK_NOEXCEPT
{
    (void)index;
    (void)buffer;
    (void)size;
    return EINVAL;
}

KINLOCK_FALLBACK_INLINE size_t kinlock_stats_read(uint64_t *values, size_t count) KINLOCK_NOEXCEPT
{
    (void)values;
    (void)count;
    return 0;
}

KINLOCK_FALLBACK_INLINE int kinlock_cpu(void) KINLOCK_NOEXCEPT
{
    return -1;
}

KINLOCK_FALLBACK_INLINE int kinlock_node(void) KINLOCK_NOEXCEPT
{
    return -1;
}

KINLOCK_FALLBACK_INLINE int kinlock_cache(void) KINLOCK_NOEXCEPT
{
    return -1;
}

/* ---- the mutex and the spinlock -------------------------------------------------------------- */

typedef struct KINLOCK_ANALYSIS(capability("mutex")) {
    kinlock_fallback_word kinlock_held;
    kinlock_fallback_mutex kinlock_private;
} kinlock_mutex_t;

typedef struct KINLOCK_ANALYSIS(capability("spinlock")) {
    kinlock_fallback_word kinlock_held;
    kinlock_fallback_mutex kinlock_private;
} kinlock_spin_t;

#define KINLOCK_FALLBACK_LOCK(type, prefix) \
    KINLOCK_FALLBACK_INLINE int prefix##_lock(type *lock) KINLOCK_NOEXCEPT \
        KINLOCK_ANALYSIS(acquire_capability(*lock)) \
            KINLOCK_ANALYSIS(no_thread_safety_analysis) \
    { \
        kinlock_fallback_lock(&lock->kinlock_private); \
        kinlock_fallback_store(&lock->kinlock_held, 1); \
        return 0; \
    } \
\
    KINLOCK_MUST_CHECK KINLOCK_FALLBACK_INLINE int prefix##_trylock(type *lock) KINLOCK_NOEXCEPT \
        KINLOCK_ANALYSIS(try_acquire_capability(0, *lock)) \
            KINLOCK_ANALYSIS(no_thread_safety_analysis) \
    { \
        const int result = kinlock_fallback_trylock(&lock->kinlock_private); \
        if (result == 0) { \
            kinlock_fallback_store(&lock->kinlock_held, 1); \
        } \
        return result; \
    } \
\
    KINLOCK_MUST_CHECK KINLOCK_FALLBACK_INLINE int prefix##_lock_until(type *lock, \
                                                                       uint64_t deadline) \
        KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(try_acquire_capability(0, *lock)) \
            KINLOCK_ANALYSIS(no_thread_safety_analysis) \
    { \
        const int result = kinlock_fallback_lock_until(&lock->kinlock_private, deadline); \
        if (result == 0) { \
            kinlock_fallback_store(&lock->kinlock_held, 1); \
        } \
        return result; \
    } \
\
    KINLOCK_MUST_CHECK KINLOCK_FALLBACK_INLINE int prefix##_lock_for(type *lock, uint64_t nanos) \
        KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(try_acquire_capability(0, *lock)) \
            KINLOCK_ANALYSIS(no_thread_safety_analysis) \
    { \
        return prefix##_lock_until(lock, kinlock_fallback_after(nanos)); \
    } \
\
    KINLOCK_FALLBACK_INLINE int prefix##_unlock(type *lock) KINLOCK_NOEXCEPT \
        KINLOCK_ANALYSIS(release_capability(*lock)) \
            KINLOCK_ANALYSIS(no_thread_safety_analysis) \
    { \
        kinlock_fallback_store(&lock->kinlock_held, 0); \
        kinlock_fallback_unlock(&lock->kinlock_private); \
        return 0; \
    } \
\
    KINLOCK_FALLBACK_INLINE int prefix##_is_locked(const type *lock) KINLOCK_NOEXCEPT \
    { \
        return kinlock_fallback_load(&lock->kinlock_held) != 0; \
    } \
\
    KINLOCK_FALLBACK_INLINE void prefix##_reset_in_child(type *lock) KINLOCK_NOEXCEPT \
    { \
        memset(lock, 0, sizeof(*lock)); \
    }

KINLOCK_FALLBACK_LOCK(kinlock_mutex_t, kinlock_mutex)
KINLOCK_FALLBACK_LOCK(kinlock_spin_t, kinlock_spin)
#undef KINLOCK_FALLBACK_LOCK

/* Releases the mutex, and lets other threads run for a moment. */
KINLOCK_FALLBACK_INLINE int kinlock_mutex_unlock_fair(kinlock_mutex_t *mutex) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(release_capability(*mutex)) KINLOCK_ANALYSIS(no_thread_safety_analysis)
{
    kinlock_mutex_unlock(mutex);
    kinlock_fallback_pause(0);
    return 0;
}

/* ---- the condition variable ------------------------------------------------------------------ */

typedef struct {
    kinlock_fallback_cond kinlock_private;
} kinlock_cond_t;

KINLOCK_FALLBACK_INLINE int kinlock_cond_wait_until(kinlock_cond_t *cond, kinlock_mutex_t *mutex,
                                                    uint64_t deadline) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(requires_capability(*mutex))
{
    int result;
    kinlock_fallback_store(&mutex->kinlock_held, 0);
    result = kinlock_fallback_wait(&cond->kinlock_private, &mutex->kinlock_private, deadline);
    kinlock_fallback_store(&mutex->kinlock_held, 1);
    return result;
}

KINLOCK_FALLBACK_INLINE int kinlock_cond_wait_for(kinlock_cond_t *cond, kinlock_mutex_t *mutex,
                                                  uint64_t nanos) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(requires_capability(*mutex))
{
    return kinlock_cond_wait_until(cond, mutex, kinlock_fallback_after(nanos));
}

KINLOCK_FALLBACK_INLINE int kinlock_cond_wait(kinlock_cond_t *cond, kinlock_mutex_t *mutex)
    KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(requires_capability(*mutex))
{
    return kinlock_cond_wait_until(cond, mutex, KINLOCK_FOREVER);
}

KINLOCK_FALLBACK_INLINE int kinlock_cond_signal(kinlock_cond_t *cond) KINLOCK_NOEXCEPT
{
    kinlock_fallback_wake(&cond->kinlock_private);
    return 0;
}

KINLOCK_FALLBACK_INLINE int kinlock_cond_broadcast(kinlock_cond_t *cond) KINLOCK_NOEXCEPT
{
    kinlock_fallback_wake_all(&cond->kinlock_private);
    return 0;
}

/* ---- the reader-writer lock ------------------------------------------------------------------ */

/* The lock's state is protected by `mutex`, and each change wakes all waiters. `readers` does not
   count the upgradable reader. `admitted`: how many of the `readers_waiting` go before the next
   writer, because they waited when the last writer left. `upgrading`: the upgradable reader waits
   until the other readers have left. */
typedef struct KINLOCK_ANALYSIS(capability("mutex")) {
    uint32_t readers;
    uint32_t readers_waiting;
    uint32_t writers_waiting;
    uint32_t admitted;
    unsigned char writer;
    unsigned char upgradable;
    unsigned char upgrading;
    kinlock_fallback_mutex mutex;
    kinlock_fallback_cond changed;
} kinlock_rwlock_t;

enum {
    KINLOCK_FALLBACK_READ = 1,
    KINLOCK_FALLBACK_RECURSIVE,
    KINLOCK_FALLBACK_UPGRADABLE,
    KINLOCK_FALLBACK_WRITE,
    KINLOCK_FALLBACK_UPGRADE
};

/* Whether the lock can be taken in that way now. `waits`: the caller already waits for it. */
KINLOCK_FALLBACK_INLINE int kinlock_fallback_can(const kinlock_rwlock_t *lock, int way, int waits)
    KINLOCK_NOEXCEPT
{
    const int reading = lock->readers > 0 || lock->upgradable;
    const int no_writer_first =
        (lock->writers_waiting == 0 && !lock->upgrading) || (waits && lock->admitted > 0);
    switch (way) {
    case KINLOCK_FALLBACK_READ:
        return !lock->writer && no_writer_first;
    case KINLOCK_FALLBACK_RECURSIVE:
        return !lock->writer;
    case KINLOCK_FALLBACK_UPGRADABLE:
        return !lock->writer && !lock->upgradable && no_writer_first;
    case KINLOCK_FALLBACK_WRITE:
        return !lock->writer && !reading && lock->admitted == 0;
    default:
        return lock->readers == 0;
    }
}

/* Notes that a reader has stopped waiting. If it gave up, there must not be more admitted readers
   than waiting ones. */
KINLOCK_FALLBACK_INLINE void kinlock_fallback_waited(kinlock_rwlock_t *lock, int entered)
    KINLOCK_NOEXCEPT
{
    lock->readers_waiting--;
    if (lock->admitted > 0 && (entered || lock->admitted > lock->readers_waiting)) {
        lock->admitted--;
    }
}

/* Takes the lock in that way, or returns `refusal` when the time is up. */
KINLOCK_FALLBACK_INLINE int kinlock_fallback_enter(kinlock_rwlock_t *lock, int way,
                                                   uint64_t deadline, int refusal) KINLOCK_NOEXCEPT
{
    int result = 0;
    kinlock_fallback_lock(&lock->mutex);
    if (!kinlock_fallback_can(lock, way, 0)) {
        const int writes = way == KINLOCK_FALLBACK_WRITE;
        if (deadline == 0) {
            kinlock_fallback_unlock(&lock->mutex);
            return refusal;
        }
        if (way == KINLOCK_FALLBACK_UPGRADE) {
            lock->upgrading = 1;
        } else if (writes) {
            lock->writers_waiting++;
        } else {
            lock->readers_waiting++;
        }
        while (result == 0 && !kinlock_fallback_can(lock, way, 1)) {
            result = kinlock_fallback_wait(&lock->changed, &lock->mutex, deadline);
        }
        result = kinlock_fallback_can(lock, way, 1) ? 0 : refusal;
        if (way == KINLOCK_FALLBACK_UPGRADE) {
            lock->upgrading = 0;
        } else if (writes) {
            lock->writers_waiting--;
        } else {
            kinlock_fallback_waited(lock, result == 0);
        }
        if (result != 0) {
            /* Other threads may have waited because this one was to go first. */
            kinlock_fallback_wake_all(&lock->changed);
        }
    }
    if (result == 0) {
        if (way == KINLOCK_FALLBACK_WRITE) {
            lock->writer = 1;
        } else if (way == KINLOCK_FALLBACK_UPGRADE) {
            lock->upgradable = 0;
            lock->writer = 1;
        } else if (way == KINLOCK_FALLBACK_UPGRADABLE) {
            lock->upgradable = 1;
        } else {
            lock->readers++;
        }
    }
    kinlock_fallback_unlock(&lock->mutex);
    return result;
}

/* Changes from one way of holding the lock to another one, or releases it if `to` is 0. */
KINLOCK_FALLBACK_INLINE int kinlock_fallback_leave(kinlock_rwlock_t *lock, int from, int to)
    KINLOCK_NOEXCEPT
{
    kinlock_fallback_lock(&lock->mutex);
    if (from == KINLOCK_FALLBACK_WRITE) {
        lock->writer = 0;
        lock->admitted = lock->readers_waiting;
    } else if (from == KINLOCK_FALLBACK_UPGRADABLE) {
        lock->upgradable = 0;
    } else {
        lock->readers--;
    }
    if (to == KINLOCK_FALLBACK_READ) {
        lock->readers++;
    } else if (to == KINLOCK_FALLBACK_UPGRADABLE) {
        lock->upgradable = 1;
    }
    if (lock->readers_waiting > 0 || lock->writers_waiting > 0 || lock->upgrading) {
        kinlock_fallback_wake_all(&lock->changed);
    }
    kinlock_fallback_unlock(&lock->mutex);
    return 0;
}

/* Defines the four functions that take the lock in one way. */
#define KINLOCK_FALLBACK_ENTER(name, way, timed_name, acquire, try_acquire) \
    KINLOCK_FALLBACK_INLINE int kinlock_rwlock_##name(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT \
        KINLOCK_ANALYSIS(acquire(*lock)) KINLOCK_ANALYSIS(no_thread_safety_analysis) \
    { \
        return kinlock_fallback_enter(lock, way, KINLOCK_FOREVER, 0); \
    } \
\
    KINLOCK_MUST_CHECK KINLOCK_FALLBACK_INLINE int kinlock_rwlock_##timed_name##_until( \
        kinlock_rwlock_t *lock, uint64_t deadline) KINLOCK_NOEXCEPT \
        KINLOCK_ANALYSIS(try_acquire(0, *lock)) KINLOCK_ANALYSIS(no_thread_safety_analysis) \
    { \
        return kinlock_fallback_enter(lock, way, deadline, ETIMEDOUT); \
    } \
\
    KINLOCK_MUST_CHECK KINLOCK_FALLBACK_INLINE int kinlock_rwlock_##timed_name##_for( \
        kinlock_rwlock_t *lock, uint64_t nanos) KINLOCK_NOEXCEPT \
        KINLOCK_ANALYSIS(try_acquire(0, *lock)) KINLOCK_ANALYSIS(no_thread_safety_analysis) \
    { \
        return kinlock_fallback_enter(lock, way, kinlock_fallback_after(nanos), ETIMEDOUT); \
    }

#define KINLOCK_FALLBACK_TRY(name, way, try_acquire) \
    KINLOCK_MUST_CHECK KINLOCK_FALLBACK_INLINE int kinlock_rwlock_##name(kinlock_rwlock_t *lock) \
        KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(try_acquire(0, *lock)) \
            KINLOCK_ANALYSIS(no_thread_safety_analysis) \
    { \
        return kinlock_fallback_enter(lock, way, 0, EBUSY); \
    }

#define KINLOCK_FALLBACK_LEAVE(name, from, to, release) \
    KINLOCK_FALLBACK_INLINE int kinlock_rwlock_##name(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT \
        release KINLOCK_ANALYSIS(no_thread_safety_analysis) \
    { \
        return kinlock_fallback_leave(lock, from, to); \
    }

#define KINLOCK_FALLBACK_SHARED KINLOCK_ANALYSIS(release_shared_capability(*lock))
#define KINLOCK_FALLBACK_EXCLUSIVE KINLOCK_ANALYSIS(release_capability(*lock))

KINLOCK_FALLBACK_ENTER(read_lock, KINLOCK_FALLBACK_READ, read_lock, acquire_shared_capability,
                       try_acquire_shared_capability)
KINLOCK_FALLBACK_TRY(read_trylock, KINLOCK_FALLBACK_READ, try_acquire_shared_capability)
KINLOCK_FALLBACK_ENTER(read_lock_recursive, KINLOCK_FALLBACK_RECURSIVE, read_lock_recursive,
                       acquire_shared_capability, try_acquire_shared_capability)
KINLOCK_FALLBACK_TRY(read_trylock_recursive, KINLOCK_FALLBACK_RECURSIVE,
                     try_acquire_shared_capability)
KINLOCK_FALLBACK_LEAVE(read_unlock, KINLOCK_FALLBACK_READ, 0, KINLOCK_FALLBACK_SHARED)
KINLOCK_FALLBACK_LEAVE(read_unlock_fair, KINLOCK_FALLBACK_READ, 0, KINLOCK_FALLBACK_SHARED)

KINLOCK_FALLBACK_ENTER(write_lock, KINLOCK_FALLBACK_WRITE, write_lock, acquire_capability,
                       try_acquire_capability)
KINLOCK_FALLBACK_TRY(write_trylock, KINLOCK_FALLBACK_WRITE, try_acquire_capability)
KINLOCK_FALLBACK_LEAVE(write_unlock, KINLOCK_FALLBACK_WRITE, 0, KINLOCK_FALLBACK_EXCLUSIVE)
KINLOCK_FALLBACK_LEAVE(write_unlock_fair, KINLOCK_FALLBACK_WRITE, 0, KINLOCK_FALLBACK_EXCLUSIVE)
KINLOCK_FALLBACK_LEAVE(downgrade, KINLOCK_FALLBACK_WRITE, KINLOCK_FALLBACK_READ, )
KINLOCK_FALLBACK_LEAVE(downgrade_to_upgradable, KINLOCK_FALLBACK_WRITE,
                       KINLOCK_FALLBACK_UPGRADABLE, )

KINLOCK_FALLBACK_ENTER(upgradable_lock, KINLOCK_FALLBACK_UPGRADABLE, upgradable_lock,
                       acquire_shared_capability, try_acquire_shared_capability)
KINLOCK_FALLBACK_TRY(upgradable_trylock, KINLOCK_FALLBACK_UPGRADABLE,
                     try_acquire_shared_capability)
KINLOCK_FALLBACK_LEAVE(upgradable_unlock, KINLOCK_FALLBACK_UPGRADABLE, 0, KINLOCK_FALLBACK_SHARED)
KINLOCK_FALLBACK_LEAVE(upgradable_unlock_fair, KINLOCK_FALLBACK_UPGRADABLE, 0,
                       KINLOCK_FALLBACK_SHARED)
KINLOCK_FALLBACK_LEAVE(upgradable_downgrade, KINLOCK_FALLBACK_UPGRADABLE,
                       KINLOCK_FALLBACK_READ, )

#undef KINLOCK_FALLBACK_ENTER
#undef KINLOCK_FALLBACK_TRY
#undef KINLOCK_FALLBACK_LEAVE
#undef KINLOCK_FALLBACK_SHARED
#undef KINLOCK_FALLBACK_EXCLUSIVE

KINLOCK_FALLBACK_INLINE int kinlock_rwlock_upgrade(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
{
    return kinlock_fallback_enter(lock, KINLOCK_FALLBACK_UPGRADE, KINLOCK_FOREVER, 0);
}

KINLOCK_MUST_CHECK KINLOCK_FALLBACK_INLINE int
kinlock_rwlock_tryupgrade(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
{
    return kinlock_fallback_enter(lock, KINLOCK_FALLBACK_UPGRADE, 0, EBUSY);
}

KINLOCK_MUST_CHECK KINLOCK_FALLBACK_INLINE int
kinlock_rwlock_upgrade_until(kinlock_rwlock_t *lock, uint64_t deadline) KINLOCK_NOEXCEPT
{
    return kinlock_fallback_enter(lock, KINLOCK_FALLBACK_UPGRADE, deadline, ETIMEDOUT);
}

KINLOCK_MUST_CHECK KINLOCK_FALLBACK_INLINE int
kinlock_rwlock_upgrade_for(kinlock_rwlock_t *lock, uint64_t nanos) KINLOCK_NOEXCEPT
{
    return kinlock_rwlock_upgrade_until(lock, kinlock_fallback_after(nanos));
}

KINLOCK_FALLBACK_INLINE int kinlock_rwlock_is_locked(const kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
{
    /* The lock is const, but its inner mutex has to change. */
    kinlock_fallback_mutex *mutex = (kinlock_fallback_mutex *)(uintptr_t)&lock->mutex;
    int result;
    kinlock_fallback_lock(mutex);
    result = lock->writer || lock->upgradable || lock->readers > 0;
    kinlock_fallback_unlock(mutex);
    return result;
}

KINLOCK_FALLBACK_INLINE void kinlock_rwlock_reset_in_child(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
{
    memset(lock, 0, sizeof(*lock));
}

/* ---- once ------------------------------------------------------------------------------------ */

/* `state`: 0 before, 1 while the function runs, 2 afterwards. */
typedef struct {
    kinlock_fallback_word state;
    kinlock_fallback_mutex mutex;
    kinlock_fallback_cond changed;
} kinlock_once_t;

KINLOCK_FALLBACK_INLINE int kinlock_once_is_done(const kinlock_once_t *once) KINLOCK_NOEXCEPT
{
    return kinlock_fallback_load(&once->state) == 2;
}

KINLOCK_FALLBACK_INLINE int kinlock_once(kinlock_once_t *once, void (*function)(void *),
                                         void *argument)
{
    if (kinlock_once_is_done(once)) {
        return 0;
    }
    kinlock_fallback_lock(&once->mutex);
    if (kinlock_fallback_load(&once->state) == 0) {
        kinlock_fallback_store(&once->state, 1);
        kinlock_fallback_unlock(&once->mutex);
        function(argument);
        kinlock_fallback_lock(&once->mutex);
        kinlock_fallback_store(&once->state, 2);
        kinlock_fallback_wake_all(&once->changed);
    }
    while (!kinlock_once_is_done(once)) {
        kinlock_fallback_wait(&once->changed, &once->mutex, KINLOCK_FOREVER);
    }
    kinlock_fallback_unlock(&once->mutex);
    return 0;
}

#endif
