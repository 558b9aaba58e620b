/* Threads that can be cancelled at any instruction are cancelled in a wait for a lock. The lock can be taken by others
   afterwards. */
#include "common.h"
#include <threads.h>

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
                       checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
                       adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, robust, inherits, shared;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static mtx_t of_c11;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;

static pthread_mutex_t *const mutexes[] = {&normal, &recursive, &checking, &adaptive, &robust, &inherits, &shared};
enum { MUTEXES = sizeof mutexes / sizeof *mutexes, TIMED = MUTEXES, BY_CLOCK, READ, WRITE, TIMED_READ, TIMED_WRITE, SPIN, C11, WAYS };
static const char *const names[] = {"normal", "recursive", "checking", "adaptive", "robust", "inherits", "shared",
                                    "timed", "by clock", "read", "write", "timed read", "timed write", "spin", "C11"};

static void take(int way)
{
    struct timespec far = in_ms(CLOCK_REALTIME, 100000), monotonic = in_ms(CLOCK_MONOTONIC, 100000);
    if (way < MUTEXES)
        CHECK(pthread_mutex_lock(mutexes[way]) == 0);
    else if (way == TIMED)
        CHECK(pthread_mutex_timedlock(&normal, &far) == 0);
    else if (way == BY_CLOCK)
        CHECK(pthread_mutex_clocklock(&normal, CLOCK_MONOTONIC, &monotonic) == 0);
    else if (way == READ)
        CHECK(pthread_rwlock_rdlock(&lock) == 0);
    else if (way == WRITE)
        CHECK(pthread_rwlock_wrlock(&lock) == 0);
    else if (way == TIMED_READ)
        CHECK(pthread_rwlock_timedrdlock(&lock, &far) == 0);
    else if (way == TIMED_WRITE)
        CHECK(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &monotonic) == 0);
    else if (way == SPIN)
        CHECK(pthread_spin_lock(&spin) == 0);
    else
        CHECK(mtx_lock(&of_c11) == thrd_success);
}

static void release(int way)
{
    if (way < MUTEXES)
        CHECK(pthread_mutex_unlock(mutexes[way]) == 0);
    else if (way <= BY_CLOCK)
        CHECK(pthread_mutex_unlock(&normal) == 0);
    else if (way <= TIMED_WRITE)
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    else if (way == SPIN)
        CHECK(pthread_spin_unlock(&spin) == 0);
    else
        CHECK(mtx_unlock(&of_c11) == thrd_success);
}

static void *wait_for_it(void *argument)
{
    int type;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    goes_to_wait();
    take((int)(intptr_t)argument);
    return "taken";
}

/* The thread can be cancelled only after the wait. */
static void *wait_undisturbed(void *argument)
{
    int way = (int)(intptr_t)argument, state, type;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    goes_to_wait();
    take(way);
    release(way);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    printf("type kept: %d, ", type == PTHREAD_CANCEL_ASYNCHRONOUS);
    return "taken";
}

/* After the wait, the thread has the type of cancellation that it had before. */
static void *keep_type(void *argument)
{
    int way = (int)(intptr_t)argument, type;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    goes_to_wait();
    take(way);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    release(way);
    printf("type kept: %d, ", type == PTHREAD_CANCEL_ASYNCHRONOUS);
    return "taken";
}

static void *take_and_release(void *argument)
{
    int way = (int)(intptr_t)argument;
    for (int i = 0; i < 100; i++) {
        take(way);
        release(way);
    }
    return NULL;
}

static const char *outcome(pthread_t thread)
{
    void *result = end(thread);
    return result == PTHREAD_CANCELED ? "cancelled" : result;
}

static pthread_t begin(void *(*function)(void *), int way)
{
    asker = 0;
    pthread_t thread = start(function, (void *)(intptr_t)way);
    if (way != SPIN) {
        until_it_waits();
        return thread;
    }
    /* It may not sleep at all. */
    while (!asker)
        sched_yield();
    nap(30);
    return thread;
}

static void cleanup(void *unused)
{
    CHECK(pthread_mutex_unlock(&checking) == 0);
}

static void *wait_for_condition(void *unused)
{
    int type;
    CHECK(pthread_mutex_lock(&checking) == 0);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    pthread_cleanup_push(cleanup, NULL);
    goes_to_wait();
    for (;;)
        pthread_cond_wait(&condvar, &checking);
    pthread_cleanup_pop(1);
    return NULL;
}

/* The time limit expires at about the moment at which the cancellation comes. */
static void *wait_briefly(void *unused)
{
    int type;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &type);
    CHECK(pthread_mutex_lock(&checking) == 0);
    pthread_cleanup_push(cleanup, NULL);
    goes_to_wait();
    for (;;) {
        struct timespec soon = in_ms(CLOCK_REALTIME, 1);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &type);
        int error = pthread_cond_timedwait(&condvar, &checking, &soon);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &type);
        CHECK(error == 0 || error == ETIMEDOUT);
    }
    pthread_cleanup_pop(1);
    return NULL;
}

/* The C library's reader-writer lock waits for threads that were cancelled in their waits. */
static int counts_waiters(void)
{
    return !getenv("LD_PRELOAD") || !strcmp(getenv("KINLOCK_LOCK"), "pthread");
}

int main(void)
{
    make_mutex(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, 0);
    make_mutex(&inherits, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT, 0);
    make_mutex(&shared, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, 1);
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    mtx_init(&of_c11, mtx_plain);
    for (int way = 0; way < WAYS; way++) {
        int writes_first = way != READ && way != TIMED_READ ? way : WRITE;
        printf("%s: ", names[way]);
        fflush(stdout);
        /* The lock is held now, so that the thread cannot have taken it. */
        take(writes_first);
        pthread_t thread = begin(wait_for_it, way);
        CHECK(pthread_cancel(thread) == 0);
        printf("%s, ", outcome(thread));
        release(writes_first);
        if (way >= READ && way <= TIMED_WRITE && counts_waiters())
            pthread_rwlock_init(&lock, NULL);
        take(writes_first);
        release(writes_first);

        take(writes_first);
        thread = begin(wait_undisturbed, way);
        CHECK(pthread_cancel(thread) == 0);
        nap(5);
        release(writes_first);
        printf("%s, ", outcome(thread));

        take(writes_first);
        thread = begin(keep_type, way);
        release(writes_first);
        printf("%s, ", outcome(thread));
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            threads[i] = start(take_and_release, (void *)(intptr_t)way);
        for (int i = 0; i < 4; i++)
            end(threads[i]);
        printf("free\n");
    }
    for (int i = 0; i < 20; i++) {
        pthread_t thread = begin(wait_for_condition, 0);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(end(thread) == PTHREAD_CANCELED);
        CHECK(pthread_mutex_trylock(&checking) == 0);
        CHECK(pthread_mutex_unlock(&checking) == 0);
    }
    for (int i = 0; i < 200; i++) {
        asker = 0;
        pthread_t thread = start(wait_briefly, NULL);
        while (!asker)
            sched_yield();
        nap(i % 3);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(end(thread) == PTHREAD_CANCELED);
        CHECK(pthread_mutex_trylock(&checking) == 0);
        CHECK(pthread_mutex_unlock(&checking) == 0);
    }
    SHOW(pthread_cond_destroy(&condvar));
    return 0;
}
