/* Functions that Rust's standard library refers to, and that not every C library has in libc.so.6.
   All of them are hidden: calls by the program and by other libraries go to the C library.

   Before glibc 2.34 the functions for threads were in libpthread, and those for the loader in
   libdl. A process that has not loaded these libraries has no threads and needs neither. */

#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>

#pragma GCC visibility push(hidden)

/* Threads. The C library also has these functions under a second name, by which the definitions
   here call them. */

typedef unsigned key;
#pragma GCC visibility push(default)
int __pthread_key_create(key *, void (*)(void *)) __attribute__((weak));
int __pthread_setspecific(key, const void *) __attribute__((weak));
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
#pragma GCC visibility pop

/* The last step of the functions in dispatch/keys.rs. */
int kinlock_key_create(key *made, void (*destructor)(void *))
{
    return __pthread_key_create ? __pthread_key_create(made, destructor) : EAGAIN;
}

/* The C library's function, which has no second name. libc/real.rs finds it, before any key is
   created. */
int (*kinlock_key_delete)(key);

int pthread_key_delete(key unused)
{
    return kinlock_key_delete ? kinlock_key_delete(unused) : EINVAL;
}

int pthread_setspecific(key of, const void *value)
{
    return __pthread_setspecific ? __pthread_setspecific(of, value) : EINVAL;
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    return sigprocmask(how, set, before) == 0 ? 0 : errno;
}

/* The C library has this function in a static part, in which the linker does not look. */
extern void *__dso_handle;
int pthread_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
    return __register_atfork(before, in_parent, in_child, &__dso_handle);
}

/* The loader. `kinlock-linux` asks which object it is in, and keeps that object loaded, since
   threads that end call into it. If it cannot find out, it has no tables, and no thread queues. */

struct search {
    ElfW(Addr) address;
    Dl_info *found;
};

static int visit(struct dl_phdr_info *object, size_t size, void *data)
{
    struct search *search = data;
    ElfW(Addr) lowest = (ElfW(Addr)) - 1;
    int is_there = 0;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        ElfW(Addr) begin = object->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD)
            continue;
        lowest = begin < lowest ? begin : lowest;
        is_there |= search->address >= begin && search->address - begin < part->p_memsz;
    }
    if (is_there) {
        search->found->dli_fname = object->dlpi_name;
        search->found->dli_fbase = (void *)lowest;
        search->found->dli_sname = NULL;
        search->found->dli_saddr = NULL;
    }
    return is_there;
}

int dladdr(const void *address, Dl_info *found)
{
    struct search search = {(ElfW(Addr))address, found};
    return dl_iterate_phdr(visit, &search);
}

/* It is only called to keep this library loaded, which the linker's flag `nodelete` does. */
void *dlopen(const char *name, int flags)
{
    static char this_library;
    (void)name;
    return flags & RTLD_NOLOAD ? &this_library : NULL;
}

/* Files. A panic would look at them to name its callers. */

int fstat64(int file, void *found)
{
    (void)file, (void)found;
    errno = ENOSYS;
    return -1;
}

int stat64(const char *path, void *found)
{
    (void)path, (void)found;
    errno = ENOSYS;
    return -1;
}

/* The unwinder. A panic ends the process: its message has been written by then. A cancelled thread
   is unwound by the C library's own unwinder, which asks each frame of Rust what it has to clean
   up. The answer is always nothing. */

#define ENDS(name) \
    void name(void) { abort(); }
#define NULL_OF(name) \
    size_t name(void *context) { return (void)context, 0; }

ENDS(_Unwind_RaiseException)
ENDS(_Unwind_Resume)
ENDS(_Unwind_SetGR)
ENDS(_Unwind_SetIP)
ENDS(_Unwind_DeleteException)
NULL_OF(_Unwind_GetIP)
NULL_OF(_Unwind_GetRegionStart)
NULL_OF(_Unwind_GetLanguageSpecificData)
NULL_OF(_Unwind_GetDataRelBase)
NULL_OF(_Unwind_GetTextRelBase)
NULL_OF(_Unwind_GetCFA)

size_t _Unwind_GetIPInfo(void *context, int *is_before)
{
    (void)context;
    *is_before = 0;
    return 0;
}

int _Unwind_Backtrace(void *each, void *with)
{
    enum { END_OF_STACK = 5 };
    (void)each, (void)with;
    return END_OF_STACK;
}

#pragma GCC visibility pop
