/* Objects in memory that is shared with a process that does not use the library, initialised by either. */
#include "common.h"

extern char **environ;

struct shared {
    pthread_mutex_t mutex, recursive, robust, inherits;
    pthread_cond_t condvar;
    pthread_rwlock_t lock;
    pthread_spinlock_t spin, private_spin;
    atomic_int ready;
    int turn;
    long counts[6];
};

static void init(struct shared *s)
{
    pthread_condattr_t condvar;
    pthread_rwlockattr_t lock;
    make_mutex(&s->mutex, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, 1);
    make_mutex(&s->recursive, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE, 1);
    make_mutex(&s->robust, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, 1);
    make_mutex(&s->inherits, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT, 1);
    pthread_condattr_init(&condvar);
    pthread_condattr_setpshared(&condvar, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&condvar, CLOCK_MONOTONIC);
    CHECK(pthread_cond_init(&s->condvar, &condvar) == 0);
    pthread_rwlockattr_init(&lock);
    pthread_rwlockattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
    pthread_rwlockattr_setkind_np(&lock, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    CHECK(pthread_rwlock_init(&s->lock, &lock) == 0);
    CHECK(pthread_spin_init(&s->spin, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_spin_init(&s->private_spin, PTHREAD_PROCESS_PRIVATE) == 0);
    s->ready = 1;
}

static void work(struct shared *s, int me)
{
    struct timespec far = in_ms(CLOCK_MONOTONIC, 100000);
    for (int i = 0; i < 20000; i++) {
        CHECK(pthread_mutex_lock(&s->recursive) == 0);
        CHECK(pthread_mutex_lock(&s->recursive) == 0);
        s->counts[0]++;
        CHECK(pthread_mutex_unlock(&s->recursive) == 0);
        CHECK(pthread_mutex_unlock(&s->recursive) == 0);
        CHECK(pthread_mutex_lock(&s->robust) == 0);
        s->counts[1]++;
        CHECK(pthread_mutex_unlock(&s->robust) == 0);
        CHECK(pthread_rwlock_wrlock(&s->lock) == 0);
        s->counts[2]++;
        CHECK(pthread_rwlock_unlock(&s->lock) == 0);
        CHECK(pthread_spin_lock(&s->spin) == 0);
        s->counts[3]++;
        CHECK(pthread_spin_unlock(&s->spin) == 0);
        CHECK(pthread_spin_lock(&s->private_spin) == 0);
        s->counts[4]++;
        CHECK(pthread_spin_unlock(&s->private_spin) == 0);
        CHECK(pthread_mutex_lock(&s->inherits) == 0);
        s->counts[5]++;
        CHECK(pthread_mutex_unlock(&s->inherits) == 0);
    }
    for (int i = 0; i < 1000; i++) {
        CHECK(pthread_mutex_lock(&s->mutex) == 0);
        while (s->turn != me)
            CHECK((i % 2 ? pthread_cond_wait(&s->condvar, &s->mutex)
                         : pthread_cond_timedwait(&s->condvar, &s->mutex, &far)) == 0);
        s->turn = !me;
        CHECK((i % 3 ? pthread_cond_signal : pthread_cond_broadcast)(&s->condvar) == 0);
        CHECK(pthread_mutex_unlock(&s->mutex) == 0);
    }
}

int main(int count, char **arguments)
{
    alarm(300);
    if (count > 2) {
        struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(arguments[1]), 0);
        CHECK(s != MAP_FAILED);
        if (*arguments[2] == 'i')
            init(s);
        work(s, 1);
        return 0;
    }
    for (int peer_first = 0; peer_first < 2; peer_first++)
        for (int aware = 0; aware < 2; aware++) {
            int file = memfd_create("objects", 0);
            CHECK(file >= 0 && ftruncate(file, sizeof(struct shared)) == 0);
            struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            CHECK(s != MAP_FAILED);
            if (!peer_first)
                init(s);
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) {
                char number[12], *empty[] = {NULL};
                sprintf(number, "%d", file);
                char *line[] = {arguments[0], number, peer_first ? "initialise" : "use", NULL};
                execve("/proc/self/exe", line, aware ? environ : empty);
                _exit(9);
            }
            while (!s->ready)
                nap(1);
            work(s, 0);
            printf("child %d:", end_of(child));
            for (int i = 0; i < 6; i++)
                printf(" %ld", s->counts[i]);
            printf("\n");
        }
    return 0;
}
