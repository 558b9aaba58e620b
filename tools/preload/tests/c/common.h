/* What the test programs share. They print lines that do not depend on whose locks they run on. */
#ifndef COMMON_H
#define COMMON_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            printf("FAILED %s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            fflush(stdout);                                                               \
            _exit(3);                                                                     \
        }                                                                                 \
    } while (0)

static inline const char *name(int error)
{
    switch (error) {
    case 0: return "0";
    case EBUSY: return "EBUSY";
    case EDEADLK: return "EDEADLK";
    case EPERM: return "EPERM";
    case EINTR: return "EINTR";
    case EINVAL: return "EINVAL";
    case EAGAIN: return "EAGAIN";
    case ETIMEDOUT: return "ETIMEDOUT";
    case EOWNERDEAD: return "EOWNERDEAD";
    case ENOTRECOVERABLE: return "ENOTRECOVERABLE";
    case ENOTSUP: return "ENOTSUP";
    default: return strerror(error);
    }
}

#define SHOW(call) printf("%s: %s\n", #call, name(call))

static inline struct timespec in_ms(clockid_t clock, long ms)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000)
        t.tv_nsec -= 1000000000, t.tv_sec++;
    if (t.tv_nsec < 0)
        t.tv_nsec += 1000000000, t.tv_sec--;
    return t;
}

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static inline void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static atomic_int asker;

/* The calling thread goes to wait, and does not sleep before. */
static inline void goes_to_wait(void)
{
    asker = syscall(SYS_gettid);
}

/* Returns when that thread sleeps in its wait, however long it has been kept from running. */
static inline void until_it_waits(void)
{
    char path[64], text[512];
    while (!asker)
        nap(1);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", asker);
    asker = 0;
    for (const char *state = NULL; !state || state[2] != 'S'; nap(1)) {
        int file = open(path, O_RDONLY);
        ssize_t size = read(file, text, sizeof text - 1);
        close(file);
        text[size > 0 ? size : 0] = 0;
        state = strrchr(text, ')');
    }
}

static inline pthread_t start(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, function, argument);
    CHECK(error == 0);
    return thread;
}

static inline void *end(pthread_t thread)
{
    void *result;
    int error = pthread_join(thread, &result);
    CHECK(error == 0);
    return result;
}

/* Runs `function` in `count` threads, each with its number as the argument. */
static inline void run_threads(int count, void *(*function)(void *))
{
    pthread_t threads[64];
    for (intptr_t i = 0; i < count; i++)
        threads[i] = start(function, (void *)i);
    for (int i = 0; i < count; i++)
        end(threads[i]);
}

/* Runs `function` in another thread, and returns its result. */
static inline int elsewhere(void *(*function)(void *), void *argument)
{
    return (int)(intptr_t)end(start(function, argument));
}

static inline void *try_mutex(void *mutex)
{
    int error = pthread_mutex_trylock(mutex);
    if (error == 0 || error == EOWNERDEAD)
        pthread_mutex_unlock(mutex);
    return (void *)(intptr_t)error;
}

static inline void *unlock_mutex(void *mutex)
{
    return (void *)(intptr_t)pthread_mutex_unlock(mutex);
}

static inline void make_mutex(pthread_mutex_t *mutex, int type, int robust, int protocol, int shared)
{
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_settype(&attributes, type) == 0);
    CHECK(pthread_mutexattr_setrobust(&attributes, robust) == 0);
    CHECK(pthread_mutexattr_setprotocol(&attributes, protocol) == 0);
    CHECK(pthread_mutexattr_setpshared(&attributes, shared) == 0);
    CHECK(pthread_mutex_init(mutex, &attributes) == 0);
}

static long taken_by_four;

static inline void *take_often(void *mutex)
{
    for (int i = 0; i < 1500; i++) {
        pthread_mutex_lock(mutex);
        taken_by_four++;
        pthread_mutex_unlock(mutex);
    }
    return NULL;
}

/* Four threads exclude each other. */
static inline void four_contend(pthread_mutex_t *mutex)
{
    pthread_t threads[4];
    taken_by_four = 0;
    for (int i = 0; i < 4; i++)
        threads[i] = start(take_often, mutex);
    for (int i = 0; i < 4; i++)
        end(threads[i]);
    CHECK(taken_by_four == 6000);
}

static inline void *shared_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

/* How the child ended: its exit status, or minus the signal. */
static inline int end_of(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

#endif
