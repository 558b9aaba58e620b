/* A key that the program has not created is none, and nearly all keys are the program's. */
#include "common.h"
#include <limits.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* It waits, so that it gets what the library keeps for a thread. */
static void *locks(void *unused)
{
    goes_to_wait();
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    SHOW(pthread_setspecific(0, &mutex));
    return NULL;
}

int main(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    pthread_t thread = start(locks, NULL);
    until_it_waits();
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    end(thread);
    SHOW(pthread_setspecific(0, &mutex));
    for (int n = 0; n < PTHREAD_KEYS_MAX - 2; n++) {
        pthread_key_t key;
        CHECK(pthread_key_create(&key, NULL) == 0);
        if (n == 0)
            printf("the first is %u\n", key);
        CHECK(!pthread_getspecific(key) && pthread_setspecific(key, &key) == 0);
    }
    return 0;
}
