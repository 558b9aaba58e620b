/* Concurrency Kit's MCS lock is a set of inline functions; this gives them addresses. */
#include <ck_spinlock.h>
#include <stddef.h>

size_t kinlock_ck_mcs_node_size(void) { return sizeof(ck_spinlock_mcs_context_t); }

void kinlock_ck_mcs_lock(ck_spinlock_mcs_t *lock, ck_spinlock_mcs_context_t *node) {
	ck_spinlock_mcs_lock(lock, node);
}

void kinlock_ck_mcs_unlock(ck_spinlock_mcs_t *lock, ck_spinlock_mcs_context_t *node) {
	ck_spinlock_mcs_unlock(lock, node);
}
