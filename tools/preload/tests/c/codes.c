/* The return codes of every mutex function, for mutexes of every kind. */
#include "common.h"

static pthread_mutex_t *mutex;

/* What another thread that waits in this way gets, which releases the mutex again. */
#define WAY(name, call)                       \
    static void *name(void *until)            \
    {                                         \
        int error = call;                     \
        if (error == 0)                       \
            pthread_mutex_unlock(mutex);      \
        return (void *)(intptr_t)error;       \
    }

WAY(wait_for_it, pthread_mutex_timedlock(mutex, until))
WAY(wait_by_clock, pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, until))
WAY(wait_by_bad_clock, pthread_mutex_clocklock(mutex, CLOCK_PROCESS_CPUTIME_ID, until))

static void *hold_and_end(void *unused)
{
    return (void *)(intptr_t)pthread_mutex_lock(mutex);
}

static void held(int checks, int recursive)
{
    struct timespec past = in_ms(CLOCK_REALTIME, -10), soon = in_ms(CLOCK_REALTIME, 20);
    struct timespec by_clock = in_ms(CLOCK_MONOTONIC, 20), bad = {0, 1000000000};
    struct timespec negative = {-1, 0}, bad_too = in_ms(CLOCK_REALTIME, 10000);
    bad_too.tv_nsec = -1;
    SHOW(pthread_mutex_trylock(mutex));
    if (recursive)
        SHOW(pthread_mutex_unlock(mutex));
    SHOW(elsewhere(try_mutex, mutex));
    SHOW(elsewhere(wait_for_it, &past));
    double before = now();
    SHOW(elsewhere(wait_for_it, &soon));
    SHOW(elsewhere(wait_by_clock, &by_clock));
    CHECK(now() - before < 60);
    SHOW(elsewhere(wait_for_it, &bad));
    SHOW(elsewhere(wait_for_it, &bad_too));
    SHOW(elsewhere(wait_for_it, &negative));
    SHOW(elsewhere(wait_by_bad_clock, &by_clock));
    if (checks) {
        SHOW(pthread_mutex_lock(mutex));
        SHOW(pthread_mutex_timedlock(mutex, &bad));
        SHOW(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &by_clock));
        SHOW(elsewhere(unlock_mutex, mutex));
    }
    SHOW(pthread_mutex_destroy(mutex));
}

static void exercise(const char *what, int checks, int recursive)
{
    struct timespec bad = {0, -1}, past = {0, 0};
    int ceiling = -1;
    printf("---- %s\n", what);
    SHOW(pthread_mutex_getprioceiling(mutex, &ceiling));
    printf("ceiling %d\n", ceiling);
    SHOW(pthread_mutex_consistent(mutex));
    if (checks)
        SHOW(pthread_mutex_unlock(mutex));
    SHOW(pthread_mutex_lock(mutex));
    held(checks, recursive);
    if (recursive)
        while (pthread_mutex_unlock(mutex) == 0)
            printf("unlocked\n");
    else
        SHOW(pthread_mutex_unlock(mutex));
    if (checks)
        SHOW(pthread_mutex_unlock(mutex));
    SHOW(pthread_mutex_timedlock(mutex, &past));
    SHOW(pthread_mutex_unlock(mutex));
    SHOW(pthread_mutex_timedlock(mutex, &bad));
    SHOW(pthread_mutex_unlock(mutex));
    SHOW(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &past));
    SHOW(pthread_mutex_unlock(mutex));
    SHOW(pthread_mutex_clocklock(mutex, CLOCK_BOOTTIME, &past));
    SHOW(pthread_mutex_trylock(mutex));
    SHOW(pthread_mutex_unlock(mutex));
    SHOW(elsewhere(try_mutex, mutex));
    SHOW(pthread_mutex_destroy(mutex));
    SHOW(pthread_mutex_lock(mutex));
    SHOW(pthread_mutex_trylock(mutex));
    SHOW(pthread_mutex_unlock(mutex));
    SHOW(pthread_mutex_destroy(mutex));
}

static void dead_owner(const char *what, const pthread_mutexattr_t *attributes)
{
    printf("---- its owner ends: %s\n", what);
    SHOW(pthread_mutex_init(mutex, attributes));
    SHOW(elsewhere(hold_and_end, NULL));
    SHOW(pthread_mutex_trylock(mutex));
}

static void of_attributes(void)
{
    static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                                PTHREAD_MUTEX_DEFAULT, PTHREAD_MUTEX_ADAPTIVE_NP};
    static const char *names[] = {"normal", "recursive", "errorcheck", "default", "adaptive"};
    for (int type = 0; type < 5; type++)
        for (int more = 0; more < 6; more++) {
            static const char *mores[] = {"", ", robust", ", inherits", ", protects", ", shared", ", robust shared"};
            pthread_mutexattr_t attributes;
            char what[100];
            int checks = type == 1 || type == 2 || more == 1 || more == 5;
            if (types[type] == PTHREAD_MUTEX_ADAPTIVE_NP && more)
                continue;
            pthread_mutexattr_init(&attributes);
            SHOW(pthread_mutexattr_settype(&attributes, types[type]));
            if (more == 1 || more == 5)
                SHOW(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
            if (more == 2)
                SHOW(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
            if (more == 3)
                SHOW(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_PROTECT));
            if (more >= 4)
                SHOW(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
            memset(mutex, 0xa5, sizeof *mutex);
            SHOW(pthread_mutex_init(mutex, &attributes));
            snprintf(what, sizeof what, "%s%s", names[type], mores[more]);
            /* For kinds that do not check the owner, relocking hangs, and another thread must not unlock. */
            exercise(what, checks && types[type] != PTHREAD_MUTEX_NORMAL && types[type] != PTHREAD_MUTEX_DEFAULT,
                     type == 1);
            dead_owner(what, &attributes);
            if (more == 1 || more == 5) {
                SHOW(pthread_mutex_consistent(mutex));
                SHOW(pthread_mutex_unlock(mutex));
                SHOW(pthread_mutex_destroy(mutex));
                dead_owner("not made consistent", &attributes);
                SHOW(pthread_mutex_unlock(mutex));
                SHOW(pthread_mutex_lock(mutex));
            }
            pthread_mutexattr_destroy(&attributes);
        }
}

int main(void)
{
    static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
    static pthread_mutex_t other;
    mutex = &normal, exercise("static", 0, 0);
    mutex = &recursive, exercise("static recursive", 1, 1);
    mutex = &checking, exercise("static errorcheck", 1, 0);
    mutex = &adaptive, exercise("static adaptive", 0, 0);
    mutex = &other;
    memset(mutex, 0x5a, sizeof *mutex);
    SHOW(pthread_mutex_init(mutex, NULL));
    exercise("without attributes", 0, 0);
    of_attributes();
    return 0;
}
