/* What only kinlock_fallback.h promises: answers on any machine, and that zeros are free locks.
   Without FALLBACK this would test nothing, so that is an error. With ABSENT it must not compile.
   */

#include "test.h"

#ifndef KINLOCK_FALLBACK
#error "compile with -DFALLBACK"
#endif

#ifdef ABSENT
ABSENT *absent;
#endif

enum { THREADS = 8, ROUNDS = 300 };

/* All zeros, so that threads meet where the system's objects are made. */
static struct {
    kinlock_mutex_t mutex;
    kinlock_cond_t cond;
    kinlock_rwlock_t rwlock;
    kinlock_spin_t spin;
    int in_mutex, in_spin, written, arrived;
} rounds[ROUNDS];

static void *use_all(void *unused)
{
    int i;
    for (i = 0; i < ROUNDS; i++) {
        kinlock_spin_lock(&rounds[i].spin);
        rounds[i].in_spin++;
        kinlock_spin_unlock(&rounds[i].spin);
        kinlock_rwlock_write_lock(&rounds[i].rwlock);
        rounds[i].written++;
        kinlock_rwlock_write_unlock(&rounds[i].rwlock);
        kinlock_mutex_lock(&rounds[i].mutex);
        rounds[i].in_mutex++;
        if (++rounds[i].arrived == THREADS) {
            kinlock_cond_broadcast(&rounds[i].cond);
        }
        while (rounds[i].arrived < THREADS) {
            kinlock_cond_wait(&rounds[i].cond, &rounds[i].mutex);
        }
        kinlock_mutex_unlock(&rounds[i].mutex);
    }
    return unused;
}

static void a_first_use_by_many_threads_is_one_first_use(void)
{
    int i;
    run_threads(THREADS, use_all, NULL);
    for (i = 0; i < ROUNDS; i++) {
        CHECK(rounds[i].in_mutex == THREADS);
        CHECK(rounds[i].in_spin == THREADS);
        CHECK(rounds[i].written == THREADS);
    }
}

static kinlock_rwlock_t lock;
static int end, written, been_read;

/* Always takes the lock again at once, so that it is hardly ever free. */
static void *write_on(void *unused)
{
    while (!LOAD(end)) {
        kinlock_rwlock_write_lock(&lock);
        kinlock_rwlock_write_unlock(&lock);
        ADD(written, 1);
    }
    return unused;
}

static void *read_on(void *unused)
{
    while (!LOAD(end)) {
        kinlock_rwlock_read_lock(&lock);
        sleep_ms(1);
        kinlock_rwlock_read_unlock(&lock);
        ADD(been_read, 1);
    }
    return unused;
}

static void neither_readers_nor_writers_starve(void)
{
    pthread_t threads[6];
    int i;
    for (i = 0; i < 6; i++) {
        threads[i] = start(i % 2 == 0 ? read_on : write_on, NULL);
    }
    while (LOAD(written) < 20 || LOAD(been_read) < 20) {
        sleep_ms(1);
    }
    STORE(end, 1);
    for (i = 0; i < 6; i++) {
        join(threads[i]);
    }
    CHECK(!kinlock_rwlock_is_locked(&lock));
}

static int order, of_reader, of_writer;

static void *read_once(void *unused)
{
    kinlock_rwlock_read_lock(&lock);
    of_reader = ADD(order, 1);
    kinlock_rwlock_read_unlock(&lock);
    return unused;
}

static void *write_once(void *unused)
{
    kinlock_rwlock_write_lock(&lock);
    of_writer = ADD(order, 1);
    kinlock_rwlock_write_unlock(&lock);
    return unused;
}

/* Returns when these numbers of readers and writers wait for the lock. */
static void until_waiting(uint32_t readers, uint32_t writers)
{
    int all = 0;
    while (!all) {
        sleep_ms(1);
        kinlock_fallback_lock(&lock.mutex);
        all = lock.readers_waiting == readers && lock.writers_waiting == writers;
        kinlock_fallback_unlock(&lock.mutex);
    }
}

static void a_reader_that_waits_goes_before_the_next_writer(void)
{
    pthread_t reader, writer;
    CHECK(kinlock_rwlock_write_lock(&lock) == 0);
    writer = start(write_once, NULL);
    until_waiting(0, 1);
    reader = start(read_once, NULL);
    until_waiting(1, 1);
    CHECK(kinlock_rwlock_write_unlock(&lock) == 0);
    join(reader);
    join(writer);
    CHECK(of_reader == 1 && of_writer == 2);
}

static int gave_up;

static void *write_briefly(void *unused)
{
    CHECK(kinlock_rwlock_write_lock_for(&lock, 20 * MS) == ETIMEDOUT);
    STORE(gave_up, 1);
    return unused;
}

static void *read_behind(void *unused)
{
    CHECK(kinlock_rwlock_read_lock(&lock) == 0);
    CHECK(kinlock_rwlock_read_unlock(&lock) == 0);
    return unused;
}

/* A reader that waits behind a writer enters when the writer gives up, though no thread has left
   the lock. */
static void who_gives_up_lets_others_go(void)
{
    pthread_t writer, reader;
    CHECK(kinlock_rwlock_read_lock(&lock) == 0);
    writer = start(write_briefly, NULL);
    while (!LOAD(gave_up) && kinlock_rwlock_read_trylock(&lock) == 0) {
        kinlock_rwlock_read_unlock(&lock);
    }
    reader = start(read_behind, NULL);
    join(reader);
    join(writer);
    CHECK(kinlock_rwlock_read_unlock(&lock) == 0);
}

static void what_is_unknown_is_said_to_be(void)
{
    uint64_t value = 7;
    char name[32];
    uint64_t now = kinlock_now();
    CHECK(kinlock_now() >= now);
    CHECK(kinlock_cpu() == -1);
    CHECK(kinlock_node() == -1);
    CHECK(kinlock_cache() == -1);
    CHECK(kinlock_usable_cpus() >= 1);
    CHECK(kinlock_set("KINLOCK_QUANTUM", "fair") == ENOENT);
    kinlock_stats_enable(1);
    CHECK(kinlock_stats_count() == 0);
    CHECK(kinlock_stats_read(&value, 1) == 0 && value == 7);
    CHECK(kinlock_stats_name(0, name, sizeof(name)) == EINVAL);
    CHECK(kinlock_version() == KINLOCK_VERSION);
    CHECK(kinlock_version_check(KINLOCK_ABI, KINLOCK_VERSION) == 0);
    CHECK(kinlock_version_check(KINLOCK_ABI, KINLOCK_VERSION + 1) == ENOTSUP);
}

static void a_reset_lock_is_free(void)
{
    static kinlock_mutex_t mutex;
    static kinlock_spin_t spin;
    CHECK(kinlock_mutex_lock(&mutex) == 0);
    CHECK(kinlock_spin_lock(&spin) == 0);
    CHECK(kinlock_rwlock_write_lock(&lock) == 0);
    kinlock_mutex_reset_in_child(&mutex);
    kinlock_spin_reset_in_child(&spin);
    kinlock_rwlock_reset_in_child(&lock);
    CHECK(kinlock_mutex_trylock(&mutex) == 0);
    CHECK(kinlock_spin_trylock(&spin) == 0);
    CHECK(kinlock_rwlock_write_trylock(&lock) == 0);
}

#if !defined(_WIN32) && !defined(__ANDROID__)
static kinlock_mutex_t held_mutex, free_mutex;
static kinlock_spin_t held_spin;
static kinlock_rwlock_t held_rwlock;
static kinlock_cond_t nobody_signals;
static int waited;

/* Long enough for waiters to have tried often, and to sleep. */
enum { A_WHILE = 50 * 1000000 };

/* Waits in a cancelled thread, which the system's functions that sleep would end. */
static void *waits_though_cancelled(void *unused)
{
    CHECK(pthread_cancel(pthread_self()) == 0);
    CHECK(kinlock_mutex_lock_for(&held_mutex, A_WHILE) == ETIMEDOUT);
    CHECK(kinlock_spin_lock_for(&held_spin, A_WHILE) == ETIMEDOUT);
    CHECK(kinlock_rwlock_read_lock_for(&held_rwlock, A_WHILE) == ETIMEDOUT);
    CHECK(kinlock_rwlock_write_lock_for(&held_rwlock, A_WHILE) == ETIMEDOUT);
    kinlock_mutex_lock(&free_mutex);
    CHECK(kinlock_cond_wait_for(&nobody_signals, &free_mutex, A_WHILE) == ETIMEDOUT);
    kinlock_mutex_unlock(&free_mutex);
    waited = 1;
    pthread_testcancel();
    return unused;
}

static void no_function_is_a_cancellation_point(void)
{
    pthread_t thread;
    void *result;
    kinlock_mutex_lock(&held_mutex);
    kinlock_spin_lock(&held_spin);
    kinlock_rwlock_write_lock(&held_rwlock);
    CHECK(pthread_create(&thread, NULL, waits_though_cancelled, NULL) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(waited && result == PTHREAD_CANCELED);
    kinlock_rwlock_write_unlock(&held_rwlock);
    kinlock_spin_unlock(&held_spin);
    kinlock_mutex_unlock(&held_mutex);
}
#endif

int main(void)
{
    a_first_use_by_many_threads_is_one_first_use();
    neither_readers_nor_writers_starve();
    a_reader_that_waits_goes_before_the_next_writer();
    who_gives_up_lets_others_go();
    what_is_unknown_is_said_to_be();
    a_reset_lock_is_free();
#if !defined(_WIN32) && !defined(__ANDROID__)
    no_function_is_a_cancellation_point();
#endif
    return 0;
}
