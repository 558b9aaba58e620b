/* Readers and writers of many threads, signals among them, and children of fork. */
#include "common.h"

static pthread_rwlock_t lock;
static volatile long first, second;
static long written;
static atomic_int stop;
static int rounds;

static void handle(int signal)
{
}

static void *use(void *argument)
{
    unsigned random = (unsigned)(intptr_t)argument * 2654435761u;
    for (int i = 0; i < rounds; i++) {
        /* A thread with the long limit gets the lock. */
        int is_long = i % 4 == 0, limit = is_long ? 100000 : 1;
        struct timespec soon = in_ms(CLOCK_REALTIME, limit), monotonic = in_ms(CLOCK_MONOTONIC, limit);
        random = random * 1664525 + 1013904223;
        unsigned what = random >> 24;
        if (what < 40) {
            int error = what < 30 ? pthread_rwlock_wrlock(&lock) : what < 35 ? pthread_rwlock_trywrlock(&lock)
                        : what % 2 ? pthread_rwlock_timedwrlock(&lock, &soon)
                                   : pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &monotonic);
            CHECK(error == 0 || what >= 35 && error == ETIMEDOUT && !is_long || what >= 30 && what < 35 && error == EBUSY);
            if (error)
                continue;
            first++;
            if (what % 8 == 0)
                sched_yield();
            second++;
            __atomic_fetch_add(&written, 1, __ATOMIC_RELAXED);
        } else {
            int error = what < 200 ? pthread_rwlock_rdlock(&lock) : what < 230 ? pthread_rwlock_tryrdlock(&lock)
                        : what % 2 ? pthread_rwlock_timedrdlock(&lock, &soon)
                                   : pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &monotonic);
            CHECK(error == 0 || what >= 230 && error == ETIMEDOUT && !is_long || what >= 200 && what < 230 && error == EBUSY);
            if (error)
                continue;
            long seen = first;
            if (what % 16 == 0)
                sched_yield();
            CHECK(seen == second);
            if (what % 4 == 0) {
                CHECK(pthread_rwlock_rdlock(&lock) == 0);
                CHECK(first == seen && pthread_rwlock_unlock(&lock) == 0);
            }
        }
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    }
    return NULL;
}

static void torture(int count)
{
    pthread_t threads[64];
    rounds = 10000 / count;
    for (long i = 0; i < count; i++)
        threads[i] = start(use, (void *)(i + 1));
    for (int i = 0; i < 200; i++) {
        /* These threads exist, since they are joined below. */
        pthread_kill(threads[i % count], SIGUSR1);
        usleep(100);
    }
    for (int i = 0; i < count; i++)
        end(threads[i]);
    CHECK(first == second && first == written && first > 0);
    CHECK(pthread_rwlock_trywrlock(&lock) == 0);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    printf("%d threads\n", count);
}

static void *read_it(void *unused)
{
    CHECK(pthread_rwlock_rdlock(&lock) == 0);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    return NULL;
}

static void *cancelled(void *held)
{
    pthread_rwlock_t *object = held;
    CHECK(pthread_rwlock_wrlock(object) == 0);
    CHECK(pthread_rwlock_unlock(object) == 0);
    stop = 1;
    pthread_testcancel();
    return NULL;
}

/* None of these functions is a cancellation point. */
static void cancel(void)
{
    CHECK(pthread_rwlock_rdlock(&lock) == 0);
    pthread_t thread = start(cancelled, &lock);
    nap(20);
    pthread_cancel(thread);
    nap(20);
    CHECK(!stop && pthread_rwlock_unlock(&lock) == 0);
    CHECK(end(thread) == PTHREAD_CANCELED && stop);
    printf("cancelled after it had the lock\n");
}

/* The writer forks while readers wait. In the child there are none. */
static void forks(void)
{
    for (int i = 0; i < 20; i++) {
        pthread_t readers[3];
        CHECK(pthread_rwlock_wrlock(&lock) == 0);
        for (int r = 0; r < 3; r++)
            readers[r] = start(read_it, NULL);
        nap(3);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(300);
            CHECK(pthread_rwlock_unlock(&lock) == 0);
            /* The C library's lock waits in the child for a reader that exists only in the parent. */
            const char *locks = getenv("KINLOCK_LOCK");
            if (locks && strcmp(locks, "pthread"))
                CHECK(pthread_rwlock_rdlock(&lock) == 0 && pthread_rwlock_unlock(&lock) == 0);
            _exit(0);
        }
        CHECK(pthread_rwlock_unlock(&lock) == 0);
        for (int r = 0; r < 3; r++)
            end(readers[r]);
        CHECK(end_of(child) == 0);
    }
    printf("children\n");
}

/* A child of a reader has the lock of the thread that forked, and no other. */
static void readers_fork(void)
{
    rounds = 200;
    for (int i = 0; i < 15; i++) {
        CHECK(pthread_rwlock_rdlock(&lock) == 0);
        pid_t child = fork();
        if (child == 0) {
            alarm(300);
            CHECK(pthread_rwlock_trywrlock(&lock) == EBUSY);
            read_it(NULL);
            CHECK(pthread_rwlock_unlock(&lock) == 0);
            CHECK(pthread_rwlock_trywrlock(&lock) == 0);
            CHECK(pthread_rwlock_unlock(&lock) == 0);
            run_threads(3, use);
            _exit(0);
        }
        CHECK(end_of(child) == 0);
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    }
    printf("children of readers\n");
}

int main(void)
{
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, NULL);
    for (int kind = 0; kind < 3; kind += 2) {
        pthread_rwlockattr_t attributes;
        pthread_rwlockattr_init(&attributes);
        pthread_rwlockattr_setkind_np(&attributes, kind);
        pthread_rwlock_init(&lock, &attributes);
        stop = first = second = written = 0;
        if (kind == 0) {
            torture(4), torture(16), torture(64);
            forks();
            readers_fork();
        }
        cancel();
        CHECK(pthread_rwlock_destroy(&lock) == 0);
    }
    return 0;
}
