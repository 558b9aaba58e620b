/* What this library asks of the kernel, without the C library's functions of these names.

   Another preloaded library may define these functions, and take locks in its definitions. These
   locks would be ours, and the call would re-enter this library. So all references within this
   library are bound to the hidden definitions here. They make the system call, and set errno as the
   C library's functions do. None of them is a cancellation point. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(hidden)

#if defined(__x86_64__)

static long ask(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#else

static long ask(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}

#endif

static long answer(long result)
{
    if ((unsigned long)result > -4096UL) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

#define CALL(number, a, b, c, d, e, f) \
    answer(ask(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)))

long syscall(long number, ...)
{
    va_list rest;
    long with[6];
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        with[i] = va_arg(rest, long);
    va_end(rest);
    return CALL(number, with[0], with[1], with[2], with[3], with[4], with[5]);
}

/* The C library's clock_gettime, which reads the clock without a system call. libc/real.rs finds
   it, in the C library itself: a library that pretends another time converts the time limits of
   the functions that it wraps before it calls ours. */
int (*kinlock_clock)(clockid_t, struct timespec *);
/* Likewise. */
int (*kinlock_cpu)(void);

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int (*read)(clockid_t, struct timespec *) = __atomic_load_n(&kinlock_clock, __ATOMIC_RELAXED);
    return read ? read(clock, now) : (int)CALL(SYS_clock_gettime, clock, now, 0, 0, 0, 0);
}

int sched_getcpu(void)
{
    int (*read)(void) = __atomic_load_n(&kinlock_cpu, __ATOMIC_RELAXED);
    unsigned cpu;
    if (read)
        return read();
    return CALL(SYS_getcpu, &cpu, 0, 0, 0, 0, 0) < 0 ? -1 : (int)cpu;
}

pid_t getpid(void)
{
    return (pid_t)CALL(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    return (int)CALL(SYS_openat, AT_FDCWD, path, flags, mode, 0, 0);
}

int open(const char *path, int flags, ...) __attribute__((alias("open64")));

int close(int file)
{
    return (int)CALL(SYS_close, file, 0, 0, 0, 0, 0);
}

ssize_t read(int file, void *to, size_t length)
{
    return CALL(SYS_read, file, to, length, 0, 0, 0);
}

ssize_t write(int file, const void *from, size_t length)
{
    return CALL(SYS_write, file, from, length, 0, 0, 0);
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    return CALL(SYS_writev, file, parts, count, 0, 0, 0);
}

ssize_t readlink(const char *path, char *to, size_t room)
{
    return CALL(SYS_readlinkat, AT_FDCWD, path, to, room, 0, 0);
}

off64_t lseek64(int file, off64_t to, int whence)
{
    return CALL(SYS_lseek, file, to, whence, 0, 0, 0);
}

void *mmap64(void *at, size_t length, int protection, int flags, int file, off64_t from)
{
    return (void *)CALL(SYS_mmap, at, length, protection, flags, file, from);
}

void *mmap(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap64")));

int munmap(void *at, size_t length)
{
    return (int)CALL(SYS_munmap, at, length, 0, 0, 0, 0);
}

int sched_yield(void)
{
    return (int)CALL(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
}

int sigprocmask(int how, const sigset_t *set, sigset_t *before)
{
    /* The kernel's set has 64 bits; the C library's has room for more. */
    if (before)
        *before = (sigset_t){{0}};
    return (int)CALL(SYS_rt_sigprocmask, how, set, before, 8, 0, 0);
}

#pragma GCC visibility pop
