/* Barriers, semaphores and joins: results, errno, and cancellation. */

#include "common.h"
#include <semaphore.h>
#include <threads.h>

static sem_t semaphore;
static pthread_barrier_t barrier;
static atomic_int last_ones, goes;

/* An errno that none of the calls sets. */
#define BEFORE ENOTRECOVERABLE
/* A call that returns -1 and sets errno. */
#define SETS(call)                                            \
    do {                                                      \
        errno = BEFORE;                                       \
        int returned = call;                                  \
        printf("%s: %d, errno %s\n", #call, returned, name(errno)); \
    } while (0)
/* A call that returns an error and leaves errno. */
#define RETURNS(call)                                         \
    do {                                                      \
        errno = BEFORE;                                       \
        int returned = call;                                  \
        printf("%s: %s, errno %s\n", #call, name(returned), name(errno)); \
    } while (0)

static int value(void)
{
    int value;
    sem_getvalue(&semaphore, &value);
    return value;
}

static void handler(int signal)
{
    (void)signal;
}

static void *interrupts(void *thread)
{
    while (!goes) {
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
        nap(5);
    }
    return NULL;
}

static void *met(void *unused)
{
    for (int i = 0; i < 100; i++)
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            last_ones++;
    return unused;
}

static void cleans(void *what)
{
    printf("%s: cleaned up\n", (const char *)what);
}

/* How a thread is made that is going to be cancelled in a wait. */
struct waiter {
    const char *what;
    int type, is_disabled, is_cancelled_before;
    pthread_t joins;
};

static void *waits(void *of)
{
    struct waiter *waiter = of;
    int old;
    if (waiter->is_disabled)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    pthread_cleanup_push(cleans, (void *)waiter->what);
    if (waiter->is_cancelled_before)
        pthread_cancel(pthread_self());
    pthread_setcanceltype(waiter->type, &old);
    goes = 1;
    if (waiter->joins)
        pthread_join(waiter->joins, NULL);
    else
        sem_wait(&semaphore);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old);
    printf("%s: type %s\n", waiter->what, old == waiter->type ? "as before" : "changed");
    pthread_cleanup_pop(0);
    return (void *)7;
}

static void cancelled(struct waiter waiter)
{
    pthread_t thread;
    void *result;
    goes = 0;
    pthread_create(&thread, NULL, waits, &waiter);
    if (!waiter.is_cancelled_before) {
        while (!goes)
            nap(1);
        nap(30);
        pthread_cancel(thread);
        if (waiter.is_disabled)
            nap(10), sem_post(&semaphore);
    }
    pthread_join(thread, &result);
    printf("%s: %s, value %d\n", waiter.what, result == PTHREAD_CANCELED ? "cancelled" : "returned",
           value());
}

/* Lives until it may end. */
static void *lives(void *may_end)
{
    while (!*(atomic_int *)may_end)
        nap(1);
    return (void *)5;
}

static int returns_nine(void *unused)
{
    (void)unused;
    nap(5);
    return 9;
}

int main(void)
{
    struct timespec soon, invalid = {0, 1000000000}, past = {1, 0};
    struct sigaction action = {.sa_handler = handler};
    pthread_t thread, self = pthread_self();
    thrd_t of_c11;
    void *result;
    int number;

    sem_init(&semaphore, 0, 3);
    SETS(sem_wait(&semaphore));
    SETS(sem_timedwait(&semaphore, &past));
    SETS(sem_timedwait(&semaphore, &invalid));
    SETS(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &past));
    SETS(sem_clockwait(&semaphore, 77, &past));
    SETS(sem_timedwait(&semaphore, &invalid));
    soon = in_ms(CLOCK_REALTIME, 20);
    SETS(sem_timedwait(&semaphore, &soon));
    soon = in_ms(CLOCK_MONOTONIC, 20);
    SETS(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &soon));
    sigaction(SIGUSR1, &action, NULL);
    pthread_create(&thread, NULL, interrupts, &self);
    SETS(sem_wait(&semaphore));
    goes = 1;
    RETURNS(pthread_join(thread, NULL));

    cancelled((struct waiter){.what = "in a wait"});
    cancelled((struct waiter){.what = "asynchronously", .type = PTHREAD_CANCEL_ASYNCHRONOUS});
    cancelled((struct waiter){.what = "disabled", .is_disabled = 1});
    sem_post(&semaphore);
    cancelled((struct waiter){.what = "before, with one free", .is_cancelled_before = 1});
    static atomic_int may_end;
    pthread_create(&thread, NULL, lives, &may_end);
    cancelled((struct waiter){.what = "in a join", .joins = thread});
    may_end = 1;
    RETURNS(pthread_join(thread, &result));
    printf("result %ld\n", (long)result);
    sem_destroy(&semaphore);

    RETURNS(pthread_join(self, NULL));
    may_end = 0;
    pthread_create(&thread, NULL, lives, &may_end);
    soon = in_ms(CLOCK_REALTIME, 5);
    RETURNS(pthread_timedjoin_np(thread, &result, &soon));
    soon = in_ms(CLOCK_MONOTONIC, 5);
    RETURNS(pthread_clockjoin_np(thread, &result, CLOCK_MONOTONIC, &soon));
    may_end = 1;
    soon = in_ms(CLOCK_MONOTONIC, 300000);
    RETURNS(pthread_clockjoin_np(thread, &result, CLOCK_MONOTONIC, &soon));
    printf("result %ld\n", (long)result);
    thrd_create(&of_c11, returns_nine, NULL);
    RETURNS(thrd_join(of_c11, &number));
    printf("result %d\n", number);

    RETURNS(pthread_barrier_init(&barrier, NULL, 0));
    RETURNS(pthread_barrier_init(&barrier, NULL, 3));
    pthread_t others[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&others[i], NULL, met, NULL);
    met(NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(others[i], NULL);
    printf("%d rounds had a last thread\n", last_ones);
    RETURNS(pthread_barrier_destroy(&barrier));
    return 0;
}
