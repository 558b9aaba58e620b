/* Threads that wait for a lock queue for it, so the library has found its tables. It would do
   without queues, for example, in a shared object that it cannot keep loaded. */

#include "test.h"

static kinlock_mutex_t lock;

static void *take(void *unused)
{
    kinlock_mutex_lock(&lock);
    kinlock_mutex_unlock(&lock);
    return unused;
}

/* The first seventeen waits of a process do not queue, because the topology is not known yet. */
static void *wait_briefly(void *unused)
{
    int i;
    for (i = 0; i < 32; i++) {
        CHECK(kinlock_mutex_lock_for(&lock, 1000) == ETIMEDOUT);
    }
    return unused;
}

static uint64_t counted(const char *name)
{
    uint64_t values[64];
    size_t count = kinlock_stats_read(values, 64), index;
    char found[32];
    for (index = 0; index < count; index++) {
        CHECK(kinlock_stats_name(index, found, sizeof(found)) == 0);
        if (strcmp(found, name) == 0) {
            return values[index];
        }
    }
    CHECK(!"there is such a counter");
    return 0;
}

int main(void)
{
    pthread_t threads[3];
    int i;
    kinlock_stats_enable(1);
    kinlock_mutex_lock(&lock);
    run_threads(1, wait_briefly, NULL);
    for (i = 0; i < 3; i++) {
        threads[i] = start(take, NULL);
    }
    /* A waiter that runs queues after some microseconds. */
    while (counted("queued") == 0 && counted("slot_fallback") == 0) {
        sleep_ms(1);
    }
    kinlock_mutex_unlock(&lock);
    for (i = 0; i < 3; i++) {
        join(threads[i]);
    }
    CHECK(counted("queued") > 0);
    CHECK(counted("slot_fallback") == 0);
    return 0;
}
