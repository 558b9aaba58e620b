/* The thread-locals of the recorder, for a shared library that must not allocate where a thread
   locks. They are C because only here the compiler can be told to use the initial-exec model: each
   access is one instruction, and nothing is looked up. thread.rs says what each is for. */

#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

unsigned kinlock_new_token(void);

/* A number that no other thread of this process has had. A thread that forks keeps it in the
   child. */
unsigned kinlock_token(void)
{
    static __thread unsigned token __attribute__((tls_model("initial-exec")));
    if (__builtin_expect(token == 0, 0))
        token = kinlock_new_token();
    return token;
}

/* The part of this thread's stack that the report knows to be readable: from the first address
   to before the second. */
unsigned long long *kinlock_known_stack(void)
{
    static __thread unsigned long long known[2] __attribute__((tls_model("initial-exec")));
    return known;
}

/* Where the report keeps the address of this thread's tallies. */
unsigned long *kinlock_tallies(void)
{
    static __thread unsigned long tallies __attribute__((tls_model("initial-exec")));
    return &tallies;
}

/* The stack pointer where this thread entered the recorder. */
unsigned long long *kinlock_entered(void)
{
    static __thread unsigned long long entered __attribute__((tls_model("initial-exec")));
    return &entered;
}

/* The kernel's number of this thread, or 0 if it has not been asked for. */
__thread unsigned kinlock_id __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* In the child of a fork: its thread has another number than the parent's. */
void kinlock_child(void)
{
    kinlock_id = 0;
}

/* Likewise, for a process with a report: the thread has no tallies in the child's table. */
void kinlock_forked(void)
{
    kinlock_child();
    *kinlock_tallies() = 0;
}

/* The kernel's number of this thread. */
unsigned kinlock_thread_id(void)
{
    if (__builtin_expect(kinlock_id == 0, 0))
        kinlock_id = (unsigned)syscall(SYS_gettid);
    return kinlock_id;
}
