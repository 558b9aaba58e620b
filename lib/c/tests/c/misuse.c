/* What the header says about mistakes and about versions. */

#include "test.h"

static void *volatile none;

static void nothing(void *unused)
{
    (void)unused;
}

/* One use of an object at `place` that waits if the object is in use. */
static void use(int what, void *place)
{
    static kinlock_mutex_t mutex;
    kinlock_section_t section;
    switch (what) {
    case 0: kinlock_mutex_lock((kinlock_mutex_t *)place); break;
    case 1: CHECK(kinlock_mutex_lock_for((kinlock_mutex_t *)place, 0) != 1); break;
    case 2: kinlock_spin_lock((kinlock_spin_t *)place); break;
    case 3: kinlock_rwlock_write_lock((kinlock_rwlock_t *)place); break;
    case 4: kinlock_rwlock_read_lock((kinlock_rwlock_t *)place); break;
    case 5: kinlock_rwlock_upgradable_lock((kinlock_rwlock_t *)place); break;
    case 6:
        kinlock_mutex_lock(&mutex);
        /* A long time limit, because a wait whose time is up at once does not look at its object.
           */
        kinlock_cond_wait_for((kinlock_cond_t *)place, &mutex, 50000 * MS);
        break;
    case 7: kinlock_once((kinlock_once_t *)place, nothing, NULL); break;
    /* These uses never wait. */
    case 8: kinlock_mutex_unlock((kinlock_mutex_t *)place); break;
    case 9: CHECK(kinlock_mutex_trylock((kinlock_mutex_t *)place) != 1); break;
    case 10: kinlock_spin_unlock((kinlock_spin_t *)place); break;
    case 11: kinlock_rwlock_write_unlock((kinlock_rwlock_t *)place); break;
    case 12: kinlock_rwlock_read_unlock((kinlock_rwlock_t *)place); break;
    case 13: kinlock_cond_signal((kinlock_cond_t *)place); break;
    case 14: kinlock_cond_broadcast((kinlock_cond_t *)place); break;
    case 15: kinlock_once_is_done((kinlock_once_t *)place); break;
    case 16:
        CHECK(kinlock_invalidation_begin((kinlock_invalidation_t *)place, &section) != 1);
        break;
    case 17: kinlock_counter_add((kinlock_counter_t *)place, 1); break;
    default: kinlock_stack_push((kinlock_stack_t *)place, place);
    }
}

enum { USES_THAT_WAIT = 8, USES = 19 };

static void use_null(void *what)
{
    use(*(int *)what, none);
}

static void a_null_pointer_ends_the_process(void)
{
    int what;
    for (what = 0; what < USES; what++) {
        int status = in_child(use_null, &what);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV) {
            fprintf(stderr, "use %d of a null pointer: status %d\n", what, status);
            abort();
        }
    }
    /* Programs call these at their end, whether the objects exist or not. */
    kinlock_ids_destroy(NULL);
    kinlock_counter_destroy(NULL);
    kinlock_counters_destroy(NULL);
    kinlock_area_destroy(NULL);
    kinlock_stack_destroy(NULL);
    kinlock_invalidation_destroy(NULL);
}

static void relock(void *unused)
{
    kinlock_mutex_t lock = KINLOCK_MUTEX_INIT;
    (void)unused;
    kinlock_mutex_lock(&lock);
    CHECK(kinlock_mutex_lock_for(&lock, 2 * MS) == ETIMEDOUT);
    _exit(7);
}

static char memory[64] __attribute__((aligned(64)));

static void *misplaced(void)
{
    void *volatile place = memory + 1;
    return place;
}

/* The first use is undefined behaviour as well, but a first use of a lock does not wait. */
static void use_misaligned(void *what)
{
    use(*(int *)what, misplaced());
    use(*(int *)what == 4 ? 3 : *(int *)what, misplaced());
}

/* Runs the function in a child, and checks that the child ends by SIGABRT with a message that
   contains `text`. */
static void ends_with_message(void (*function)(void *), void *argument, const char *text)
{
    char message[512];
    int ends[2], status, saved;
    ssize_t length;
    CHECK(pipe(ends) == 0);
    saved = dup(2);
    CHECK(saved >= 0 && dup2(ends[1], 2) == 2);
    status = in_child(function, argument);
    CHECK(dup2(saved, 2) == 2);
    close(saved);
    close(ends[1]);
    length = read(ends[0], message, sizeof(message) - 1);
    close(ends[0]);
    CHECK(length >= 0);
    message[length] = 0;
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(strstr(message, text) != NULL);
}

/* A copy of a held lock is held, and no thread will release it. A copy of a free lock is free. */
static void copies_are_what_was_copied(void)
{
    kinlock_mutex_t mutex = KINLOCK_MUTEX_INIT, other_mutex;
    kinlock_spin_t spin = KINLOCK_SPIN_INIT, other_spin;
    kinlock_rwlock_t rwlock = KINLOCK_RWLOCK_INIT, other_rwlock;
    kinlock_cond_t cond = KINLOCK_COND_INIT, other_cond;
    kinlock_once_t once = KINLOCK_ONCE_INIT, other_once;

    CHECK(kinlock_mutex_lock(&mutex) == 0);
    CHECK(kinlock_spin_lock(&spin) == 0);
    CHECK(kinlock_rwlock_read_lock(&rwlock) == 0);
    other_mutex = mutex;
    other_spin = spin;
    other_rwlock = rwlock;
    CHECK(kinlock_rwlock_read_unlock(&rwlock) == 0);
    CHECK(kinlock_spin_unlock(&spin) == 0);
    CHECK(kinlock_mutex_unlock(&mutex) == 0);
    CHECK(kinlock_mutex_trylock(&other_mutex) == EBUSY);
    CHECK(kinlock_mutex_lock_for(&other_mutex, 2 * MS) == ETIMEDOUT);
    CHECK(kinlock_spin_trylock(&other_spin) == EBUSY);
    CHECK(kinlock_spin_lock_for(&other_spin, 2 * MS) == ETIMEDOUT);
    CHECK(kinlock_rwlock_write_trylock(&other_rwlock) == EBUSY);
    CHECK(kinlock_rwlock_write_lock_for(&other_rwlock, 2 * MS) == ETIMEDOUT);
    CHECK(kinlock_rwlock_read_trylock(&other_rwlock) == 0);

    other_mutex = mutex;
    other_spin = spin;
    other_rwlock = rwlock;
    CHECK(kinlock_mutex_trylock(&other_mutex) == 0);
    CHECK(kinlock_spin_trylock(&other_spin) == 0);
    CHECK(kinlock_rwlock_write_trylock(&other_rwlock) == 0);

    CHECK(kinlock_cond_wait_for(&cond, &other_mutex, MS) == ETIMEDOUT);
    other_cond = cond;
    CHECK(kinlock_cond_wait_for(&other_cond, &other_mutex, MS) == ETIMEDOUT);
    other_once = once;
    CHECK(kinlock_once(&once, nothing, NULL) == 0);
    CHECK(kinlock_once_is_done(&other_once) == 0);
    other_once = once;
    CHECK(kinlock_once_is_done(&other_once) == 1);
}

/* Readers that are never released stay counted, and the lock refuses one more. */
static void a_lock_full_of_readers_lets_no_reader_wait(void)
{
    kinlock_rwlock_t rwlock = KINLOCK_RWLOCK_INIT;
    int readers = 0, error;
    while ((error = kinlock_rwlock_read_lock(&rwlock)) == 0) {
        readers++;
    }
    CHECK(error == EAGAIN && readers == 1048575);
    CHECK(kinlock_rwlock_read_lock_recursive(&rwlock) == EAGAIN);
    CHECK(kinlock_rwlock_upgradable_lock(&rwlock) == EAGAIN);
    CHECK(kinlock_rwlock_read_lock_for(&rwlock, 100000000 * MS) == EAGAIN);
    CHECK(kinlock_rwlock_read_lock_recursive_until(&rwlock, KINLOCK_FOREVER) == EAGAIN);
    CHECK(kinlock_rwlock_upgradable_lock_for(&rwlock, 100000000 * MS) == EAGAIN);
    CHECK(kinlock_rwlock_read_trylock(&rwlock) == EBUSY);
    CHECK(kinlock_rwlock_upgradable_trylock(&rwlock) == EBUSY);
    CHECK(kinlock_rwlock_write_lock_for(&rwlock, MS) == ETIMEDOUT);
    while (readers-- > 0) {
        CHECK(kinlock_rwlock_read_unlock(&rwlock) == 0);
    }
    CHECK(kinlock_rwlock_write_trylock(&rwlock) == 0);
}

int main(void)
{
    int status = in_child(relock, NULL);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    a_null_pointer_ends_the_process();
    copies_are_what_was_copied();
    a_lock_full_of_readers_lets_no_reader_wait();
#ifdef __x86_64__
    /* Other processors may refuse the first access. */
    {
        int what;
        for (what = 0; what < USES_THAT_WAIT; what++) {
            ends_with_message(use_misaligned, &what, "is not aligned to 4 bytes");
        }
    }
#endif

    CHECK(kinlock_version() == KINLOCK_VERSION);
    {
        char expected[32];
        snprintf(expected, sizeof(expected), "%d.%d.%d", KINLOCK_VERSION_MAJOR,
                 KINLOCK_VERSION_MINOR, KINLOCK_VERSION_PATCH);
        CHECK(strcmp(kinlock_version_string(), expected) == 0);
    }
    CHECK(kinlock_version_check(KINLOCK_ABI, KINLOCK_VERSION) == 0);
    CHECK(kinlock_version_check(KINLOCK_ABI, 0) == 0);
    CHECK(kinlock_version_check(KINLOCK_ABI, KINLOCK_VERSION + 1) == ENOTSUP);
    CHECK(kinlock_version_check(KINLOCK_ABI + 1, KINLOCK_VERSION) == ENOTSUP);
    return 0;
}
