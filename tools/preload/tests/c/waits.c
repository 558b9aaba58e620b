/* Condition variables: return codes, clocks, and mutexes of all kinds. */
#include "common.h"

struct pair {
    pthread_mutex_t mutex;
    pthread_cond_t condvar;
    int stage, waiting;
};

static void *notify(void *argument)
{
    struct pair *pair = argument;
    int error = pthread_mutex_lock(&pair->mutex);
    CHECK(error == 0);
    pair->stage = 1;
    CHECK(pthread_cond_signal(&pair->condvar) == 0);
    CHECK(pthread_mutex_unlock(&pair->mutex) == 0);
    return NULL;
}

static void *notify_and_end(void *argument)
{
    struct pair *pair = argument;
    CHECK(pthread_mutex_lock(&pair->mutex) == 0);
    pair->stage = 1;
    CHECK(pthread_cond_broadcast(&pair->condvar) == 0);
    return NULL;
}

static void make(struct pair *pair, int type, int robust, int protocol, int mutex_shared, int condvar_shared, int clock)
{
    pthread_condattr_t c;
    memset(pair, 0x5a, sizeof *pair);
    make_mutex(&pair->mutex, type, robust, protocol, mutex_shared);
    pthread_condattr_init(&c);
    pthread_condattr_setpshared(&c, condvar_shared);
    if (clock >= 0)
        CHECK(pthread_condattr_setclock(&c, clock) == 0);
    CHECK(pthread_cond_init(&pair->condvar, &c) == 0);
    pair->stage = pair->waiting = 0;
}

/* Waits until another thread notifies, or until the time limit expires. */
static void all_waits(struct pair *pair, clockid_t clock)
{
    /* Read before the limits are calculated: on a busy machine the first wait may begin late. */
    double before = now();
    struct timespec past = in_ms(clock, -1), bad = {0, 1000000000}, until = in_ms(clock, 30), negative = {-5, 0};
    struct timespec far = in_ms(clock, 20000), monotonic = in_ms(CLOCK_MONOTONIC, 30);
    struct timespec never = {INT64_MAX, 0};
    int error;
    CHECK(pthread_mutex_lock(&pair->mutex) == 0);
    SHOW(pthread_cond_timedwait(&pair->condvar, &pair->mutex, &past));
    SHOW(pthread_cond_timedwait(&pair->condvar, &pair->mutex, &negative));
    SHOW(pthread_cond_timedwait(&pair->condvar, &pair->mutex, &bad));
    SHOW(pthread_cond_clockwait(&pair->condvar, &pair->mutex, CLOCK_BOOTTIME, &past));
    while ((error = pthread_cond_timedwait(&pair->condvar, &pair->mutex, &until)) == 0)
        ;
    printf("timedwait in vain: %s\n", name(error));
    monotonic = in_ms(CLOCK_MONOTONIC, 30);
    while ((error = pthread_cond_clockwait(&pair->condvar, &pair->mutex, CLOCK_MONOTONIC, &monotonic)) == 0)
        ;
    printf("clockwait in vain: %s\n", name(error));
    CHECK(now() - before > 0.055 && now() - before < 200);
    for (int way = 0; way < 4; way++) {
        pair->stage = 0;
        pthread_t thread = start(notify, pair);
        while (!pair->stage) {
            if (way == 0)
                error = pthread_cond_wait(&pair->condvar, &pair->mutex);
            else if (way == 1)
                error = pthread_cond_timedwait(&pair->condvar, &pair->mutex, &far);
            else if (way == 2)
                error = pthread_cond_clockwait(&pair->condvar, &pair->mutex, CLOCK_REALTIME, &never);
            else
                error = pthread_cond_timedwait(&pair->condvar, &pair->mutex, &never);
            CHECK(error == 0);
        }
        printf("way %d: notified\n", way);
        CHECK(pthread_mutex_unlock(&pair->mutex) == 0);
        end(thread);
        CHECK(pthread_mutex_lock(&pair->mutex) == 0);
    }
    CHECK(pthread_mutex_unlock(&pair->mutex) == 0);
}

static void *wait_elsewhere(void *argument)
{
    struct pair *pair = argument;
    struct timespec past = {0, 0};
    printf("not the holder: %s", name(pthread_cond_wait(&pair->condvar, &pair->mutex)));
    printf(" %s\n", name(pthread_cond_timedwait(&pair->condvar, &pair->mutex, &past)));
    return NULL;
}

static void of_every_kind(void)
{
    static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK};
    struct pair *pair = malloc(sizeof *pair);
    for (int type = 0; type < 3; type++)
        for (int more = 0; more < 7; more++) {
            int robust = more == 1 ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED;
            int protocol = more == 2 ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE;
            int mutex_shared = more == 3 || more == 4, condvar_shared = more == 4 || more == 5;
            int clock = more == 6 ? CLOCK_MONOTONIC : type == 1 ? CLOCK_REALTIME : -1;
            printf("---- type %d, variant %d\n", type, more);
            make(pair, types[type], robust, protocol, mutex_shared, condvar_shared, clock);
            SHOW(pthread_cond_signal(&pair->condvar));
            SHOW(pthread_cond_broadcast(&pair->condvar));
            all_waits(pair, more == 6 ? CLOCK_MONOTONIC : CLOCK_REALTIME);
            if (types[type] != PTHREAD_MUTEX_NORMAL) {
                CHECK(pthread_mutex_lock(&pair->mutex) == 0);
                end(start(wait_elsewhere, pair));
                CHECK(pthread_mutex_unlock(&pair->mutex) == 0);
            }
            SHOW(pthread_cond_destroy(&pair->condvar));
            SHOW(pthread_mutex_destroy(&pair->mutex));
        }
    free(pair);
}

/* The thread that notifies ends while it holds the robust mutex. The waiter is told so. */
static void dead_owner(void)
{
    struct pair *pair = malloc(sizeof *pair);
    int error = 0;
    make(pair, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, 0, 0, -1);
    CHECK(pthread_mutex_lock(&pair->mutex) == 0);
    pthread_t thread = start(notify_and_end, pair);
    while (!pair->stage && error == 0)
        error = pthread_cond_wait(&pair->condvar, &pair->mutex);
    printf("its owner has ended: %s\n", name(error));
    end(thread);
    SHOW(pthread_mutex_consistent(&pair->mutex));
    SHOW(pthread_mutex_unlock(&pair->mutex));
    free(pair);
}

static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t static_condvar = PTHREAD_COND_INITIALIZER;

int main(void)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 10);
    of_every_kind();
    dead_owner();
    for (int i = 0; i < 3; i++)
        CHECK(pthread_mutex_lock(&recursive) == 0);
    SHOW(pthread_cond_timedwait(&static_condvar, &recursive, &soon));
    for (int i = 0; i < 3; i++) {
        SHOW(elsewhere(try_mutex, &recursive));
        SHOW(pthread_mutex_unlock(&recursive));
    }
    SHOW(pthread_mutex_unlock(&recursive));
    return 0;
}
