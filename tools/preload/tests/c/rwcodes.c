/* The return codes of every function of reader-writer locks, for each preference. */
#include "common.h"

static pthread_rwlock_t *lock;

/* What another thread that waits in this way gets, which releases the lock again. */
#define WAY(name, call)                      \
    static void *name(void *until)           \
    {                                        \
        int error = call;                    \
        if (error == 0)                      \
            pthread_rwlock_unlock(lock);     \
        return (void *)(intptr_t)error;      \
    }

WAY(try_to_read, pthread_rwlock_tryrdlock(lock))
WAY(try_to_write, pthread_rwlock_trywrlock(lock))
WAY(read_until, pthread_rwlock_timedrdlock(lock, until))
WAY(write_until, pthread_rwlock_timedwrlock(lock, until))
WAY(read_by_clock, pthread_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, until))
WAY(write_by_clock, pthread_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, until))
WAY(read_by_bad_clock, pthread_rwlock_clockrdlock(lock, CLOCK_PROCESS_CPUTIME_ID, until))
WAY(write_by_bad_clock, pthread_rwlock_clockwrlock(lock, CLOCK_PROCESS_CPUTIME_ID, until))

static void of_others(void)
{
    struct timespec past = in_ms(CLOCK_REALTIME, -10), soon = in_ms(CLOCK_REALTIME, 20);
    struct timespec by_clock = in_ms(CLOCK_MONOTONIC, 20), bad = {0, 1000000000}, negative = {-1, 0};
    SHOW(elsewhere(try_to_read, NULL));
    SHOW(elsewhere(try_to_write, NULL));
    SHOW(elsewhere(read_until, &past));
    SHOW(elsewhere(write_until, &past));
    SHOW(elsewhere(read_until, &negative));
    SHOW(elsewhere(write_until, &negative));
    SHOW(elsewhere(read_until, &soon));
    soon = in_ms(CLOCK_REALTIME, 20);
    SHOW(elsewhere(write_until, &soon));
    SHOW(elsewhere(read_by_clock, &by_clock));
    by_clock = in_ms(CLOCK_MONOTONIC, 20);
    SHOW(elsewhere(write_by_clock, &by_clock));
    SHOW(elsewhere(read_until, &bad));
    SHOW(elsewhere(write_until, &bad));
    SHOW(elsewhere(read_by_bad_clock, &by_clock));
    SHOW(elsewhere(write_by_bad_clock, &by_clock));
}

static void exercise(const char *what)
{
    struct timespec past = in_ms(CLOCK_REALTIME, -10), bad = {0, -1}, soon = in_ms(CLOCK_MONOTONIC, 20);
    printf("---- %s\nfree\n", what);
    of_others();
    SHOW(pthread_rwlock_timedrdlock(lock, &past));
    SHOW(pthread_rwlock_unlock(lock));
    SHOW(pthread_rwlock_timedwrlock(lock, &past));
    SHOW(pthread_rwlock_unlock(lock));
    SHOW(pthread_rwlock_timedrdlock(lock, &bad));
    SHOW(pthread_rwlock_timedwrlock(lock, &bad));
    SHOW(pthread_rwlock_clockrdlock(lock, CLOCK_BOOTTIME, &soon));
    SHOW(pthread_rwlock_clockwrlock(lock, CLOCK_BOOTTIME, &soon));
    printf("one writes\n");
    SHOW(pthread_rwlock_wrlock(lock));
    of_others();
    SHOW(pthread_rwlock_rdlock(lock));
    SHOW(pthread_rwlock_wrlock(lock));
    SHOW(pthread_rwlock_tryrdlock(lock));
    SHOW(pthread_rwlock_trywrlock(lock));
    SHOW(pthread_rwlock_timedrdlock(lock, &past));
    SHOW(pthread_rwlock_timedwrlock(lock, &past));
    SHOW(pthread_rwlock_timedrdlock(lock, &bad));
    SHOW(pthread_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, &soon));
    SHOW(pthread_rwlock_unlock(lock));
    printf("one reads, three times\n");
    SHOW(pthread_rwlock_rdlock(lock));
    SHOW(pthread_rwlock_tryrdlock(lock));
    SHOW(pthread_rwlock_timedrdlock(lock, &past));
    of_others();
    SHOW(pthread_rwlock_trywrlock(lock));
    SHOW(pthread_rwlock_timedwrlock(lock, &past));
    SHOW(pthread_rwlock_unlock(lock));
    SHOW(pthread_rwlock_unlock(lock));
    SHOW(elsewhere(try_to_write, NULL));
    SHOW(pthread_rwlock_unlock(lock));
    SHOW(elsewhere(try_to_write, NULL));
    SHOW(pthread_rwlock_destroy(lock));
}

/* While a thread waits to write: what can the reader do, and what can others? */
static void *waits_to_write(void *unused)
{
    goes_to_wait();
    return (void *)(intptr_t)(pthread_rwlock_wrlock(lock) || pthread_rwlock_unlock(lock));
}

static void beside_a_waiting_writer(int recursive)
{
    CHECK(pthread_rwlock_rdlock(lock) == 0);
    pthread_t writer = start(waits_to_write, NULL);
    until_it_waits();
    /* Where writers go first, some readers may pass one that has not waited for long. */
    while (!recursive && elsewhere(try_to_read, NULL) == 0)
        nap(1);
    printf("a writer waits\n");
    SHOW(elsewhere(try_to_read, NULL));
    SHOW(elsewhere(try_to_write, NULL));
    if (recursive) {
        for (int i = 0; i < 5; i++)
            CHECK(pthread_rwlock_rdlock(lock) == 0);
        struct timespec far = in_ms(CLOCK_REALTIME, 60000);
        /* The new reader waits behind the writer, and the writer for this thread, which reads. */
        SHOW(elsewhere(read_until, &far));
        for (int i = 0; i < 5; i++)
            CHECK(pthread_rwlock_unlock(lock) == 0);
    }
    CHECK(pthread_rwlock_unlock(lock) == 0);
    CHECK(end(writer) == NULL);
    SHOW(elsewhere(try_to_write, NULL));
}

int main(void)
{
    static pthread_rwlock_t none = PTHREAD_RWLOCK_INITIALIZER;
    static pthread_rwlock_t careful = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    lock = &none;
    exercise("static");
    beside_a_waiting_writer(1);
    lock = &careful;
    exercise("static, writers first");
    beside_a_waiting_writer(0);
    static const int kinds[] = {PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_RWLOCK_PREFER_WRITER_NP,
                                PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP};
    for (int shared = 0; shared < 2; shared++) {
        for (int i = 0; i < 3; i++) {
            pthread_rwlockattr_t attributes;
            char what[40];
            snprintf(what, sizeof what, "preference %d, %s", i, shared ? "shared" : "private");
            CHECK(pthread_rwlockattr_init(&attributes) == 0);
            CHECK(pthread_rwlockattr_setkind_np(&attributes, kinds[i]) == 0);
            CHECK(pthread_rwlockattr_setpshared(&attributes, shared) == 0);
            lock = malloc(sizeof *lock);
            memset(lock, 0xff, sizeof *lock);
            SHOW(pthread_rwlock_init(lock, &attributes));
            exercise(what);
            SHOW(pthread_rwlock_init(lock, &attributes));
            beside_a_waiting_writer(kinds[i] != PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
            free(lock);
        }
    }
    return 0;
}
