/* Children of fork: what the parent's other threads held or waited for. */
#include "common.h"

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, own = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER, unused = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t of_condvar = PTHREAD_MUTEX_INITIALIZER;
static atomic_int is_held, waiting, stop;

static void *hold(void *unused)
{
    pthread_mutex_lock(&held);
    pthread_mutex_lock(&recursive);
    is_held = 1;
    while (!stop)
        nap(1);
    pthread_mutex_unlock(&recursive);
    pthread_mutex_unlock(&held);
    return NULL;
}

static void *wait_for_lock(void *unused)
{
    waiting++;
    pthread_mutex_lock(&held);
    pthread_mutex_unlock(&held);
    return NULL;
}

static void *wait_for_notification(void *unused)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 300000);
    pthread_mutex_lock(&of_condvar);
    waiting++;
    while (!stop)
        pthread_cond_timedwait(&condvar, &of_condvar, &soon);
    pthread_mutex_unlock(&of_condvar);
    return NULL;
}

static void *lock_it(void *argument)
{
    pthread_mutex_lock(argument);
    pthread_mutex_unlock(argument);
    return NULL;
}

static void in_child(int way)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 10);
    CHECK(pthread_mutex_trylock(&held) == EBUSY);
    CHECK(pthread_mutex_timedlock(&held, &soon) == ETIMEDOUT);
    CHECK(pthread_mutex_trylock(&recursive) == EBUSY);
    CHECK(pthread_mutex_unlock(&recursive) == EPERM);
    if (way == 0) {
        CHECK(pthread_mutex_unlock(&held) == 0);
    } else if (way == 1) {
        /* Another thread of the child already waits for the lock, behind waiters that exist only in the parent. */
        pthread_t thread = start(lock_it, &held);
        nap(10);
        CHECK(pthread_mutex_unlock(&held) == 0);
        end(thread);
    } else {
        memset(&held, 0, sizeof held);
        pthread_mutex_init(&held, NULL);
    }
    CHECK(pthread_mutex_trylock(&held) == 0);
    CHECK(pthread_mutex_unlock(&held) == 0);
    four_contend(&held);
    /* The thread that forked still holds what it held. */
    CHECK(pthread_mutex_trylock(&own) == EBUSY);
    CHECK(pthread_mutex_unlock(&own) == 0);
    four_contend(&own);
    CHECK(pthread_cond_signal(&condvar) == 0);
    CHECK(pthread_cond_broadcast(&condvar) == 0);
    CHECK(pthread_mutex_lock(&own) == 0);
    soon = in_ms(CLOCK_REALTIME, 10);
    CHECK(pthread_cond_timedwait(&condvar, &own, &soon) == ETIMEDOUT);
    CHECK(pthread_mutex_unlock(&own) == 0);
    CHECK(pthread_cond_destroy(&unused) == 0);
    /* The C library's function waits for waiters that exist only in the parent. */
    if (getenv("LD_PRELOAD") && strcmp(getenv("KINLOCK_LOCK"), "pthread"))
        CHECK(pthread_cond_destroy(&condvar) == 0);
    fflush(stdout);
    _exit(7);
}

int main(void)
{
    pthread_t threads[7];
    threads[0] = start(hold, NULL);
    while (!is_held)
        nap(1);
    for (int i = 1; i < 4; i++)
        threads[i] = start(wait_for_lock, NULL);
    for (int i = 4; i < 7; i++)
        threads[i] = start(wait_for_notification, NULL);
    while (waiting < 6)
        nap(1);
    for (int way = 0; way < 60; way++) {
        nap(way % 4 * 2);
        CHECK(pthread_mutex_lock(&own) == 0);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(300);
            in_child(way % 3);
        }
        CHECK(pthread_mutex_unlock(&own) == 0);
        int ended = end_of(child);
        if (ended != 7)
            printf("child %d: %d\n", way, ended);
    }
    stop = 1;
    pthread_mutex_lock(&of_condvar);
    pthread_cond_broadcast(&condvar);
    pthread_mutex_unlock(&of_condvar);
    for (int i = 0; i < 7; i++)
        end(threads[i]);
    printf("all children ended\n");
    return 0;
}
