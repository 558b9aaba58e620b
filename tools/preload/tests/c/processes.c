/* A spinlock and a robust mutex in memory that processes share: waiters of another process, and owners that end with
   theirs. */
#include "common.h"

struct shared {
    pthread_mutex_t robust;
    pthread_spinlock_t spin;
};

int main(void)
{
    struct shared *s = shared_memory(sizeof *s);
    make_mutex(&s->robust, PTHREAD_MUTEX_DEFAULT, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_spin_init(&s->spin, PTHREAD_PROCESS_SHARED) == 0);
    /* Long enough for waiters to fall asleep. */
    CHECK(pthread_spin_lock(&s->spin) == 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(300);
        CHECK(pthread_spin_lock(&s->spin) == 0);
        CHECK(pthread_spin_unlock(&s->spin) == 0);
        _exit(0);
    }
    nap(50);
    CHECK(pthread_spin_unlock(&s->spin) == 0);
    printf("child %d\n", end_of(child));
    SHOW(pthread_spin_trylock(&s->spin));
    SHOW(pthread_spin_trylock(&s->spin));
    SHOW(pthread_spin_unlock(&s->spin));

    child = fork();
    if (child == 0) {
        pthread_mutex_lock(&s->robust);
        raise(SIGKILL);
    }
    printf("child %d\n", end_of(child));
    SHOW(pthread_mutex_lock(&s->robust));
    SHOW(pthread_mutex_consistent(&s->robust));
    SHOW(pthread_mutex_unlock(&s->robust));
    child = fork();
    if (child == 0) {
        pthread_mutex_lock(&s->robust);
        _exit(0);
    }
    printf("child %d\n", end_of(child));
    SHOW(pthread_mutex_trylock(&s->robust));
    SHOW(pthread_mutex_unlock(&s->robust));
    SHOW(pthread_mutex_lock(&s->robust));
    SHOW(pthread_mutex_destroy(&s->robust));
    return 0;
}
