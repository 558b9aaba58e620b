/* For ThreadSanitizer, which has to report a race with RACE, and none without it. All data that a
   lock protects is changed by plain accesses. */

#include "test.h"

static kinlock_mutex_t mutex;
static kinlock_cond_t cond;
static kinlock_rwlock_t rwlock;
static kinlock_spin_t spin;
static kinlock_once_t once;
static long of_mutex, of_rwlock, of_spin, of_once, awake;
static kinlock_once_t given;
static long of_given;
#ifndef KINLOCK_FALLBACK
static kinlock_stack_t *stack;
static long on_stack[1];
#endif
#ifdef RACE
static long of_nothing;
#endif

static void set_given(void *unused)
{
    (void)unused;
    of_given = 9;
}

static void set_up(void *unused)
{
    (void)unused;
    of_once = 7;
}

/* Only the stack and kinlock_once order these threads. */
static void *give(void *unused)
{
#ifndef KINLOCK_FALLBACK
    on_stack[0] = 1;
    kinlock_stack_push(stack, &on_stack[0]);
#endif
    kinlock_once(&given, set_given, NULL);
    return unused;
}

static void *get(void *unused)
{
#ifndef KINLOCK_FALLBACK
    long *popped;
    while ((popped = (long *)kinlock_stack_pop(stack)) == NULL) {
        sleep_ms(1);
    }
    CHECK(*popped == 1);
#endif
    while (!kinlock_once_is_done(&given)) {
        sleep_ms(1);
    }
    CHECK(of_given == 9);
    return unused;
}

static void hand_over(void)
{
    pthread_t giver, getter;
#ifndef KINLOCK_FALLBACK
    kinlock_ids_t *ids;
    CHECK(kinlock_ids_create(&ids, KINLOCK_IDS_ANY, 0) == 0);
    CHECK(kinlock_stack_create(ids, &stack) == 0);
#endif
    getter = start(get, NULL);
    giver = start(give, NULL);
    join(giver);
    join(getter);
#ifndef KINLOCK_FALLBACK
    kinlock_stack_destroy(stack);
    kinlock_ids_destroy(ids);
#endif
}

static void *work(void *unused)
{
    int i;
#ifdef RACE
    /* Before the first lock, because locks that are taken and released would order the threads. */
    of_nothing++;
#endif
    kinlock_once(&once, set_up, NULL);
    CHECK(of_once == 7);
    for (i = 0; i < 500; i++) {
        if (kinlock_mutex_trylock(&mutex) != 0) {
            kinlock_mutex_lock(&mutex);
        }
        of_mutex++;
        kinlock_mutex_unlock(&mutex);
        while (kinlock_spin_lock_for(&spin, MS) != 0) {
        }
        of_spin++;
        kinlock_spin_unlock(&spin);
        kinlock_rwlock_write_lock(&rwlock);
        of_rwlock++;
        kinlock_rwlock_downgrade(&rwlock);
        CHECK(of_rwlock > 0);
        kinlock_rwlock_read_unlock(&rwlock);
        kinlock_rwlock_upgradable_lock(&rwlock);
        if (kinlock_rwlock_tryupgrade(&rwlock) == 0) {
            of_rwlock++;
            kinlock_rwlock_write_unlock(&rwlock);
        } else {
            kinlock_rwlock_upgradable_unlock(&rwlock);
        }
    }
    kinlock_mutex_lock(&mutex);
    awake++;
    while (awake < 2) {
        kinlock_cond_wait(&cond, &mutex);
    }
    kinlock_cond_broadcast(&cond);
    kinlock_mutex_unlock(&mutex);
    return unused;
}

int main(void)
{
    run_threads(2, work, NULL);
    hand_over();
    return 0;
}
