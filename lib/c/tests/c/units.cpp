// A program of two units (UNIT is 1 or 2) that both have the same inline functions, of which the
// linker keeps one: the sequences of the others go with them.

#include "test.h"

template <class Number> void add_twice(kinlock_counter_t *counter, Number n)
{
    kinlock_counter_add(counter, static_cast<uint64_t>(n));
    kinlock_counter_add(counter, static_cast<uint64_t>(n) + 1);
}

inline void add_seven(kinlock_counter_t *counter)
{
    kinlock_counter_add(counter, 7);
}

void other_unit(kinlock_counter_t *counter);

#if UNIT == 1

int main()
{
    kinlock_ids_t *ids;
    kinlock_counter_t *counter;
    CHECK(kinlock_ids_create(&ids, KINLOCK_IDS_ANY, 0) == 0);
    CHECK(kinlock_counter_create(ids, &counter) == 0);
    if (has_restartable("units.cpp")) {
        CHECK(kinlock_ids_backend(ids) == KINLOCK_IDS_RESTARTABLE);
        CHECK(reinterpret_cast<const kinlock_counter_parts *>(counter)->area != 0);
    }
    add_twice<int>(counter, 10);
    add_seven(counter);
    other_unit(counter);
    CHECK(kinlock_counter_sum(counter) == 2 * (10 + 11 + 7));
    kinlock_counter_destroy(counter);
    kinlock_ids_destroy(ids);
    return 0;
}

#else

void other_unit(kinlock_counter_t *counter)
{
    add_twice<int>(counter, 10);
    add_seven(counter);
}

#endif
