/* kinlock_once: one of many calls runs the function, and all callers see what it did. */

#include "test.h"

enum { ROUNDS = 200, THREADS = 4 };

static struct {
    kinlock_once_t once;
    int runs;
    long value;
} rounds[ROUNDS];

static void make(void *argument)
{
    long *value = (long *)argument;
    int round = (int)(((char *)value - (char *)rounds) / (ptrdiff_t)sizeof(rounds[0]));
    ADD(rounds[round].runs, 1);
    if (round % 50 == 0) {
        /* Long enough for the other threads to fall asleep. */
        sleep_ms(2);
    }
    *value = round + 1;
}

static void *call_all(void *unused)
{
    int round;
    for (round = 0; round < ROUNDS; round++) {
        CHECK(kinlock_once(&rounds[round].once, make, &rounds[round].value) == 0);
        CHECK(kinlock_once_is_done(&rounds[round].once) == 1);
        CHECK(rounds[round].value == round + 1);
    }
    return unused;
}

int main(void)
{
    static kinlock_once_t fresh = KINLOCK_ONCE_INIT;
    int round;
    CHECK(kinlock_once_is_done(&fresh) == 0);
    run_threads(THREADS, call_all, NULL);
    for (round = 0; round < ROUNDS; round++) {
        CHECK(rounds[round].runs == 1);
    }
    return 0;
}
