/* Readers see no half-done change, and no change is lost: with more threads than CPUs, by each function. Memory may go
   as soon as the last thread has left. A child of fork has the locks of the thread that forked. */
#include "common.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static long data[8];
static atomic_long expected;

static void take_to_read(int i)
{
    struct timespec far = in_ms(CLOCK_REALTIME, 100000), monotonic = in_ms(CLOCK_MONOTONIC, 100000);
    switch (i % 4) {
    case 0: CHECK(pthread_rwlock_rdlock(&lock) == 0); break;
    case 1: CHECK(pthread_rwlock_timedrdlock(&lock, &far) == 0); break;
    case 2: CHECK(pthread_rwlock_clockrdlock(&lock, CLOCK_MONOTONIC, &monotonic) == 0); break;
    case 3:
        if (pthread_rwlock_tryrdlock(&lock))
            CHECK(pthread_rwlock_rdlock(&lock) == 0);
    }
}

static void take_to_write(int i)
{
    struct timespec far = in_ms(CLOCK_REALTIME, 100000), monotonic = in_ms(CLOCK_MONOTONIC, 100000);
    switch (i % 4) {
    case 0: CHECK(pthread_rwlock_wrlock(&lock) == 0); break;
    case 1: CHECK(pthread_rwlock_timedwrlock(&lock, &far) == 0); break;
    case 2: CHECK(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &monotonic) == 0); break;
    case 3:
        if (pthread_rwlock_trywrlock(&lock))
            CHECK(pthread_rwlock_wrlock(&lock) == 0);
    }
}

static void look(void)
{
    for (int j = 1; j < 8; j++)
        CHECK(((volatile long *)data)[j] == ((volatile long *)data)[0]);
}

static void *work(void *argument)
{
    long rounds = (long)argument;
    unsigned dice = (unsigned)(uintptr_t)&dice;
    for (int i = 0; i < rounds; i++) {
        dice = dice * 1103515245 + 12345;
        unsigned chance = dice >> 16 & 127;
        if (chance < 16) {
            take_to_write(i);
            for (int j = 0; j < 8; j++)
                data[j]++;
            if (chance == 0)
                sched_yield();
            expected++;
        } else {
            take_to_read(i);
            look();
            if (chance == 16)
                sched_yield();
            if (chance & 1) {
                /* Reads again, whether a writer waits or not. */
                CHECK(pthread_rwlock_rdlock(&lock) == 0);
                look();
                CHECK(pthread_rwlock_unlock(&lock) == 0);
            }
        }
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    }
    return NULL;
}

struct object {
    pthread_rwlock_t lock;
    atomic_int stage, users;
};

/* The thread that finds itself the last user unmaps the memory, while the other thread may still be in unlock. */
static void *last_of_two(void *argument)
{
    struct object *object = argument;
    object->stage++;
    while (object->stage < 2)
        ;
    CHECK(pthread_rwlock_rdlock(&object->lock) == 0);
    CHECK(pthread_rwlock_unlock(&object->lock) == 0);
    CHECK(pthread_rwlock_wrlock(&object->lock) == 0);
    int users = --object->users;
    CHECK(pthread_rwlock_unlock(&object->lock) == 0);
    if (users == 0) {
        CHECK(pthread_rwlock_destroy(&object->lock) == 0);
        CHECK(munmap(object, 4096) == 0);
    }
    return NULL;
}

static void in_children(void)
{
    for (int i = 0; i < 15; i++) {
        CHECK(pthread_rwlock_rdlock(&lock) == 0);
        pid_t child = fork();
        if (child == 0) {
            alarm(300);
            CHECK(pthread_rwlock_trywrlock(&lock) == EBUSY);
            CHECK(pthread_rwlock_rdlock(&lock) == 0);
            CHECK(pthread_rwlock_unlock(&lock) == 0);
            CHECK(pthread_rwlock_unlock(&lock) == 0);
            /* No other thread held it. */
            CHECK(pthread_rwlock_trywrlock(&lock) == 0);
            CHECK(pthread_rwlock_unlock(&lock) == 0);
            pthread_t threads[3];
            for (int j = 0; j < 3; j++)
                threads[j] = start(work, (void *)200);
            for (int j = 0; j < 3; j++)
                end(threads[j]);
            _exit(0);
        }
        CHECK(end_of(child) == 0);
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    }
}

int main(void)
{
    static pthread_t threads[64];
    static const int counts[] = {2, 4, 16, 64};
    for (int c = 0; c < 4; c++) {
        int n = counts[c];
        for (int i = 0; i < n; i++)
            threads[i] = start(work, (void *)(long)(4000 / n));
        for (int i = 0; i < n; i++)
            end(threads[i]);
        CHECK(data[0] == expected);
        printf("%d threads\n", n);
    }
    in_children();
    printf("children\n");
    for (int i = 0; i < 400; i++) {
        struct object *object = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(object != MAP_FAILED);
        object->users = 2;
        pthread_t other = start(last_of_two, object);
        last_of_two(object);
        end(other);
    }
    printf("unlocked and gone\n");
    return 0;
}
