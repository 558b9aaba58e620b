// A module of C++20 that has the header in its global fragment.

module;
#include HEADER
export module counting;

static kinlock_mutex_t mutex = KINLOCK_MUTEX_INIT;
static long count;

export long add(long n)
{
    kinlock_mutex_lock(&mutex);
    const long sum = count += n;
    kinlock_mutex_unlock(&mutex);
    return sum;
}

// The importer sees the body of a template, and compiles it.
export template <class Lock> struct Both {
    Lock &first, &second;
    bool try_lock()
    {
        if (kinlock_mutex_trylock(&first) != 0) {
            return false;
        }
        if (kinlock_mutex_trylock(&second) != 0) {
            kinlock_mutex_unlock(&first);
            return false;
        }
        return true;
    }
};

export using lock_type = kinlock_mutex_t;

#ifndef KINLOCK_FALLBACK
// The addition of the header, which is assembly.
export unsigned long long add_to_counter(unsigned long long n)
{
    kinlock_ids_t *ids;
    kinlock_counter_t *counter;
    if (kinlock_ids_create(&ids, KINLOCK_IDS_ANY, 0) != 0 ||
        kinlock_counter_create(ids, &counter) != 0) {
        return 0;
    }
    kinlock_counter_add(counter, n);
    const unsigned long long sum = kinlock_counter_sum(counter);
    kinlock_counter_destroy(counter);
    kinlock_ids_destroy(ids);
    return sum;
}
#endif
