/* What not every C library has in libc.so.6, or what this library does without. All of it is hidden: the program's
   own calls, and those of other libraries, go to the C library.

   Before glibc 2.34 functions for threads were in libpthread, and those for the loader in libdl. A process that has
   not loaded these has no threads, and runs without what they do. */

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>

#pragma GCC visibility push(hidden)

/* Threads. By their other names, so that they can be told from those that are defined here. */

typedef unsigned key;
#pragma GCC visibility push(default)
int __pthread_key_create(key *, void (*)(void *)) __attribute__((weak));
int __pthread_setspecific(key, const void *) __attribute__((weak));
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
#pragma GCC visibility pop

int pthread_key_create(key *made, void (*destructor)(void *))
{
    return __pthread_key_create ? __pthread_key_create(made, destructor) : EAGAIN;
}

/* Only of a key that is too high to be used, and no thread has a value for it. */
int pthread_key_delete(key unused)
{
    (void)unused;
    return 0;
}

int pthread_setspecific(key of, const void *value)
{
    return __pthread_setspecific ? __pthread_setspecific(of, value) : EINVAL;
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    return sigprocmask(how, set, before) == 0 ? 0 : errno;
}

/* Where the C library's static part has it, the linker does not look. */
extern void *__dso_handle;
int pthread_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
    return __register_atfork(before, in_parent, in_child, &__dso_handle);
}

/* The loader. Nobody unloads what is preloaded: the library need not find itself to keep itself loaded. */

int dladdr(const void *address, void *found)
{
    (void)address, (void)found;
    return 0;
}

void *dlopen(const char *name, int flags)
{
    (void)name, (void)flags;
    return NULL;
}

/* Files, of which a panic would ask, to name callers. */

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

/* The unwinder. A panic ends the process, as its message has been written. A thread that is cancelled is unwound by
   the C library's own unwinder, which asks Rust's frames what they have to clean up: nothing. */

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
