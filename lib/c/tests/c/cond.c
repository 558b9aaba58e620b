/* The condition variable: notifications arrive, time limits end waits. */

#include "test.h"

static kinlock_mutex_t lock = KINLOCK_MUTEX_INIT;
static kinlock_cond_t changed = KINLOCK_COND_INIT;
static int turn, waiting, released;

enum { TURNS = 2000, WAITERS = 12 };

static void *take_turns(void *argument)
{
    int mine = *(int *)argument, i;
    for (i = 0; i < TURNS; i++) {
        kinlock_mutex_lock(&lock);
        while (turn != mine) {
            CHECK(kinlock_cond_wait(&changed, &lock) == 0);
        }
        turn = !mine;
        kinlock_cond_signal(&changed);
        kinlock_mutex_unlock(&lock);
    }
    return NULL;
}

static void two_threads_take_turns(void)
{
    int zero = 0, one = 1;
    pthread_t other = start(take_turns, &one);
    take_turns(&zero);
    join(other);
    CHECK(turn == 0);
}

static void *wait_for_release(void *unused)
{
    kinlock_mutex_lock(&lock);
    waiting++;
    while (!released) {
        CHECK(kinlock_cond_wait_for(&changed, &lock, 100000 * MS) == 0);
    }
    waiting--;
    kinlock_mutex_unlock(&lock);
    return unused;
}

static void a_broadcast_reaches_all(void)
{
    pthread_t threads[WAITERS];
    int i;
    for (i = 0; i < WAITERS; i++) {
        threads[i] = start(wait_for_release, NULL);
    }
    kinlock_mutex_lock(&lock);
    while (waiting < WAITERS) {
        kinlock_mutex_unlock(&lock);
        sleep_ms(1);
        kinlock_mutex_lock(&lock);
    }
    released = 1;
    kinlock_cond_broadcast(&changed);
    kinlock_mutex_unlock(&lock);
    for (i = 0; i < WAITERS; i++) {
        join(threads[i]);
    }
    CHECK(waiting == 0);
}

static void time_limits_end_waits_with_the_mutex_held(void)
{
    uint64_t begin;
    kinlock_mutex_lock(&lock);
    CHECK(kinlock_cond_wait_for(&changed, &lock, 0) == ETIMEDOUT);
    CHECK(kinlock_cond_wait_until(&changed, &lock, 1) == ETIMEDOUT);
    begin = kinlock_now();
    while (kinlock_cond_wait_for(&changed, &lock, 5 * MS) == 0) {
    }
    CHECK(kinlock_now() - begin >= 5 * MS);
    begin = kinlock_now();
    while (kinlock_cond_wait_until(&changed, &lock, begin + 5 * MS) == 0) {
    }
    CHECK(kinlock_now() - begin >= 5 * MS);
    CHECK(kinlock_mutex_is_locked(&lock));
    kinlock_mutex_unlock(&lock);
    /* Nobody waits. */
    CHECK(kinlock_cond_signal(&changed) == 0);
    CHECK(kinlock_cond_broadcast(&changed) == 0);
}

int main(void)
{
    two_threads_take_turns();
    a_broadcast_reaches_all();
    time_limits_end_waits_with_the_mutex_held();
    return 0;
}
