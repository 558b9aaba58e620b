/* What has to be C: frames that a cancelled thread unwinds, and a thread-local of which every access is one
   instruction.

   A thread is cancelled by an exception that the C library throws, here from a signal handler. In Rust only frames
   without destructors may be passed by it. So the frame with something to clean up is one of C. It is compiled without
   exceptions: then it is the C library that cleans it up, and no function of libgcc_s is needed. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Null before glibc 2.34 in a process without libpthread, which nothing can cancel. */
#pragma weak pthread_testcancel
#pragma weak __pthread_register_cancel
#pragma weak __pthread_unregister_cancel
#pragma weak __pthread_unwind_next

int kinlock_wait(void *wait);
void kinlock_wait_cancelled(void *wait);
unsigned kinlock_new_token(void);

/* Waits for a condition variable. If the thread is cancelled meanwhile, ends the wait and takes the mutex. */
int kinlock_wait_frame(void *wait)
{
    int result;
    if (__pthread_register_cancel == NULL || pthread_testcancel == NULL)
        return kinlock_wait(wait);
    /* Now if it has been cancelled already: the mutex is held. */
    pthread_testcancel();
    pthread_cleanup_push(kinlock_wait_cancelled, wait);
    result = kinlock_wait(wait);
    pthread_cleanup_pop(0);
    return result;
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

static unsigned forks;

/* This process is the child of a fork: its report has none of its parent's. */
void kinlock_forked(void)
{
    forks++;
    *kinlock_tallies() = 0;
}

/* The thread's number for the kernel. */
unsigned kinlock_thread_id(void)
{
    static __thread unsigned id, seen __attribute__((tls_model("initial-exec")));
    if (__builtin_expect(id == 0 || seen != forks, 0)) {
        id = (unsigned)syscall(SYS_gettid);
        seen = forks;
    }
    return id;
}
