/* For clang's thread safety analysis, which has to warn with MISTAKE, and must not warn without it.
   */

#include <kinlock.h>

static kinlock_mutex_t mutex = KINLOCK_MUTEX_INIT;
static kinlock_rwlock_t rwlock = KINLOCK_RWLOCK_INIT;
static kinlock_cond_t cond = KINLOCK_COND_INIT;
static int of_mutex __attribute__((guarded_by(mutex)));
static int of_rwlock __attribute__((guarded_by(rwlock)));

int main(void)
{
    int seen;
    kinlock_mutex_lock(&mutex);
    while (of_mutex != 0) {
        kinlock_cond_wait(&cond, &mutex);
    }
    of_mutex++;
    kinlock_mutex_unlock(&mutex);
#ifdef MISTAKE
    of_mutex++;
#endif
    if (kinlock_mutex_trylock(&mutex) == 0) {
        of_mutex++;
        kinlock_mutex_unlock(&mutex);
    }
    kinlock_rwlock_read_lock(&rwlock);
    seen = of_rwlock;
    kinlock_rwlock_read_unlock(&rwlock);
    kinlock_rwlock_write_lock(&rwlock);
    of_rwlock = seen;
    kinlock_rwlock_write_unlock(&rwlock);
    return 0;
}
