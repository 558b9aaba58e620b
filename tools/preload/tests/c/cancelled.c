/* pthread_mutex_lock is not a cancellation point, not even the first call of a process. */
#include "common.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int locked;

static void *work(void *unused)
{
    pthread_cancel(pthread_self());
    errno = 77;
    pthread_mutex_lock(&mutex);
    locked += errno == 77;
    pthread_mutex_unlock(&mutex);
    pthread_rwlock_rdlock(&rwlock);
    locked += errno == 77;
    pthread_rwlock_unlock(&rwlock);
    pthread_testcancel();
    return unused;
}

int main(void)
{
    void *result = end(start(work, NULL));
    printf("locked %d times, cancelled: %d\n", locked, result == PTHREAD_CANCELED);
    SHOW(pthread_mutex_trylock(&mutex));
    return 0;
}
