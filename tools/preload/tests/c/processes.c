/* Objects in memory that processes share: robust, priority-inheriting and plain mutexes, condition variables,
   spinlocks. */
#include "common.h"

struct shared {
    pthread_mutex_t mutex, robust, inherits;
    pthread_cond_t condvar;
    pthread_spinlock_t spin;
    int turn;
    long counts[4];
};

static void init(pthread_mutex_t *mutex, int robust, int protocol)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    CHECK(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_mutexattr_setrobust(&attributes, robust) == 0);
    CHECK(pthread_mutexattr_setprotocol(&attributes, protocol) == 0);
    CHECK(pthread_mutex_init(mutex, &attributes) == 0);
}

static void count(struct shared *s, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK(pthread_mutex_lock(&s->mutex) == 0);
        s->counts[0]++;
        CHECK(pthread_mutex_unlock(&s->mutex) == 0);
        CHECK(pthread_mutex_lock(&s->inherits) == 0);
        s->counts[1]++;
        CHECK(pthread_mutex_unlock(&s->inherits) == 0);
        CHECK(pthread_mutex_lock(&s->robust) == 0);
        s->counts[2]++;
        CHECK(pthread_mutex_unlock(&s->robust) == 0);
        CHECK(pthread_spin_lock(&s->spin) == 0);
        s->counts[3]++;
        CHECK(pthread_spin_unlock(&s->spin) == 0);
    }
}

static void take_turns(struct shared *s, int me, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK(pthread_mutex_lock(&s->mutex) == 0);
        while (s->turn != me)
            CHECK(pthread_cond_wait(&s->condvar, &s->mutex) == 0);
        s->turn = !me;
        CHECK(pthread_cond_signal(&s->condvar) == 0);
        CHECK(pthread_mutex_unlock(&s->mutex) == 0);
    }
}

int main(void)
{
    struct shared *s = shared_memory(sizeof *s);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    init(&s->mutex, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
    init(&s->robust, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
    init(&s->inherits, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT);
    CHECK(pthread_cond_init(&s->condvar, &attributes) == 0);
    CHECK(pthread_spin_init(&s->spin, PTHREAD_PROCESS_SHARED) == 0);
    pid_t child = fork();
    count(s, 20000);
    take_turns(s, child == 0, 5000);
    if (child == 0)
        _exit(0);
    printf("child %d\n", end_of(child));
    for (int i = 0; i < 4; i++)
        printf("%ld\n", s->counts[i]);
    /* Long enough for waiters to fall asleep. */
    CHECK(pthread_spin_lock(&s->spin) == 0);
    child = fork();
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
    SHOW(pthread_cond_destroy(&s->condvar));
    return 0;
}
