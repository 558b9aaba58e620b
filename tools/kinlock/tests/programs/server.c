/* A server: its threads work until stdin ends. What locks guard is checked at the end. */

#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4 };

pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
pthread_mutex_t nested = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
pthread_mutex_t across = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
pthread_rwlock_t read_across = PTHREAD_RWLOCK_INITIALIZER;
pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t queue = PTHREAD_COND_INITIALIZER;
pthread_spinlock_t spin;
static long account, table_entries, queued, taken, checks, depths, spins;
static long per_thread[WORKERS + 1];
static atomic_int is_over, is_closed;

static void must(int result)
{
    if (result != 0) {
        fprintf(stderr, "server: %s\n", strerror(result));
        abort();
    }
}

static void nap(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

__attribute__((noinline)) void transfers(void)
{
    must(pthread_mutex_lock(&accounts));
    account++;
    must(pthread_mutex_unlock(&accounts));
}

/* One round of all kinds of locks. */
static void serve(int worker, long round)
{
    transfers();
    must(pthread_mutex_lock(&checked)), checks++, must(pthread_mutex_unlock(&checked));
    must(pthread_mutex_lock(&nested)), must(pthread_mutex_lock(&nested)), depths++;
    must(pthread_mutex_unlock(&nested)), must(pthread_mutex_unlock(&nested));
    must(pthread_spin_lock(&spin)), spins++, must(pthread_spin_unlock(&spin));
    if (round % 8 == 0) {
        must(pthread_rwlock_wrlock(&table)), table_entries++;
        must(pthread_rwlock_unlock(&table));
    } else {
        must(pthread_rwlock_rdlock(&table));
        must(pthread_rwlock_unlock(&table));
    }
    must(pthread_mutex_lock(&queue_lock)), queued++;
    must(pthread_cond_signal(&queue)), must(pthread_mutex_unlock(&queue_lock));
    per_thread[worker]++;
}

static void *work(void *number)
{
    for (long round = 0; !is_over; round++) {
        serve((int)(long)number, round);
        if (round % 16 == 0)
            nap(100);
    }
    return NULL;
}

/* Takes what the workers have queued. */
static void *consume(void *unused)
{
    must(pthread_mutex_lock(&queue_lock));
    while (!is_closed || taken < queued) {
        if (taken == queued) {
            struct timespec soon;
            clock_gettime(CLOCK_REALTIME, &soon);
            soon.tv_sec++;
            pthread_cond_timedwait(&queue, &queue_lock, &soon);
        } else
            taken++;
    }
    must(pthread_mutex_unlock(&queue_lock));
    return unused;
}

/* Holds two locks for 30 ms at a time: over many beginnings and ends of measurements. */
static void *hold(void *unused)
{
    while (!is_over) {
        must(pthread_rwlock_rdlock(&read_across));
        must(pthread_mutex_lock(&across));
        nap(30000);
        must(pthread_rwlock_rdlock(&read_across));
        must(pthread_rwlock_unlock(&read_across));
        must(pthread_mutex_unlock(&across));
        must(pthread_rwlock_unlock(&read_across));
        nap(1000);
    }
    return unused;
}

static int run(void)
{
    pthread_t threads[WORKERS + 2];
    long sum = 0;
    char end;
    pthread_spin_init(&spin, 0);
    for (long i = 0; i < WORKERS; i++)
        must(pthread_create(&threads[i], NULL, work, (void *)i));
    must(pthread_create(&threads[WORKERS], NULL, consume, NULL));
    must(pthread_create(&threads[WORKERS + 1], NULL, hold, NULL));
    while (read(0, &end, 1) > 0)
        ;
    is_over = 1;
    for (int i = 0; i < WORKERS; i++)
        must(pthread_join(threads[i], NULL));
    /* The consumer sleeps for a second at a time. */
    must(pthread_mutex_lock(&queue_lock)), is_closed = 1;
    must(pthread_cond_signal(&queue)), must(pthread_mutex_unlock(&queue_lock));
    for (int i = WORKERS; i < WORKERS + 2; i++)
        must(pthread_join(threads[i], NULL));
    for (int i = 0; i < WORKERS; i++)
        sum += per_thread[i];
    int is_right = sum == account && sum == checks && sum == depths && sum == spins &&
                   sum == queued && sum == taken;
    puts(is_right ? "right" : "wrong");
    fflush(stdout);
    return !is_right;
}

/* Does what lines of stdin say, and says when it is done. */
static int obey(void)
{
    static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
    char line[32];
    pthread_spin_init(&spin, 0);
    printf("%d\n", getpid()), fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "take\n") == 0) {
            must(pthread_mutex_lock(&across));
            must(pthread_mutex_lock(&checked));
            for (int i = 0; i < 2; i++)
                must(pthread_mutex_lock(&nested));
            for (int i = 0; i < 2; i++)
                must(pthread_rwlock_rdlock(&read_across));
            must(pthread_rwlock_wrlock(&written));
            must(pthread_spin_lock(&spin));
        } else if (strcmp(line, "release\n") == 0) {
            must(pthread_spin_unlock(&spin));
            must(pthread_rwlock_unlock(&written));
            for (int i = 0; i < 2; i++)
                must(pthread_rwlock_unlock(&read_across));
            for (int i = 0; i < 2; i++)
                must(pthread_mutex_unlock(&nested));
            must(pthread_mutex_unlock(&checked));
            must(pthread_mutex_unlock(&across));
        } else if (strcmp(line, "become\n") == 0) {
            puts("done"), fflush(stdout);
            execlp("cat", "cat", NULL);
            abort();
        } else
            for (int i = atoi(line); i > 0; i--)
                transfers();
        puts("done"), fflush(stdout);
    }
    return 0;
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    if (strcmp(mode, "obeys") == 0)
        return obey();
    if (strcmp(mode, "forks") == 0) {
        /* Both work, after the fork. */
        pid_t child = fork();
        if (child != 0)
            printf("%d\n", child), fflush(stdout);
        int result = run(), status = 0;
        if (child != 0)
            waitpid(child, &status, 0);
        return result || status;
    }
    printf("%d\n", getpid()), fflush(stdout);
    return run();
}
