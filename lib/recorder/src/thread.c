/* The thread-locals of the recorder, for a shared library that must not allocate when a thread
   takes a lock. They are in C because only there can the compiler be told to use the initial-exec
   model: each access is one instruction, and nothing is looked up. thread.rs says what each is
   for. */

/* A number that no other thread of this process has had; 0: the thread has not asked. */
unsigned *kinlock_token(void)
{
    static __thread unsigned token __attribute__((tls_model("initial-exec")));
    return &token;
}

/* Where the report keeps the address of this thread's tallies. */
__attribute__((visibility("hidden"))) __thread unsigned long kinlock_kept
    __attribute__((tls_model("initial-exec")));

unsigned long *kinlock_tallies(void)
{
    return &kinlock_kept;
}

/* The stack pointer where this thread entered the recorder. */
unsigned long long *kinlock_entered(void)
{
    static __thread unsigned long long entered __attribute__((tls_model("initial-exec")));
    return &entered;
}

/* The kernel's number of this thread; 0: it was not asked for. */
unsigned *kinlock_number(void)
{
    static __thread unsigned number __attribute__((tls_model("initial-exec")));
    return &number;
}
