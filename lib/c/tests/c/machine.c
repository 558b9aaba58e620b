/* Topology, knobs and statistics. */

#include "test.h"
#include <sched.h>

static kinlock_mutex_t lock;

static void *wait_a_moment(void *unused)
{
    int result = kinlock_mutex_lock_for(&lock, 20 * MS);
    CHECK(result == ETIMEDOUT);
    return unused;
}

static void the_caller_is_where_the_kernel_says(void)
{
    cpu_set_t set;
    int cpu = sched_getcpu(), cache;
    CHECK(cpu >= 0);
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(kinlock_usable_cpus() >= 1);
    CHECK(kinlock_usable_cpus() <= (uint32_t)sysconf(_SC_NPROCESSORS_ONLN));
    CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
    CHECK(kinlock_cpu() == cpu);
    /* The kernel may list threads for a moment after they have ended. */
    while (kinlock_usable_cpus() != 1) {
        sleep_ms(1);
    }
    CHECK(kinlock_node() >= -1);
    cache = kinlock_cache();
    CHECK(cache >= -1 && cache <= cpu);
}

static void contention_is_counted_once_that_is_asked_for(void)
{
    uint64_t before[64], after[64];
    size_t count = kinlock_stats_count(), index, parks = count;
    char name[32];
    CHECK(count > 0 && count <= 64);
    for (index = 0; index < count; index++) {
        CHECK(kinlock_stats_name(index, name, sizeof(name)) == 0);
        if (strcmp(name, "timeout") == 0) {
            parks = index;
        }
    }
    CHECK(parks < count);
    CHECK(kinlock_stats_name(count, name, sizeof(name)) == EINVAL);
    CHECK(kinlock_stats_name(parks, name, 7) == ERANGE);

    kinlock_mutex_lock(&lock);
    CHECK(kinlock_stats_read(before, 64) == count);
    run_threads(1, wait_a_moment, NULL);
    CHECK(kinlock_stats_read(after, count) == count);
    CHECK(after[parks] == before[parks]);
    kinlock_stats_enable(1);
    run_threads(3, wait_a_moment, NULL);
    kinlock_stats_enable(0);
    CHECK(kinlock_stats_read(after, count) == count);
    CHECK(after[parks] == before[parks] + 3);
    CHECK(kinlock_stats_read(after, 0) == 0);
    kinlock_mutex_unlock(&lock);
}

static void knobs_take_their_values_and_no_others(void)
{
    CHECK(kinlock_set("KINLOCK_DOMAIN", "planet") == EINVAL);
    CHECK(kinlock_set("KINLOCK_DOMAIN", "auto") == EINVAL);
    CHECK(kinlock_set("KINLOCK_NUMA", "off") == 0);
    CHECK(kinlock_set("KINLOCK_NUMA", "perhaps") == EINVAL);
    CHECK(kinlock_set("KINLOCK_LOCAL_LIMIT", "2^10") == 0);
    CHECK(kinlock_set("KINLOCK_LOCAL_LIMIT", "") == EINVAL);
    CHECK(kinlock_set("KINLOCK_QUANTUM", "fair") == 0);
    CHECK(kinlock_set("KINLOCK_QUANTUM", "250us") == 0);
    CHECK(kinlock_set("KINLOCK_STEALING", "off") == 0);
    CHECK(kinlock_set("KINLOCK_STEALING", "0") == EINVAL);
    CHECK(kinlock_set("KINLOCK_SLICE_EXTENSION", "on") == 0);
    CHECK(kinlock_set("KINLOCK_SLICE_EXTENSION", "1") == EINVAL);
    CHECK(kinlock_set("KINLOCK_SLICE_EXTENSION", "off") == 0);
    CHECK(kinlock_set("KINLOCK_TOPOLOGY", "0;1") == ENOENT);
    CHECK(kinlock_set("QUANTUM", "fair") == ENOENT);
    CHECK(kinlock_set("KINLOCK_QUANTUM", "\xff") == EINVAL);
}

int main(void)
{
    knobs_take_their_values_and_no_others();
    contention_is_counted_once_that_is_asked_for();
    the_caller_is_where_the_kernel_says();
    return 0;
}
