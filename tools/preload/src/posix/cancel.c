/* Cancellation of threads that wait.

   The C library cancels a thread by an exception, which is thrown here from a signal handler. It
   may only unwind frames of Rust in which nothing has a destructor. So the frame that has
   something to clean up is one of C. It is compiled without exceptions: then the C library
   itself calls the cleanup, and no function of libgcc_s is needed. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Null in a process without libpthread, before glibc 2.34. Nothing can cancel a thread there. */
#pragma weak pthread_testcancel
#pragma weak __pthread_register_cancel
#pragma weak __pthread_unregister_cancel
#pragma weak __pthread_unwind_next

struct waiting {
    void (*left)(void *with);
    void *with;
};

static void leave(void *data)
{
    const struct waiting *waiting = data;
    int type;
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    waiting->left(waiting->with);
}

/* Makes a call in which the thread can be cancelled. If it is, calls `left`, which ends the wait
   and, for a condition variable, takes the mutex. During the call even a thread that could be
   cancelled at any instruction is cancelled only while it sleeps. */
int kinlock_cancellable_call(int (*call)(void *), void *with, void (*left)(void *))
{
    struct waiting waiting = {left, with};
    int result, type = PTHREAD_CANCEL_DEFERRED;
    if (__pthread_register_cancel == NULL || pthread_testcancel == NULL)
        return call(with);
    /* If a cancellation is due already, it happens here: the wait has not begun, and a mutex is
       still held. */
    pthread_testcancel();
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    pthread_cleanup_push(leave, &waiting);
    result = call(with);
    pthread_cleanup_pop(0);
    if (__builtin_expect(type != PTHREAD_CANCEL_DEFERRED, 0))
        pthread_setcanceltype(type, &type);
    return result;
}

/* Whether this thread can be cancelled at any instruction. If so, from now on it can be
   cancelled at cancellation points only. */
int kinlock_defer(void)
{
    int type = PTHREAD_CANCEL_DEFERRED, state;
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    if (__builtin_expect(type == PTHREAD_CANCEL_DEFERRED, 1))
        return 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (state == PTHREAD_CANCEL_ENABLE) {
        pthread_setcancelstate(state, &state);
        return 1;
    }
    /* Cancellation is disabled, so that the type does not matter. */
    pthread_setcanceltype(type, &type);
    return 0;
}

/* Undoes kinlock_defer. If a cancellation is due, calls `undo` first. */
void kinlock_undefer(void (*undo)(void *), void *lock)
{
    int type;
    pthread_cleanup_push(undo, lock);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    pthread_cleanup_pop(0);
}

/* Sleeps. The thread can be cancelled in its sleep. */
__attribute__((noinline)) void kinlock_timed_sleep(long nanoseconds)
{
    struct timespec duration = {0, nanoseconds};
    int type = PTHREAD_CANCEL_DEFERRED, kept = errno;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &duration, (void *)0);
    pthread_setcanceltype(type, &type);
    errno = kept;
}

/* A futex call in which the thread can be cancelled. Returns a negative errno if it fails.

   Not inlined: the unwinder finds the cleanup of a frame by the call at which control left it,
   and control may leave this one at any instruction. */
__attribute__((noinline)) long kinlock_cancellable_futex(
    const unsigned *key, int operation, unsigned expected, const struct timespec *until,
    unsigned sets)
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
