/* The spinlock: exclusion, error numbers, time limits. */

#include "test.h"

static kinlock_spin_t lock = KINLOCK_SPIN_INIT;
static unsigned long count;

static void *add(void *unused)
{
    int i;
    for (i = 0; i < 20000; i++) {
        switch (i % 3) {
        case 0:
            CHECK(kinlock_spin_lock(&lock) == 0);
            break;
        case 1:
            while (kinlock_spin_lock_for(&lock, MS) != 0) {
            }
            break;
        default:
            CHECK(kinlock_spin_lock_until(&lock, KINLOCK_FOREVER) == 0);
        }
        count++;
        CHECK(kinlock_spin_unlock(&lock) == 0);
    }
    return unused;
}

static void *fails(void *unused)
{
    uint64_t before = kinlock_now();
    CHECK(kinlock_spin_is_locked(&lock) == 1);
    CHECK(kinlock_spin_trylock(&lock) == EBUSY);
    CHECK(kinlock_spin_lock_for(&lock, 3 * MS) == ETIMEDOUT);
    CHECK(kinlock_now() - before >= 3 * MS);
    CHECK(kinlock_spin_lock_until(&lock, 0) == ETIMEDOUT);
    return unused;
}

int main(void)
{
    run_threads(4, add, NULL);
    CHECK(count == 80000);
    CHECK(kinlock_spin_is_locked(&lock) == 0);
    CHECK(kinlock_spin_trylock(&lock) == 0);
    run_threads(1, fails, NULL);
    CHECK(kinlock_spin_unlock(&lock) == 0);
    CHECK(kinlock_spin_trylock(&lock) == 0);
    return 0;
}
