/* Concurrency Kit's MCS lock is a set of inline functions; this gives them addresses. */
#include <ck_spinlock.h>

_Static_assert(sizeof(ck_spinlock_mcs_context_t) <= 32, "a node has the room that its caller has");

void kinlock_ck_mcs_lock(ck_spinlock_mcs_t *lock, ck_spinlock_mcs_context_t *node) {
	ck_spinlock_mcs_lock(lock, node);
}

void kinlock_ck_mcs_unlock(ck_spinlock_mcs_t *lock, ck_spinlock_mcs_context_t *node) {
	ck_spinlock_mcs_unlock(lock, node);
}
