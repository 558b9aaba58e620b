/* Not defined, but real programs do it: a thread unlocks what another one has locked for reading, or what nobody
 * has locked. */
#include "common.h"

enum { GUARDS = 64, ROUNDS = 20000 };

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t mail = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static int sent, senders;
static long pair[2];

static void look(void)
{
    CHECK(pair[0] == pair[1]);
}

/* Takes the lock for reading, hands it to another thread, and takes it again while that one unlocks. */
static void *send_reads(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(pthread_rwlock_rdlock(&lock) == 0);
        look();
        pthread_mutex_lock(&mail);
        while (sent == GUARDS)
            pthread_cond_wait(&news, &mail);
        sent++;
        pthread_cond_broadcast(&news);
        pthread_mutex_unlock(&mail);
        CHECK(pthread_rwlock_rdlock(&lock) == 0);
        look();
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    }
    pthread_mutex_lock(&mail);
    senders--;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&mail);
    return NULL;
}

static void *release(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&mail);
        while (!sent && senders)
            pthread_cond_wait(&news, &mail);
        int received = sent > 0;
        sent -= received;
        pthread_cond_broadcast(&news);
        pthread_mutex_unlock(&mail);
        if (!received)
            return NULL;
        look();
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    }
}

static void *write_it(void *unused)
{
    for (int i = 0; i < ROUNDS / 10; i++) {
        struct timespec soon = in_ms(CLOCK_REALTIME, 1);
        if (i % 2 ? pthread_rwlock_wrlock(&lock) : pthread_rwlock_timedwrlock(&lock, &soon))
            continue;
        pair[0]++;
        pair[1]++;
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    }
    return NULL;
}

static void *take_part(void *number)
{
    intptr_t i = (intptr_t)number;
    return i < 3 ? send_reads(NULL) : i < 5 ? release(NULL) : write_it(NULL);
}

static void pass_on(void)
{
    senders = 3;
    run_threads(6, take_part);
    SHOW(pthread_rwlock_trywrlock(&lock));
    SHOW(pthread_rwlock_unlock(&lock));
}

static pthread_rwlock_t together;

static void *read_together(void *unused)
{
    for (int i = 0; i < 20000; i++) {
        pthread_rwlock_rdlock(&together);
        pthread_rwlock_unlock(&together);
    }
    return NULL;
}

static void *unlock_it(void *lock)
{
    return (void *)(intptr_t)pthread_rwlock_unlock(lock);
}

/* Each lock is used only once, since its state afterwards is not defined. */
static void unlock_too_often(void)
{
    static pthread_rwlock_t fresh, written, read, others,
        prefers = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    SHOW(pthread_rwlock_unlock(&fresh));
    SHOW(pthread_rwlock_unlock(&prefers));
    pthread_rwlock_wrlock(&written);
    pthread_rwlock_unlock(&written);
    SHOW(pthread_rwlock_unlock(&written));
    pthread_rwlock_rdlock(&read);
    pthread_rwlock_unlock(&read);
    SHOW(pthread_rwlock_unlock(&read));
    run_threads(3, read_together);
    SHOW(pthread_rwlock_unlock(&together));
    SHOW(elsewhere(unlock_it, &others));
}

int main(void)
{
    alarm(300);
    pass_on();
    unlock_too_often();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(300);
        pass_on();
        unlock_too_often();
        fflush(stdout);
        _exit(0);
    }
    printf("child: %d\n", end_of(child));
    return 0;
}
