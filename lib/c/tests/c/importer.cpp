// Imports the module of module.cpp, and includes the header itself as well.

#include HEADER
import counting;

int main()
{
    static kinlock_mutex_t mine = KINLOCK_MUTEX_INIT, other = KINLOCK_MUTEX_INIT;
    if (add(3) != 3 || add(4) != 7) {
        return 1;
    }
    Both<lock_type> both{mine, other};
    kinlock_mutex_lock(&other);
    if (both.try_lock() || kinlock_mutex_is_locked(&mine)) {
        return 2;
    }
    kinlock_mutex_unlock(&other);
    if (!both.try_lock() || both.try_lock()) {
        return 3;
    }
#ifndef KINLOCK_FALLBACK
    if (add_to_counter(5) != 5) {
        return 4;
    }
#endif
    return 0;
}
