/* Spinlocks. */
#include "common.h"

static pthread_spinlock_t lock;
static long counter;

static void *count(void *unused)
{
    for (int i = 0; i < 100000; i++) {
        CHECK(pthread_spin_lock(&lock) == 0);
        counter++;
        CHECK(pthread_spin_unlock(&lock) == 0);
    }
    return NULL;
}

static void *unlock_it(void *unused)
{
    return (void *)(intptr_t)pthread_spin_unlock(&lock);
}

int main(void)
{
    for (int shared = 0; shared < 2; shared++) {
        pthread_t threads[8];
        SHOW(pthread_spin_init(&lock, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE));
        SHOW(pthread_spin_trylock(&lock));
        SHOW(pthread_spin_trylock(&lock));
        SHOW(elsewhere(unlock_it, NULL));
        SHOW(pthread_spin_lock(&lock));
        SHOW(pthread_spin_trylock(&lock));
        SHOW(pthread_spin_unlock(&lock));
        counter = 0;
        for (int i = 0; i < 8; i++)
            threads[i] = start(count, NULL);
        for (int i = 0; i < 8; i++)
            end(threads[i]);
        printf("%ld\n", counter);
        SHOW(pthread_spin_destroy(&lock));
    }
    return 0;
}
