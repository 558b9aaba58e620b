/* A shared object with its own static copy of the library: see copies.c. */

#include "test.h"

#ifdef __cplusplus
extern "C" {
#endif
void copy_work(kinlock_mutex_t *lock, kinlock_cond_t *cond, kinlock_rwlock_t *pair,
               unsigned long *data, int turns);
uintptr_t copy_address(void);
#ifdef __cplusplus
}
#endif

/* data: a counter under the mutex, a pair under the reader-writer lock. */
void copy_work(kinlock_mutex_t *lock, kinlock_cond_t *cond, kinlock_rwlock_t *pair,
               unsigned long *data, int turns)
{
    int i;
    for (i = 0; i < turns; i++) {
        kinlock_mutex_lock(lock);
        data[0]++;
        if (i % 64 == 0) {
            CHECK(kinlock_cond_wait_for(cond, lock, 1000) <= ETIMEDOUT);
        }
        kinlock_cond_signal(cond);
        kinlock_mutex_unlock(lock);
        if (i % 16 == 0) {
            kinlock_rwlock_write_lock(pair);
            data[1]++;
            data[2]++;
            kinlock_rwlock_write_unlock(pair);
        } else {
            kinlock_rwlock_read_lock(pair);
            CHECK(data[1] == data[2]);
            kinlock_rwlock_read_unlock(pair);
        }
    }
}

/* The address of this object's copy of the library. */
uintptr_t copy_address(void)
{
    return (uintptr_t)&kinlock_mutex_lock;
}
