/* For ThreadSanitizer: with RACE it has to report a race, and without it none. Everything that a
   lock protects is changed by plain accesses. */

#include "test.h"

static kinlock_mutex_t mutex;
static kinlock_cond_t cond;
static kinlock_rwlock_t rwlock;
static kinlock_spin_t spin;
static kinlock_once_t once;
static long of_mutex, of_rwlock, of_spin, of_once, awake;
#ifdef RACE
static long of_nothing;
#endif

static void set_up(void *unused)
{
    (void)unused;
    of_once = 7;
}

static void *work(void *unused)
{
    int i;
#ifdef RACE
    /* Before the first lock: what is taken and released later would order the threads. */
    of_nothing++;
#endif
    kinlock_once(&once, set_up, NULL);
    CHECK(of_once == 7);
    for (i = 0; i < 500; i++) {
        if (kinlock_mutex_trylock(&mutex) != 0) {
            kinlock_mutex_lock(&mutex);
        }
        of_mutex++;
        kinlock_mutex_unlock(&mutex);
        while (kinlock_spin_lock_for(&spin, MS) != 0) {
        }
        of_spin++;
        kinlock_spin_unlock(&spin);
        kinlock_rwlock_write_lock(&rwlock);
        of_rwlock++;
        kinlock_rwlock_downgrade(&rwlock);
        CHECK(of_rwlock > 0);
        kinlock_rwlock_read_unlock(&rwlock);
        kinlock_rwlock_upgradable_lock(&rwlock);
        if (kinlock_rwlock_tryupgrade(&rwlock) == 0) {
            of_rwlock++;
            kinlock_rwlock_write_unlock(&rwlock);
        } else {
            kinlock_rwlock_upgradable_unlock(&rwlock);
        }
    }
    kinlock_mutex_lock(&mutex);
    awake++;
    while (awake < 2) {
        kinlock_cond_wait(&cond, &mutex);
    }
    kinlock_cond_broadcast(&cond);
    kinlock_mutex_unlock(&mutex);
    return unused;
}

int main(void)
{
    run_threads(2, work, NULL);
    return 0;
}
