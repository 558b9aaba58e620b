/* The mutex: exclusion, error numbers, time limits, release by another thread, freed memory. */

#include "test.h"
#ifndef _WIN32
#include <sys/mman.h>
#endif

static kinlock_mutex_t lock = KINLOCK_MUTEX_INIT;
static unsigned long count;

static void *add(void *unused)
{
    int i;
    errno = 1234;
    for (i = 0; i < 20000; i++) {
        switch (i % 4) {
        case 0:
            CHECK(kinlock_mutex_lock(&lock) == 0);
            break;
        case 1:
            while (kinlock_mutex_lock_for(&lock, MS) != 0) {
            }
            break;
        case 2:
            CHECK(kinlock_mutex_lock_until(&lock, KINLOCK_FOREVER) == 0);
            break;
        default:
            if (kinlock_mutex_trylock(&lock) != 0) {
                CHECK(kinlock_mutex_lock_for(&lock, KINLOCK_FOREVER) == 0);
            }
        }
        count++;
        if (i % 64 == 0) {
            CHECK(kinlock_mutex_unlock_fair(&lock) == 0);
        } else {
            CHECK(kinlock_mutex_unlock(&lock) == 0);
        }
    }
    CHECK(errno == 1234);
    return unused;
}

static void excludes(void)
{
    run_threads(4, add, NULL);
    CHECK(count == 80000);
    CHECK(!kinlock_mutex_is_locked(&lock));
}

static void *fails(void *unused)
{
    uint64_t before;
    CHECK(kinlock_mutex_is_locked(&lock) == 1);
    CHECK(kinlock_mutex_trylock(&lock) == EBUSY);
    CHECK(kinlock_mutex_lock_for(&lock, 0) == ETIMEDOUT);
    CHECK(kinlock_mutex_lock_until(&lock, 0) == ETIMEDOUT);
    before = kinlock_now();
    CHECK(kinlock_mutex_lock_for(&lock, 5 * MS) == ETIMEDOUT);
    CHECK(kinlock_now() - before >= 5 * MS);
    before = kinlock_now();
    CHECK(kinlock_mutex_lock_until(&lock, before + 5 * MS) == ETIMEDOUT);
    CHECK(kinlock_now() - before >= 5 * MS);
    return unused;
}

static void *release(void *unused)
{
    CHECK(kinlock_mutex_unlock(&lock) == 0);
    return unused;
}

static void a_held_lock_is_refused(void)
{
    CHECK(kinlock_mutex_trylock(&lock) == 0);
    run_threads(1, fails, NULL);
#ifdef KINLOCK_FALLBACK
    release(NULL);
#else
    /* Another thread may release it. */
    run_threads(1, release, NULL);
#endif
    CHECK(kinlock_mutex_lock_for(&lock, 0) == 0);
    CHECK(kinlock_mutex_unlock(&lock) == 0);
}

#ifndef _WIN32
/* An object that the last user removes as soon as it has had the lock. The object has its own page,
   so that an access after the removal ends the process. */
struct object {
    kinlock_mutex_t lock;
    int users;
};

static int ready, round_number;

static size_t page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void *use(void *argument)
{
    struct object *object = (struct object *)argument;
    int left, i;
    ADD(ready, 1);
    while (LOAD(ready) < 2) {
    }
    CHECK(kinlock_mutex_lock(&object->lock) == 0);
    left = --object->users;
    /* Gives the other thread time to wait, and in some rounds to sleep. */
    for (i = 0; left == 1 && i < round_number * 200; i++) {
        (void)LOAD(ready);
    }
    kinlock_mutex_unlock(&object->lock);
    if (left == 0) {
        /* The other thread's unlock may still be under way. */
        CHECK(mprotect(object, page(), PROT_NONE) == 0);
    }
    return NULL;
}

static void memory_may_go_once_another_thread_has_had_the_lock(void)
{
    for (round_number = 0; round_number < 500; round_number++) {
        void *memory = mmap(NULL, page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                            0);
        struct object *object = (struct object *)memory;
        CHECK(memory != MAP_FAILED);
        object->users = 2;
        ready = 0;
        run_threads(2, use, object);
        CHECK(munmap(memory, page()) == 0);
    }
}

#endif

int main(void)
{
    excludes();
    a_held_lock_is_refused();
#ifndef _WIN32
    memory_may_go_once_another_thread_has_had_the_lock();
#endif
    return 0;
}
