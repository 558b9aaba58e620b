/* Not defined, but real programs do it: a thread unlocks what another has locked, or what nobody has. */
#include "common.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long counter;

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
    for (int i = 0; i < 1000; i++) {
        CHECK(pthread_mutex_lock(&mutex) == 0);
        CHECK(elsewhere(unlock_mutex, &mutex) == 0);
    }
    CHECK(pthread_mutex_trylock(&mutex) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_mutex_init(&gates[i], NULL);
        if (i)
            pthread_mutex_lock(&gates[i]);
    }
    run_threads(4, relay);
    printf("%ld\n", counter);
    return 0;
}
