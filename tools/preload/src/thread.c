/* The thread-locals of this library. They are C because only here the compiler can be told to
   use the initial-exec model: each access is one instruction, and nothing is looked up.
   thread.rs says what each is for. */

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

/* How many read locks this thread holds. */
unsigned *kinlock_read_locks(void)
{
    static __thread unsigned held __attribute__((tls_model("initial-exec")));
    return &held;
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

#ifdef __x86_64__
/* The beginning of this library's thread-locals in each thread. */
__attribute__((visibility("hidden"))) __thread char kinlock_anchor
    __attribute__((tls_model("initial-exec")));

/* Finds the thread-locals of Rust, whose compiler cannot be told to access them by one instruction.
   The C library's function of this name may allocate, which must not happen where a thread locks
   (decision 0102).

   Since other thread-locals of this library use the initial-exec model, the loader lays all of
   them out when the program starts. So they have the same distance from each other in each
   thread. */
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
