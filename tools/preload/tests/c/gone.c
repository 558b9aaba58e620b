/* Memory of locks is unmapped as soon as POSIX allows that. Nothing may touch it afterwards. */
#include "common.h"

struct object {
    pthread_mutex_t mutex;
    pthread_cond_t condvar;
    pthread_spinlock_t spin;
    pthread_rwlock_t rwlock;
    enum { MUTEX, SPINLOCK, RWLOCK, SORTS } sort;
    atomic_int stage, users;
};

static struct object *fresh(void)
{
    struct object *object = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(object != MAP_FAILED);
    pthread_spin_init(&object->spin, PTHREAD_PROCESS_PRIVATE);
    return object;
}

/* The thread that finds itself the last user unmaps the memory, while the other thread may still be in unlock. */
static void *last_of_two(void *argument)
{
    struct object *object = argument;
    object->stage++;
    while (object->stage < 2)
        ;
    if (object->sort == RWLOCK)
        CHECK(pthread_rwlock_rdlock(&object->rwlock) == 0 && pthread_rwlock_unlock(&object->rwlock) == 0);
    CHECK((object->sort == SPINLOCK ? pthread_spin_lock(&object->spin)
           : object->sort == RWLOCK ? pthread_rwlock_wrlock(&object->rwlock)
                                    : pthread_mutex_lock(&object->mutex)) == 0);
    int users = --object->users;
    CHECK((object->sort == SPINLOCK ? pthread_spin_unlock(&object->spin)
           : object->sort == RWLOCK ? pthread_rwlock_unlock(&object->rwlock)
                                    : pthread_mutex_unlock(&object->mutex)) == 0);
    if (users == 0) {
        CHECK(pthread_spin_destroy(&object->spin) == 0 && pthread_rwlock_destroy(&object->rwlock) == 0);
        CHECK(pthread_mutex_destroy(&object->mutex) == 0);
        CHECK(munmap(object, 4096) == 0);
    }
    return NULL;
}

/* Before that, it sleeps for the lock. */
static void *sleeps_and_ends_it(void *argument)
{
    struct object *object = argument;
    object->stage = 1;
    CHECK(pthread_mutex_lock(&object->mutex) == 0);
    CHECK(pthread_mutex_unlock(&object->mutex) == 0);
    CHECK(pthread_mutex_destroy(&object->mutex) == 0);
    CHECK(munmap(object, 4096) == 0);
    return NULL;
}

static void *waiter(void *argument)
{
    struct object *object = argument;
    CHECK(pthread_mutex_lock(&object->mutex) == 0);
    object->users++;
    while (object->stage == 0)
        CHECK(pthread_cond_wait(&object->condvar, &object->mutex) == 0);
    object->users--;
    CHECK(pthread_mutex_unlock(&object->mutex) == 0);
    return NULL;
}

/* The example of POSIX: the thread that notifies destroys the condition variable at once. Its memory goes before the
   waiters have the mutex. */
static void notify_and_destroy(int waiters, int holding, int all)
{
    static pthread_t threads[400];
    struct object *object = fresh();
    for (int i = 0; i < waiters; i++)
        threads[i] = start(waiter, object);
    while (object->users < waiters)
        sched_yield();
    CHECK(pthread_mutex_lock(&object->mutex) == 0);
    object->stage = 1;
    CHECK((all ? pthread_cond_broadcast : pthread_cond_signal)(&object->condvar) == 0);
    if (!holding)
        CHECK(pthread_mutex_unlock(&object->mutex) == 0);
    CHECK(pthread_cond_destroy(&object->condvar) == 0);
    memset(&object->condvar, 0xff, sizeof object->condvar);
    if (holding)
        CHECK(pthread_mutex_unlock(&object->mutex) == 0);
    for (int i = 0; i < waiters; i++)
        end(threads[i]);
    for (unsigned i = 0; i < sizeof object->condvar; i++)
        CHECK(((unsigned char *)&object->condvar)[i] == 0xff);
    CHECK(pthread_mutex_destroy(&object->mutex) == 0);
    CHECK(munmap(object, 4096) == 0);
}

/* A waiter that was notified destroys the condition variable, while the other thread may still be in signal. */
static void *waiter_that_ends_it(void *argument)
{
    struct object *object = argument;
    CHECK(pthread_mutex_lock(&object->mutex) == 0);
    object->users = 1;
    while (object->stage == 0)
        CHECK(pthread_cond_wait(&object->condvar, &object->mutex) == 0);
    CHECK(pthread_mutex_unlock(&object->mutex) == 0);
    CHECK(pthread_cond_destroy(&object->condvar) == 0);
    CHECK(pthread_mutex_destroy(&object->mutex) == 0);
    CHECK(munmap(object, 4096) == 0);
    return NULL;
}

int main(void)
{
    for (int i = 0; i < 450; i++) {
        struct object *object = fresh();
        object->users = 2;
        object->sort = i % SORTS;
        pthread_t other = start(last_of_two, object);
        last_of_two(object);
        end(other);
    }
    printf("unlocked and gone\n");
    for (int i = 0; i < 100; i++) {
        struct object *object = fresh();
        CHECK(pthread_mutex_lock(&object->mutex) == 0);
        pthread_t other = start(sleeps_and_ends_it, object);
        while (!object->stage)
            sched_yield();
        if (i % 4)
            nap(1);
        CHECK(pthread_mutex_unlock(&object->mutex) == 0);
        end(other);
    }
    printf("slept for and gone\n");
    for (int i = 0; i < 80; i++)
        notify_and_destroy(1 + i % 8, i / 8 % 2, i % 8);
    for (int i = 0; i < 8; i++)
        notify_and_destroy(1, i % 2, i / 2 % 2);
    notify_and_destroy(400, 0, 1);
    notify_and_destroy(400, 1, 1);
    printf("broadcast and gone\n");
    for (int i = 0; i < 150; i++) {
        struct object *object = fresh();
        pthread_t other = start(waiter_that_ends_it, object);
        while (!object->users)
            sched_yield();
        CHECK(pthread_mutex_lock(&object->mutex) == 0);
        object->stage = 1;
        CHECK(pthread_cond_signal(&object->condvar) == 0);
        CHECK(pthread_mutex_unlock(&object->mutex) == 0);
        end(other);
    }
    printf("signalled and gone\n");
    return 0;
}
