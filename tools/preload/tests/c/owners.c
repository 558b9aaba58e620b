/* What debuggers look at: who holds a lock. */
#include "common.h"

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER,
                       recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
                       checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, robust;
static pthread_cond_t notified = PTHREAD_COND_INITIALIZER;
static int is_notified;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static void *wait_and_notify(void *unused)
{
    CHECK(pthread_mutex_lock(&normal) == 0);
    is_notified = 1;
    CHECK(pthread_cond_signal(&notified) == 0);
    CHECK(pthread_mutex_unlock(&normal) == 0);
    return unused;
}

/* Waits for a condition variable, and has to wait for the mutex, too, before the wait returns. */
static void wait_and_look(int me)
{
    CHECK(pthread_mutex_lock(&normal) == 0);
    is_notified = 0;
    pthread_t other = start(wait_and_notify, NULL);
    while (!is_notified)
        CHECK(pthread_cond_wait(&notified, &normal) == 0);
    printf("after a wait: %d\n", normal.__data.__owner == me);
    CHECK(pthread_mutex_unlock(&normal) == 0);
    end(other);
}

static void *look(void *unused)
{
    int me = syscall(SYS_gettid);
    pthread_mutex_t *const mutexes[] = {&normal, &recursive, &checking, &robust};
    for (int i = 0; i < 4; i++) {
        struct timespec soon = in_ms(CLOCK_REALTIME, 100000);
        CHECK(pthread_mutex_lock(mutexes[i]) == 0);
        printf("mutex %d: %d", i, mutexes[i]->__data.__owner == me);
        CHECK(pthread_mutex_unlock(mutexes[i]) == 0);
        printf(", then %d", mutexes[i]->__data.__owner);
        CHECK(pthread_mutex_trylock(mutexes[i]) == 0);
        printf(", tried %d", mutexes[i]->__data.__owner == me);
        CHECK(pthread_mutex_unlock(mutexes[i]) == 0);
        CHECK(pthread_mutex_timedlock(mutexes[i], &soon) == 0);
        printf(", with a limit %d", mutexes[i]->__data.__owner == me);
        CHECK(pthread_mutex_unlock(mutexes[i]) == 0);
        printf(", then %d\n", mutexes[i]->__data.__owner);
    }
    wait_and_look(me);
    CHECK(pthread_rwlock_wrlock(&lock) == 0);
    printf("rwlock: %d", lock.__data.__cur_writer == me);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    printf(", then %d", lock.__data.__cur_writer);
    CHECK(pthread_rwlock_rdlock(&lock) == 0);
    printf(", read %d\n", lock.__data.__cur_writer);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    return NULL;
}

int main(void)
{
    make_mutex(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, 0);
    look(NULL);
    end(start(look, NULL));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        look(NULL);
        end(start(look, NULL));
        fflush(stdout);
        _exit(0);
    }
    printf("child %d\n", end_of(child));
    /* The child's thread has another number than the parent's. So debuggers do not see that it holds the lock. */
    CHECK(pthread_mutex_lock(&recursive) == 0);
    CHECK(pthread_mutex_lock(&checking) == 0);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        SHOW(pthread_mutex_trylock(&recursive));
        SHOW(pthread_mutex_unlock(&recursive));
        SHOW(pthread_mutex_trylock(&checking));
        SHOW(pthread_mutex_unlock(&checking));
        fflush(stdout);
        _exit(0);
    }
    printf("child %d\n", end_of(child));
    SHOW(pthread_mutex_unlock(&recursive));
    SHOW(pthread_mutex_unlock(&checking));
    return 0;
}
