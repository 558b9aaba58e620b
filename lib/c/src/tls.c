/* How the shared library finds its thread-locals without the C library's `__tls_get_addr`. That
   function allocates memory when a thread first uses a library that was loaded after the thread
   began. Then a lock would call malloc, and an allocator that uses this library would call itself.

   Because of a thread-local of the initial-exec model, the loader places all thread-locals of the
   library at a distance from the thread pointer that is the same in all threads. So the address of
   one thread-local gives the addresses of the others. The static library does not have this file:
   in a program the linker turns the accesses into instructions without a call. */

#ifdef __x86_64__

__attribute__((visibility("hidden"))) __thread char kinlock_anchor
    __attribute__((tls_model("initial-exec")));

struct variable {
    unsigned long module, offset;
};

__attribute__((visibility("hidden"))) void *__tls_get_addr(const struct variable *variable);
void *__tls_get_addr(const struct variable *variable)
{
    unsigned long anchor = 0;
    __asm__("leaq kinlock_anchor@dtpoff(%0), %0" : "+r"(anchor));
    return &kinlock_anchor - anchor + variable->offset;
}

#endif
