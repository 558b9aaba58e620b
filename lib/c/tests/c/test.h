/* What the tests share. The tests compile as C99 and as C++11. */

#ifndef TEST_H
#define TEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifndef _WIN32
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

/* -DFALLBACK: tests kinlock_fallback.h in place of the library. */
#ifdef FALLBACK
#include <kinlock_fallback.h>
#else
#include <kinlock.h>
#endif

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

#define MS UINT64_C(1000000)

/* Accesses to variables that threads share without a lock. */
#define LOAD(variable) __atomic_load_n(&(variable), __ATOMIC_SEQ_CST)
#define STORE(variable, value) __atomic_store_n(&(variable), value, __ATOMIC_SEQ_CST)
#define ADD(variable, value) __atomic_add_fetch(&(variable), value, __ATOMIC_SEQ_CST)

#define MOST_THREADS 64

__attribute__((unused)) static void sleep_ms(unsigned ms)
{
#ifdef _WIN32
    Sleep(ms);
#else
    struct timespec time;
    time.tv_sec = ms / 1000;
    time.tv_nsec = (long)(ms % 1000) * 1000000;
    while (nanosleep(&time, &time) != 0) {
    }
#endif
}

/* Waits for the end of a thread. With -DPOLL_ENDS it polls, for kernels that refuse what the C
   library's pthread_join needs. */
__attribute__((unused)) static void join(pthread_t thread)
{
#ifdef POLL_ENDS
    int result;
    while ((result = pthread_tryjoin_np(thread, NULL)) == EBUSY) {
        usleep(100);
    }
    CHECK(result == 0);
#else
    CHECK(pthread_join(thread, NULL) == 0);
#endif
}

/* Runs function(argument) in `count` threads, and waits for them. */
__attribute__((unused)) static void run_threads(unsigned count, void *(*function)(void *),
                                                void *argument)
{
    pthread_t threads[MOST_THREADS];
    unsigned i;
    CHECK(count <= MOST_THREADS);
    for (i = 0; i < count; i++) {
        CHECK(pthread_create(&threads[i], NULL, function, argument) == 0);
    }
    for (i = 0; i < count; i++) {
        join(threads[i]);
    }
}

__attribute__((unused)) static pthread_t start(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, argument) == 0);
    return thread;
}

#ifndef _WIN32
/* From glibc 2.35 on; 0 if glibc has not registered an area for restartable sequences. */
#ifdef __cplusplus
extern "C" {
#endif
extern const unsigned __rseq_size __attribute__((weak));
#ifdef __cplusplus
}
#endif

/* Whether this machine has all that domains with restartable sequences need. If not, prints so, and
   the test goes on without them. */
__attribute__((unused)) static int has_restartable(const char *test)
{
    int has = 0;
#ifdef __x86_64__
    struct utsname name;
    const unsigned *registered = &__rseq_size;
    unsigned major = 0, minor = 0;
    CHECK(uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2);
    has = (major > 6 || (major == 6 && minor >= 3)) && registered != NULL && *registered != 0;
    /* Registers the process for the command that restarts sequences, which a sandbox may refuse. */
    has = has && syscall(SYS_membarrier, 1 << 8, 0, 0) == 0;
#endif
    if (!has) {
        fprintf(stderr, "!!!! %s: no restartable sequences here: NOT tested\n", test);
    }
    return has;
}

/* Runs function(argument) in a forked child. Returns its status as waitpid does. A child that hangs
   is killed after a hundred seconds. */
__attribute__((unused)) static int in_child(void (*function)(void *), void *argument)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(100);
        function(argument);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

#endif

#endif
