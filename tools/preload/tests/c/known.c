/* A program whose calls can be counted on paper. */
#include "common.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;

static void *hold(void *unused)
{
    goes_to_wait();
    CHECK(pthread_mutex_lock(&mutex) == 0); /* found taken */
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_mutex_t shared, robust;
    struct timespec past = {0, 0};
    pthread_spinlock_t spin;
    pthread_mutex_lock(&mutex);
    pthread_t thread = start(hold, NULL);
    until_it_waits();
    nap(50);
    CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
    pthread_mutex_unlock(&mutex);
    end(thread);
    CHECK(pthread_mutex_trylock(&mutex) == 0);
    CHECK(pthread_cond_timedwait(&condvar, &mutex, &past) == ETIMEDOUT);
    pthread_mutex_unlock(&mutex);
    pthread_cond_signal(&condvar);
    pthread_cond_broadcast(&condvar);
    make_mutex(&shared, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, 1);
    for (int i = 0; i < 3; i++)
        pthread_mutex_lock(&shared), pthread_mutex_unlock(&shared);
    make_mutex(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, 0);
    pthread_mutex_lock(&robust), pthread_mutex_unlock(&robust);
    pthread_spin_init(&spin, 0);
    pthread_spin_lock(&spin);
    pthread_spin_unlock(&spin);
    static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
    pthread_rwlock_rdlock(&rwlock), pthread_rwlock_rdlock(&rwlock);
    CHECK(pthread_rwlock_trywrlock(&rwlock) == EBUSY);
    CHECK(pthread_rwlock_timedwrlock(&rwlock, &past) == ETIMEDOUT);
    pthread_rwlock_unlock(&rwlock), pthread_rwlock_unlock(&rwlock);
    pthread_rwlock_wrlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
    pthread_rwlock_destroy(&rwlock);
    if (argc > 1) {
        pid_t child = fork();
        if (child == 0) {
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
            _exit(0);
        }
        end_of(child);
        child = vfork();
        if (child == 0)
            _exit(0);
        end_of(child);
    }
    return 0;
}
