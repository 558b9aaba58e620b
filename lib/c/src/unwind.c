/* The unwinder's functions that Rust's standard library refers to. A panic ends the process; it
   needs an unwinder only to print its callers after its message. With these definitions it prints
   no callers, and a program that uses this library does not need libgcc_s.

   They are local to the library; C++ exceptions and thread cancellation use another unwinder. If
   that one comes to a frame of this library, it calls Rust's personality function, which calls the
   functions here, and finds that there is nothing to clean up. */

#include <stddef.h>
#include <stdlib.h>

#pragma GCC visibility push(hidden)

#define ENDS(name) \
    void name(void); \
    void name(void) { abort(); }
#define NOTHING(name) \
    size_t name(void *context); \
    size_t name(void *context) { return (void)context, (size_t)0; }

ENDS(_Unwind_RaiseException)
ENDS(_Unwind_Resume)
ENDS(_Unwind_SetGR)
ENDS(_Unwind_SetIP)
ENDS(_Unwind_DeleteException)
NOTHING(_Unwind_GetIP)
NOTHING(_Unwind_GetRegionStart)
NOTHING(_Unwind_GetLanguageSpecificData)
NOTHING(_Unwind_GetDataRelBase)
NOTHING(_Unwind_GetTextRelBase)
NOTHING(_Unwind_GetCFA)

size_t _Unwind_GetIPInfo(void *context, int *is_before);
size_t _Unwind_GetIPInfo(void *context, int *is_before)
{
    (void)context;
    *is_before = 0;
    return 0;
}

int _Unwind_Backtrace(void *each, void *argument);
int _Unwind_Backtrace(void *each, void *argument)
{
    enum { END_OF_STACK = 5 };
    (void)each, (void)argument;
    return END_OF_STACK;
}

#pragma GCC visibility pop
