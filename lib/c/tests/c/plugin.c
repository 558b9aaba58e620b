/* A shared object with the header's addition in it, which is loaded and unloaded: see unload.c. */

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
