/* Attributes of condition variables and reader-writer locks, and objects that are initialised again with others. */
#include "common.h"
#include <threads.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void init(pthread_cond_t *condvar, clockid_t clock, int shared)
{
    pthread_condattr_t attributes;
    clockid_t found;
    CHECK(pthread_condattr_init(&attributes) == 0);
    CHECK(pthread_condattr_setclock(&attributes, clock) == 0);
    CHECK(pthread_condattr_setpshared(&attributes, shared) == 0);
    CHECK(pthread_condattr_getclock(&attributes, &found) == 0 && found == clock);
    CHECK(pthread_cond_init(condvar, &attributes) == 0);
    CHECK(pthread_condattr_destroy(&attributes) == 0);
}

static int is_over(clockid_t clock, struct timespec t)
{
    struct timespec n;
    clock_gettime(clock, &n);
    return n.tv_sec > t.tv_sec || (n.tv_sec == t.tv_sec && n.tv_nsec >= t.tv_nsec);
}

/* A wait ends when its clock says so: not before, and not hours later. */
static void wait_by(const char *what, pthread_cond_t *condvar, clockid_t clock)
{
    struct timespec soon = in_ms(clock, 200);
    int error;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    while ((error = pthread_cond_timedwait(condvar, &mutex, &soon)) == 0)
        ;
    printf("%s: %s, over: %d\n", what, name(error), is_over(clock, soon));
    soon = in_ms(CLOCK_MONOTONIC, 50);
    while ((error = pthread_cond_clockwait(condvar, &mutex, CLOCK_MONOTONIC, &soon)) == 0)
        ;
    printf("... monotonic: %s, over: %d\n", name(error), is_over(CLOCK_MONOTONIC, soon));
    soon = in_ms(CLOCK_REALTIME, 50);
    while ((error = pthread_cond_clockwait(condvar, &mutex, CLOCK_REALTIME, &soon)) == 0)
        ;
    printf("... time of day: %s, over: %d\n", name(error), is_over(CLOCK_REALTIME, soon));
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void *read_it(void *lock)
{
    int error = pthread_rwlock_tryrdlock(lock);
    if (error == 0)
        pthread_rwlock_unlock(lock);
    return (void *)(intptr_t)error;
}

static void rwlocks(pthread_rwlock_t *lock)
{
    for (int shared = 0; shared < 2; shared++)
        for (int kind = 0; kind < 3; kind++) {
            pthread_rwlockattr_t attributes;
            int found = -1;
            pthread_rwlockattr_init(&attributes);
            SHOW(pthread_rwlockattr_setkind_np(&attributes, kind));
            SHOW(pthread_rwlockattr_setpshared(&attributes, shared));
            pthread_rwlockattr_getkind_np(&attributes, &found);
            printf("rwlock %d %d %d\n", shared, kind, found);
            SHOW(pthread_rwlock_init(lock, &attributes));
            CHECK(pthread_rwlock_wrlock(lock) == 0);
            printf("read: %s\n", name(elsewhere(read_it, lock)));
            pid_t child = shared ? fork() : 0;
            if (shared && child == 0) {
                alarm(300);
                _exit(pthread_rwlock_rdlock(lock) || pthread_rwlock_unlock(lock));
            }
            nap(20);
            CHECK(pthread_rwlock_unlock(lock) == 0);
            if (shared)
                printf("child %d\n", end_of(child));
            printf("read: %s\n", name(elsewhere(read_it, lock)));
            SHOW(pthread_rwlock_destroy(lock));
        }
}

int main(void)
{
    static pthread_cond_t fixed = PTHREAD_COND_INITIALIZER;
    pthread_cond_t condvar;
    wait_by("static", &fixed, CLOCK_REALTIME);
    /* It does not matter what is in the memory. */
    memset(&condvar, 0xff, sizeof condvar);
    CHECK(pthread_cond_init(&condvar, NULL) == 0);
    wait_by("without attributes", &condvar, CLOCK_REALTIME);
    for (int n = 0; n < 2; n++) {
        init(&condvar, CLOCK_MONOTONIC, PTHREAD_PROCESS_PRIVATE);
        wait_by("monotonic", &condvar, CLOCK_MONOTONIC);
        SHOW(pthread_cond_destroy(&condvar));
        init(&condvar, CLOCK_REALTIME, PTHREAD_PROCESS_PRIVATE);
        wait_by("time of day", &condvar, CLOCK_REALTIME);
        init(&condvar, CLOCK_MONOTONIC, PTHREAD_PROCESS_SHARED);
        wait_by("shared and monotonic", &condvar, CLOCK_MONOTONIC);
        SHOW(pthread_cond_destroy(&condvar));
        init(&condvar, CLOCK_REALTIME, PTHREAD_PROCESS_SHARED);
        wait_by("shared", &condvar, CLOCK_REALTIME);
        SHOW(pthread_cond_destroy(&condvar));
    }
    CHECK(cnd_init((cnd_t *)&condvar) == thrd_success);
    wait_by("of C11", &condvar, CLOCK_REALTIME);

    rwlocks(shared_memory(sizeof(pthread_rwlock_t)));
    return 0;
}
