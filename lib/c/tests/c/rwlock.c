/* The reader-writer lock: which threads may hold it together, and all changes from one way of
   holding it to another. */

#include "test.h"

static kinlock_rwlock_t lock = KINLOCK_RWLOCK_INIT;
static unsigned long one, other;
static int done, writes;

enum { READ = 1, WRITE = 2, UPGRADABLE = 4 };

/* Finds out in which ways another thread could take the lock at once. */
static void *probe(void *argument)
{
    int *found = (int *)argument;
    *found = 0;
    if (kinlock_rwlock_read_trylock(&lock) == 0) {
        kinlock_rwlock_read_unlock(&lock);
        *found |= READ;
    } else {
        CHECK(kinlock_rwlock_read_trylock(&lock) == EBUSY);
        CHECK(kinlock_rwlock_read_lock_for(&lock, 0) == ETIMEDOUT);
        CHECK(kinlock_rwlock_read_lock_until(&lock, 0) == ETIMEDOUT);
        CHECK(kinlock_rwlock_read_lock_recursive_for(&lock, MS) == ETIMEDOUT);
        CHECK(kinlock_rwlock_read_lock_recursive_until(&lock, 0) == ETIMEDOUT);
        CHECK(kinlock_rwlock_read_trylock_recursive(&lock) == EBUSY);
    }
    if (kinlock_rwlock_upgradable_trylock(&lock) == 0) {
        kinlock_rwlock_upgradable_unlock(&lock);
        *found |= UPGRADABLE;
    } else {
        CHECK(kinlock_rwlock_upgradable_trylock(&lock) == EBUSY);
        CHECK(kinlock_rwlock_upgradable_lock_for(&lock, MS) == ETIMEDOUT);
        CHECK(kinlock_rwlock_upgradable_lock_until(&lock, 0) == ETIMEDOUT);
    }
    if (kinlock_rwlock_write_trylock(&lock) == 0) {
        kinlock_rwlock_write_unlock(&lock);
        *found |= WRITE;
    } else {
        CHECK(kinlock_rwlock_write_trylock(&lock) == EBUSY);
        CHECK(kinlock_rwlock_write_lock_for(&lock, MS) == ETIMEDOUT);
        CHECK(kinlock_rwlock_write_lock_until(&lock, 0) == ETIMEDOUT);
    }
    return NULL;
}

static int possible(void)
{
    int found;
    run_threads(1, probe, &found);
    return found;
}

static void each_hold_excludes_what_it_should(void)
{
    CHECK(possible() == (READ | WRITE | UPGRADABLE));
    CHECK(kinlock_rwlock_is_locked(&lock) == 0);

    CHECK(kinlock_rwlock_read_lock(&lock) == 0);
    CHECK(kinlock_rwlock_is_locked(&lock) == 1);
    CHECK(possible() == (READ | UPGRADABLE));
    CHECK(kinlock_rwlock_read_lock_recursive(&lock) == 0);
    CHECK(kinlock_rwlock_read_unlock_fair(&lock) == 0);
    CHECK(possible() == (READ | UPGRADABLE));
    CHECK(kinlock_rwlock_read_unlock(&lock) == 0);

    CHECK(kinlock_rwlock_write_lock(&lock) == 0);
    CHECK(possible() == 0);
    CHECK(kinlock_rwlock_downgrade(&lock) == 0);
    CHECK(possible() == (READ | UPGRADABLE));
    CHECK(kinlock_rwlock_read_unlock(&lock) == 0);

    CHECK(kinlock_rwlock_write_lock_for(&lock, 0) == 0);
    CHECK(kinlock_rwlock_downgrade_to_upgradable(&lock) == 0);
    CHECK(possible() == READ);
    CHECK(kinlock_rwlock_upgradable_unlock_fair(&lock) == 0);

    CHECK(kinlock_rwlock_upgradable_lock(&lock) == 0);
    CHECK(possible() == READ);
    CHECK(kinlock_rwlock_upgrade(&lock) == 0);
    CHECK(possible() == 0);
    CHECK(kinlock_rwlock_write_unlock_fair(&lock) == 0);

    CHECK(kinlock_rwlock_upgradable_lock_for(&lock, KINLOCK_FOREVER) == 0);
    CHECK(kinlock_rwlock_read_lock(&lock) == 0);
    CHECK(kinlock_rwlock_tryupgrade(&lock) == EBUSY);
    CHECK(kinlock_rwlock_upgrade_for(&lock, MS) == ETIMEDOUT);
    CHECK(kinlock_rwlock_upgrade_until(&lock, 0) == ETIMEDOUT);
    CHECK(kinlock_rwlock_read_unlock(&lock) == 0);
    CHECK(kinlock_rwlock_tryupgrade(&lock) == 0);
    CHECK(possible() == 0);
    CHECK(kinlock_rwlock_downgrade_to_upgradable(&lock) == 0);
    CHECK(kinlock_rwlock_upgradable_downgrade(&lock) == 0);
    CHECK(possible() == (READ | UPGRADABLE));
    CHECK(kinlock_rwlock_read_unlock(&lock) == 0);
    CHECK(kinlock_rwlock_is_locked(&lock) == 0);
}

static void *read_pairs(void *unused)
{
    while (!LOAD(done)) {
        CHECK(kinlock_rwlock_read_lock(&lock) == 0);
        CHECK(one == other);
        kinlock_rwlock_read_unlock(&lock);
    }
    return unused;
}

static void *write_pairs(void *unused)
{
    int i;
    for (i = 0; i < 2000; i++) {
        CHECK(kinlock_rwlock_write_lock(&lock) == 0);
        one++;
        other++;
        kinlock_rwlock_write_unlock(&lock);
    }
    if (ADD(writes, 1) == 2) {
        STORE(done, 1);
    }
    return unused;
}

static void readers_never_see_half_a_write(void)
{
    pthread_t readers[2], writers[2];
    int i;
    for (i = 0; i < 2; i++) {
        readers[i] = start(read_pairs, NULL);
        writers[i] = start(write_pairs, NULL);
    }
    for (i = 0; i < 2; i++) {
        join(readers[i]);
        join(writers[i]);
    }
    CHECK(one == 4000);
}

static int writer_has_it;

static void *write_once(void *unused)
{
    CHECK(kinlock_rwlock_write_lock(&lock) == 0);
    STORE(writer_has_it, 1);
    kinlock_rwlock_write_unlock(&lock);
    return unused;
}

static void a_recursive_reader_passes_a_waiting_writer(void)
{
    pthread_t writer;
    CHECK(kinlock_rwlock_read_lock(&lock) == 0);
    writer = start(write_once, NULL);
    /* Waits until the writer has asked to go next. */
    while (kinlock_rwlock_read_trylock(&lock) == 0) {
        kinlock_rwlock_read_unlock(&lock);
        sleep_ms(1);
    }
    CHECK(kinlock_rwlock_read_lock_recursive(&lock) == 0);
    CHECK(!LOAD(writer_has_it));
    kinlock_rwlock_read_unlock(&lock);
    kinlock_rwlock_read_unlock(&lock);
    join(writer);
    CHECK(LOAD(writer_has_it));
}

int main(void)
{
    each_hold_excludes_what_it_should();
    readers_never_see_half_a_write();
    a_recursive_reader_passes_a_waiting_writer();
    return 0;
}
