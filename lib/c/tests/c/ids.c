/* Concurrency IDs, with both backends. */

#include "test.h"

enum { THREADS = 4, ADDS = 20000 };

static kinlock_ids_t *ids;
static kinlock_counter_t *counter;
static kinlock_counters_t *counters;
static kinlock_area_t *area;
static kinlock_stack_t *stack;

static void touch(void *memory, void *argument)
{
    unsigned long *own = (unsigned long *)memory;
    CHECK((uintptr_t)memory % 128 == 0);
    /* Atomic, because kinlock_area_each reads it at the same time. */
    __atomic_store_n(own, *own + *(unsigned long *)argument, __ATOMIC_RELAXED);
}

static void sum_up(void *memory, void *argument)
{
    *(unsigned long *)argument += __atomic_load_n((unsigned long *)memory, __ATOMIC_RELAXED);
}

static void *work(void *unused)
{
    unsigned long i, two = 2;
    for (i = 0; i < ADDS; i++) {
        kinlock_counter_add(counter, 3);
        CHECK(kinlock_counters_add(counters, i % 5, 1) == 0);
        kinlock_area_with(area, touch, &two);
        if (i % 16 == 0) {
            kinlock_stack_push(stack, (void *)(uintptr_t)(i + 1));
        }
    }
    if (kinlock_ids_backend(ids) == KINLOCK_IDS_LEASE) {
        kinlock_lease_t lease;
        CHECK(kinlock_ids_enter(ids, &lease) == 0);
        CHECK(lease.id < kinlock_ids_max(ids));
        for (i = 0; i < ADDS; i++) {
            kinlock_counter_add_with(counter, &lease, 1);
        }
        kinlock_ids_leave(&lease);
    } else {
        kinlock_lease_t lease;
        CHECK(kinlock_ids_enter(ids, &lease) == ENOTSUP);
        CHECK(kinlock_ids_momentary(ids) < (int64_t)kinlock_ids_max(ids));
        kinlock_counter_add(counter, ADDS);
    }
    return unused;
}

static void with_backend(int backend)
{
    unsigned long sum = 0, on_stack = 0;
    uint64_t of_one;
    size_t index;
    CHECK(kinlock_ids_create(&ids, backend, 0) == 0);
    CHECK(kinlock_ids_backend(ids) == backend);
    CHECK(kinlock_counter_create(ids, &counter) == 0);
    CHECK(kinlock_counters_create(ids, 0, &counters) == EINVAL);
    CHECK(kinlock_counters_create(ids, 5, &counters) == 0);
    CHECK(kinlock_area_create(ids, 0, &area) == EINVAL);
    CHECK(kinlock_area_create(ids, sizeof(unsigned long), &area) == 0);
    CHECK(kinlock_stack_create(ids, &stack) == 0);
    run_threads(THREADS, work, NULL);

    CHECK(kinlock_counter_sum(counter) == (uint64_t)THREADS * ADDS * 4);
    for (index = 0; index < 5; index++) {
        CHECK(kinlock_counters_sum(counters, index, &of_one) == 0);
        CHECK(of_one == (uint64_t)THREADS * ADDS / 5);
    }
    CHECK(kinlock_counters_add(counters, 5, 1) == EINVAL);
    CHECK(kinlock_counters_sum(counters, 5, &of_one) == EINVAL);
    kinlock_area_each(area, sum_up, &sum);
    CHECK(sum == (unsigned long)THREADS * ADDS * 2);
    while (kinlock_stack_pop(stack) != NULL) {
        on_stack++;
    }
    CHECK(on_stack == (unsigned long)THREADS * ADDS / 16);

    kinlock_stack_destroy(stack);
    kinlock_area_destroy(area);
    kinlock_counters_destroy(counters);
    kinlock_counter_destroy(counter);
    kinlock_ids_destroy(ids);
}

int main(void)
{
    kinlock_ids_t *any;
    with_backend(KINLOCK_IDS_LEASE);
    CHECK(kinlock_ids_create(&any, KINLOCK_IDS_ANY, 0) == 0);
    if (has_restartable("ids.c")) {
        CHECK(kinlock_ids_backend(any) == KINLOCK_IDS_RESTARTABLE);
    }
    if (kinlock_ids_backend(any) == KINLOCK_IDS_RESTARTABLE) {
        with_backend(KINLOCK_IDS_RESTARTABLE);
    } else {
        kinlock_ids_t *none;
        CHECK(kinlock_ids_create(&none, KINLOCK_IDS_RESTARTABLE, 0) == ENOTSUP);
    }
    kinlock_ids_destroy(any);
    CHECK(kinlock_ids_create(&any, 3, 0) == EINVAL);
    CHECK(kinlock_ids_create(&any, KINLOCK_IDS_LEASE, UINT32_MAX) == EINVAL);
    /* Null pointers are accepted. */
    kinlock_ids_destroy(NULL);
    kinlock_counter_destroy(NULL);
    return 0;
}
