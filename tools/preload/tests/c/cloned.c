/* Children of a plain clone, for which no fork handler runs: the parent's threads wait for locks
   that the cloning thread holds. They do not exist in the child, which has to be able to release
   such a lock and to use it. */
#include "common.h"

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER,
                       recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int waiting;

static void *wait_for_held(void *unused)
{
    waiting++;
    pthread_mutex_lock(&held);
    pthread_mutex_unlock(&held);
    return NULL;
}

static void *wait_for_recursive(void *unused)
{
    waiting++;
    pthread_mutex_lock(&recursive);
    pthread_mutex_unlock(&recursive);
    return NULL;
}

static void *wait_for_lock(void *unused)
{
    waiting++;
    pthread_rwlock_wrlock(&lock);
    pthread_rwlock_unlock(&lock);
    return NULL;
}

static void in_child(int generations)
{
    alarm(300);
    /* Whether the thread that cloned or another one is the first to meet the parent's waiters. */
    if (generations % 2)
        end(start(take_often, &(pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER));
    CHECK(pthread_mutex_trylock(&held) == EBUSY);
    if (generations > 1) {
        fflush(stdout);
        long child = syscall(SYS_clone, (long)SIGCHLD, 0, 0, 0, 0);
        if (child == 0)
            in_child(generations - 1);
        printf("child %d\n", end_of(child));
    }
    CHECK(pthread_mutex_unlock(&held) == 0);
    four_contend(&held);
    CHECK(pthread_mutex_unlock(&recursive) == 0);
    four_contend(&recursive);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    CHECK(pthread_rwlock_wrlock(&lock) == 0);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    CHECK(pthread_rwlock_rdlock(&lock) == 0);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    fflush(stdout);
    _exit(7);
}

int main(void)
{
    pthread_t threads[9];
    void *(*const ways[])(void *) = {wait_for_held, wait_for_recursive, wait_for_lock};
    CHECK(pthread_mutex_lock(&held) == 0);
    CHECK(pthread_mutex_lock(&recursive) == 0);
    CHECK(pthread_rwlock_wrlock(&lock) == 0);
    for (int i = 0; i < 9; i++)
        threads[i] = start(ways[i % 3], NULL);
    while (waiting < 9)
        nap(1);
    for (int way = 0; way < 12; way++) {
        nap(way % 4 * 2);
        fflush(stdout);
        long child = syscall(SYS_clone, (long)SIGCHLD, 0, 0, 0, 0);
        if (child == 0)
            in_child(1 + way % 3);
        printf("child %d\n", end_of(child));
    }
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    CHECK(pthread_mutex_unlock(&recursive) == 0);
    CHECK(pthread_mutex_unlock(&held) == 0);
    for (int i = 0; i < 9; i++)
        end(threads[i]);
    return 0;
}
