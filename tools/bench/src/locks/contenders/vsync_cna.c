/* libvsync's CNA lock is a set of inline functions; this gives them addresses. */
#include <vsync/spinlock/cnalock.h>

_Static_assert(sizeof(cna_node_t) <= 128 && _Alignof(cna_node_t) <= 128,
	       "a node has the room that its caller has");

void kinlock_vsync_cna_lock(cnalock_t *lock, cna_node_t *node, vuint32_t domain) {
	cnalock_acquire(lock, node, domain);
}

void kinlock_vsync_cna_unlock(cnalock_t *lock, cna_node_t *node, vuint32_t domain) {
	cnalock_release(lock, node, domain);
}
