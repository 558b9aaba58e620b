/* A bounded buffer with 16 threads: no notification is lost, and no lock is held by two. */
#include "common.h"

enum { THREADS = 8, ITEMS = 1500, ROOM = 4 };

static pthread_mutex_t mutex;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER, fewer = PTHREAD_COND_INITIALIZER;
static long items[ROOM], first, count, sum;
static atomic_int inside;
static int kind;

static void enter(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(inside++ == 0);
}

static void leave(void)
{
    CHECK(--inside == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void wait_for(pthread_cond_t *condvar, int i)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, i % 7);
    CHECK(--inside == 0);
    int error = i % 3 ? pthread_cond_wait(condvar, &mutex) : pthread_cond_timedwait(condvar, &mutex, &soon);
    CHECK(inside++ == 0);
    CHECK(error == 0 || (i % 3 == 0 && error == ETIMEDOUT));
}

static void *produce(void *unused)
{
    for (long i = 0; i < ITEMS; i++) {
        enter();
        while (count == ROOM)
            wait_for(&fewer, i);
        items[(first + count++) % ROOM] = i;
        leave();
        CHECK(pthread_cond_signal(&more) == 0);
    }
    return NULL;
}

static void *consume(void *unused)
{
    for (long i = 0; i < ITEMS; i++) {
        enter();
        while (count == 0)
            wait_for(&more, i);
        sum += items[first];
        first = (first + 1) % ROOM;
        count--;
        CHECK(pthread_cond_signal(&fewer) == 0);
        leave();
    }
    return NULL;
}

int main(void)
{
    static const int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK};
    for (kind = 0; kind < 4; kind++) {
        pthread_t threads[2 * THREADS];
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_settype(&attributes, kinds[kind % 3]);
        if (kind == 3)
            pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        CHECK(pthread_mutex_init(&mutex, &attributes) == 0);
        sum = 0;
        for (int i = 0; i < 2 * THREADS; i++)
            threads[i] = start(i % 2 ? produce : consume, NULL);
        for (int i = 0; i < 2 * THREADS; i++)
            end(threads[i]);
        printf("kind %d: sum %ld\n", kind, sum);
        SHOW(pthread_mutex_destroy(&mutex));
    }
    SHOW(pthread_cond_destroy(&more));
    SHOW(pthread_cond_destroy(&fewer));
    return 0;
}
