/* The thread-locals of this library. They are C because only here the compiler can be told to
   use the initial-exec model: each access is one instruction, and nothing is looked up.
   thread.rs says what each is for. The recorder has more of them. */

/* How many read locks this thread holds. */
unsigned *kinlock_read_locks(void)
{
    static __thread unsigned held __attribute__((tls_model("initial-exec")));
    return &held;
}

/* Whether this thread is choosing the mode of the process. */
unsigned *kinlock_choosing(void)
{
    static __thread unsigned choosing __attribute__((tls_model("initial-exec")));
    return &choosing;
}

#ifdef __x86_64__
/* The beginning of this library's thread-locals in each thread. */
__attribute__((visibility("hidden"))) __thread char kinlock_anchor
    __attribute__((tls_model("initial-exec")));

/* Finds the thread-locals of Rust, whose compiler cannot be told to access them by one instruction.
   The C library's function of this name may allocate, which must not happen where a thread locks.

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
