/* After a fork: held locks stay held, locks that had waiters work, and a reset makes a lock free.
   */

#include "test.h"

static kinlock_mutex_t fought_for, held_by_other, mine;
static kinlock_rwlock_t read_by_other;
static kinlock_spin_t spin;
static kinlock_cond_t cond;
static int ready, end;

static void *hold(void *unused)
{
    kinlock_mutex_lock(&held_by_other);
    kinlock_rwlock_write_lock(&read_by_other);
    kinlock_spin_lock(&spin);
    STORE(ready, 1);
    while (!LOAD(end)) {
        sleep_ms(1);
    }
    kinlock_spin_unlock(&spin);
    kinlock_rwlock_write_unlock(&read_by_other);
    kinlock_mutex_unlock(&held_by_other);
    return unused;
}

static void *fight(void *unused)
{
    while (!LOAD(end)) {
        kinlock_mutex_lock(&fought_for);
        kinlock_mutex_unlock(&fought_for);
    }
    return unused;
}

static void *take_in_child(void *unused)
{
    kinlock_mutex_lock(&fought_for);
    kinlock_mutex_unlock(&fought_for);
    return unused;
}

static void child(void *unused)
{
    (void)unused;
    /* The child holds the locks that the forking thread held. */
    CHECK(kinlock_mutex_trylock(&fought_for) == EBUSY);
    CHECK(kinlock_mutex_trylock(&mine) == EBUSY);
    kinlock_mutex_unlock(&mine);
    CHECK(kinlock_mutex_trylock(&mine) == 0);
    /* The parent's waiters do not exist here. This would hang if the lock still counted on one. */
    kinlock_mutex_unlock(&fought_for);
    run_threads(3, take_in_child, NULL);
    /* Locks that another thread held stay held until they are reset. */
    CHECK(kinlock_mutex_lock_for(&held_by_other, MS) == ETIMEDOUT);
    CHECK(kinlock_rwlock_read_trylock(&read_by_other) == EBUSY);
    CHECK(kinlock_spin_trylock(&spin) == EBUSY);
    kinlock_mutex_reset_in_child(&held_by_other);
    kinlock_rwlock_reset_in_child(&read_by_other);
    kinlock_spin_reset_in_child(&spin);
    CHECK(kinlock_mutex_trylock(&held_by_other) == 0);
    CHECK(kinlock_rwlock_write_trylock(&read_by_other) == 0);
    CHECK(kinlock_spin_trylock(&spin) == 0);
    /* Waiting works. */
    CHECK(kinlock_cond_wait_for(&cond, &held_by_other, MS) == ETIMEDOUT);
}

int main(void)
{
    pthread_t threads[4];
    int i, status;
    threads[0] = start(hold, NULL);
    for (i = 1; i < 4; i++) {
        threads[i] = start(fight, NULL);
    }
    while (!LOAD(ready)) {
        sleep_ms(1);
    }
    kinlock_mutex_lock(&mine);
    for (i = 0; i < 5; i++) {
        kinlock_mutex_lock(&fought_for);
        sleep_ms(3);
        status = in_child(child, NULL);
        kinlock_mutex_unlock(&fought_for);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    STORE(end, 1);
    for (i = 0; i < 4; i++) {
        join(threads[i]);
    }
    return 0;
}
