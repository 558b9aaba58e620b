/* Not defined, but real programs do it: a thread unlocks what another has locked, or what nobody has. */
#include "common.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long counter;

static void *unlock_it(void *unused)
{
    return (void *)(intptr_t)pthread_mutex_unlock(&mutex);
}

/* A relay: each thread unlocks what the one before it has locked. */
static pthread_mutex_t gates[4];

static void *relay(void *argument)
{
    long me = (long)argument;
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&gates[me]);
        counter++;
        pthread_mutex_unlock(&gates[(me + 1) % 4]);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 1000; i++) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        CHECK(elsewhere(unlock_it, NULL) == 0);
    }
    CHECK(pthread_mutex_trylock(&mutex) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_mutex_init(&gates[i], NULL);
        if (i)
            pthread_mutex_lock(&gates[i]);
    }
    for (long i = 0; i < 4; i++)
        threads[i] = start(relay, (void *)i);
    for (int i = 0; i < 4; i++)
        end(threads[i]);
    printf("%ld\n", counter);
    return 0;
}
