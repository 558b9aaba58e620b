/* A shared object that contains the header's inline addition, and is loaded and unloaded: see
   unload.c. */

#include "test.h"

#ifdef __cplusplus
extern "C" {
#endif
void plugin_add(kinlock_counter_t *counter);
#ifdef __cplusplus
}
#endif

void plugin_add(kinlock_counter_t *counter)
{
    kinlock_counter_add(counter, 1);
}
