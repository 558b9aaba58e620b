/* How many places in queues the library has given to a thread that has waited for a lock. The
   thread keeps its place until it ends, as the value of a key. */
#include "common.h"
#include <limits.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static int places(void)
{
    int count = 0;
    for (pthread_key_t key = 0; key < PTHREAD_KEYS_MAX; key++)
        count += pthread_getspecific(key) != NULL;
    return count;
}

static void *wait_for_mutex(void *unused)
{
    CHECK(places() == 0);
    goes_to_wait();
    pthread_mutex_lock(&mutex), pthread_mutex_unlock(&mutex);
    return (void *)(intptr_t)places();
}

static void *wait_for_rwlock(void *unused)
{
    CHECK(places() == 0);
    goes_to_wait();
    pthread_rwlock_wrlock(&rwlock), pthread_rwlock_unlock(&rwlock);
    return (void *)(intptr_t)places();
}

int main(void)
{
    void *of_mutex, *of_rwlock;
    pthread_mutex_lock(&mutex), pthread_rwlock_rdlock(&rwlock);
    pthread_t first = start(wait_for_mutex, NULL);
    until_it_waits();
    pthread_t second = start(wait_for_rwlock, NULL);
    until_it_waits();
    pthread_mutex_unlock(&mutex), pthread_rwlock_unlock(&rwlock);
    pthread_join(first, &of_mutex), pthread_join(second, &of_rwlock);
    printf("%d %d\n", (int)(intptr_t)of_mutex, (int)(intptr_t)of_rwlock);
    return 0;
}
