/* liburcu, in the flavour whose readers need no barrier if the kernel has membarrier. */
#include <urcu/urcu-memb.h>

void kinlock_urcu_register(void) { urcu_memb_register_thread(); }

void kinlock_urcu_unregister(void) { urcu_memb_unregister_thread(); }

void kinlock_urcu_begin(void) { urcu_memb_read_lock(); }

void kinlock_urcu_end(void) { urcu_memb_read_unlock(); }

void kinlock_urcu_synchronize(void) { urcu_memb_synchronize_rcu(); }
