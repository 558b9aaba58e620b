/* What has to be C: frames that a cancelled thread unwinds, and a thread-local of which every access is one
   instruction.

   A thread is cancelled by an exception that the C library throws, here from a signal handler. In Rust only frames
   without destructors may be passed by it. So the frame with something to clean up is one of C. It is compiled without
   exceptions: then it is the C library that cleans it up, and no function of libgcc_s is needed. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Null before glibc 2.34 in a process without libpthread, which nothing can cancel. */
#pragma weak pthread_testcancel
#pragma weak __pthread_register_cancel
#pragma weak __pthread_unregister_cancel
#pragma weak __pthread_unwind_next

int kinlock_wait(void *wait);
void kinlock_wait_cancelled(void *wait);
unsigned kinlock_new_token(void);

static void wait_cancelled(void *wait)
{
    int type;
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    kinlock_wait_cancelled(wait);
}

/* Waits for a condition variable. If the thread is cancelled meanwhile, ends the wait and takes the mutex. A thread
   that can be cancelled at any instruction can be cancelled here only while it sleeps, as any other. */
int kinlock_wait_frame(void *wait)
{
    int result, type;
    if (__pthread_register_cancel == NULL || pthread_testcancel == NULL)
        return kinlock_wait(wait);
    /* Now if it has been cancelled already: the mutex is held. */
    pthread_testcancel();
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    pthread_cleanup_push(wait_cancelled, wait);
    result = kinlock_wait(wait);
    pthread_cleanup_pop(0);
    if (__builtin_expect(type != PTHREAD_CANCEL_DEFERRED, 0))
        pthread_setcanceltype(type, &type);
    return result;
}

/* Whether this thread can be cancelled at any instruction. If so, from now on it can be cancelled at cancellation
   points only. */
int kinlock_defer(void)
{
    int type, state;
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    if (__builtin_expect(type == PTHREAD_CANCEL_DEFERRED, 1))
        return 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (state == PTHREAD_CANCEL_ENABLE) {
        pthread_setcancelstate(state, &state);
        return 1;
    }
    /* It cannot be cancelled at all. */
    pthread_setcanceltype(type, &type);
    return 0;
}

/* Undoes that. If a cancellation is due, calls `undo` first. */
void kinlock_undefer(void (*undo)(void *), void *lock)
{
    int type;
    pthread_cleanup_push(undo, lock);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    pthread_cleanup_pop(0);
}

/* Sleeps. The thread can be cancelled meanwhile. */
__attribute__((noinline)) void kinlock_timed_sleep(long nanoseconds)
{
    struct timespec duration = {0, nanoseconds};
    int type, kept = errno;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &duration, (void *)0);
    pthread_setcanceltype(type, &type);
    errno = kept;
}

/* A system call during which the thread can be cancelled. Returns a negative errno if it fails.

   Not inlined: a frame is cleaned up where it is left by a call. This one is left at any instruction. */
__attribute__((noinline)) long kinlock_cancellable_futex(const unsigned *key, int operation, unsigned expected,
                                                         const struct timespec *until, unsigned sets)
{
    int type = PTHREAD_CANCEL_DEFERRED, kept = errno;
    long result;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    result = syscall(SYS_futex, key, operation, expected, until, (void *)0, sets);
    if (result < 0)
        result = -errno;
    pthread_setcanceltype(type, &type);
    errno = kept;
    return result;
}

/* A number that no other thread of this process has had. A thread that forks keeps it in the child. */
unsigned kinlock_token(void)
{
    static __thread unsigned token __attribute__((tls_model("initial-exec")));
    if (__builtin_expect(token == 0, 0))
        token = kinlock_new_token();
    return token;
}

/* How many read locks this thread holds. */
unsigned *kinlock_read_locks(void)
{
    static __thread unsigned held __attribute__((tls_model("initial-exec")));
    return &held;
}

/* What of this thread's stack the report knows to be readable: from the first to the second address. */
unsigned long long *kinlock_known_stack(void)
{
    static __thread unsigned long long known[2] __attribute__((tls_model("initial-exec")));
    return known;
}

/* Where this thread keeps the address of what the report counts for it. */
unsigned long *kinlock_tallies(void)
{
    static __thread unsigned long tallies __attribute__((tls_model("initial-exec")));
    return &tallies;
}

#ifdef __x86_64__
/* Where the thread's copies of this library's thread-locals begin. */
__attribute__((visibility("hidden"))) __thread char kinlock_anchor __attribute__((tls_model("initial-exec")));

/* Finds the thread-locals that are not accessed by one instruction: those of Rust, of which the compiler cannot be
   told to. The C library's function of this name may allocate, which must not happen where a thread locks.

   As other thread-locals of this library are accessed by one instruction, all of them lie in the part of a thread's
   memory that is laid out when the program starts: at the same distance from each other in each thread. */
struct variable {
    unsigned long module, offset;
};

__attribute__((visibility("hidden"))) void *__tls_get_addr(const struct variable *variable)
{
    unsigned long offset = 0;
    __asm__("leaq kinlock_anchor@dtpoff(%0), %0" : "+r"(offset));
    return &kinlock_anchor - offset + variable->offset;
}
#endif

/* The thread's number for the kernel, or 0 if it has not been asked for. */
__thread unsigned kinlock_id __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* This process is the child of a fork: its thread has another number. */
void kinlock_child(void)
{
    kinlock_id = 0;
}

/* ... and its report has none of its parent's. */
void kinlock_forked(void)
{
    kinlock_child();
    *kinlock_tallies() = 0;
}

/* The thread's number for the kernel. */
unsigned kinlock_thread_id(void)
{
    if (__builtin_expect(kinlock_id == 0, 0))
        kinlock_id = (unsigned)syscall(SYS_gettid);
    return kinlock_id;
}

/* Samples of what the C library's functions write into objects. Minus 1: the process lacks these functions, as one
   without threads may with an older C library. */

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

int kinlock_real_cond_init(void *object, const void *attributes);
int kinlock_real_mutex_init(void *object, const void *attributes);
int kinlock_real_rwlock_init(void *object, const void *attributes);

int kinlock_sample_condvar(void *object, int shared, int monotonic)
{
    pthread_condattr_t attributes;
    if (!pthread_condattr_init || !pthread_condattr_setpshared || !pthread_condattr_setclock)
        return -1;
    pthread_condattr_init(&attributes);
    pthread_condattr_setpshared(&attributes, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
    pthread_condattr_setclock(&attributes, monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME);
    return kinlock_real_cond_init(object, &attributes);
}

int kinlock_sample_mutex(void *object, int kind, int shared, int robust)
{
    pthread_mutexattr_t attributes;
    if (!pthread_mutexattr_init || !pthread_mutexattr_settype || !pthread_mutexattr_setpshared ||
        !pthread_mutexattr_setrobust)
        return -1;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, kind);
    pthread_mutexattr_setpshared(&attributes, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
    pthread_mutexattr_setrobust(&attributes, robust ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED);
    return kinlock_real_mutex_init(object, &attributes);
}

int kinlock_sample_rwlock(void *object, int shared, int preference)
{
    pthread_rwlockattr_t attributes;
    if (!pthread_rwlockattr_init || !pthread_rwlockattr_setpshared || !pthread_rwlockattr_setkind_np)
        return -1;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setpshared(&attributes, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
    pthread_rwlockattr_setkind_np(&attributes, preference);
    return kinlock_real_rwlock_init(object, &attributes);
}
