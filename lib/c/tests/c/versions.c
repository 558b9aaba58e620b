/* A program that was compiled with a header of another version. EXPECTED is what
   kinlock_version_check returns. With an argument the program calls a function that only a later
   library has. */

#include <errno.h>
#include <kinlock.h>

#ifdef LATER
int kinlock_from_later(void);
#endif

int main(int argc, char **argv)
{
    static kinlock_mutex_t mutex = KINLOCK_MUTEX_INIT;
    (void)argv;
    if (kinlock_version_check(KINLOCK_ABI, KINLOCK_VERSION) != EXPECTED) {
        return 1;
    }
    /* Functions that both versions have work. */
    if (kinlock_mutex_lock(&mutex) != 0 || kinlock_mutex_trylock(&mutex) != EBUSY) {
        return 2;
    }
    kinlock_mutex_unlock(&mutex);
#ifdef LATER
    if (argc > 1) {
        kinlock_from_later();
    }
#endif
    return argc > 1 ? 3 : 0;
}
