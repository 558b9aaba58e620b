/* A program whose waits can be counted on paper: for reader-writer locks, and for what is no lock. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

pthread_rwlock_t cache = PTHREAD_RWLOCK_INITIALIZER;
pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t jobs = PTHREAD_COND_INITIALIZER;
pthread_barrier_t round_end;
sem_t tickets;
static atomic_int asker, asking, done;
static int ready;

static void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static struct timespec in_ms(long ms)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* The calling thread goes to wait for the time `number`, and does not sleep before. */
static void goes_to_wait(int number)
{
    asker = syscall(SYS_gettid);
    asking = number;
}

/* Returns when that thread sleeps in its wait, however long it has been kept from running. */
static void until_it_waits(int number)
{
    char path[64], text[512];
    while (asking < number)
        nap(1);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", asker);
    for (const char *state = NULL; !state || state[2] != 'S'; nap(1)) {
        int file = open(path, O_RDONLY);
        ssize_t size = read(file, text, sizeof text - 1);
        close(file);
        text[size > 0 ? size : 0] = 0;
        state = strrchr(text, ')');
    }
}

static void until_done(int number)
{
    while (done < number)
        nap(1);
}

static pthread_t begun(void *(*function)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, NULL) != 0)
        abort();
    return thread;
}

/* ---- reader-writer locks ---- */

__attribute__((noinline)) void looks_up(void)
{
    pthread_rwlock_rdlock(&cache);
    pthread_rwlock_unlock(&cache);
    done++;
}

__attribute__((noinline)) void updates(void)
{
    pthread_rwlock_wrlock(&cache);
    pthread_rwlock_unlock(&cache);
    done++;
}

static void *read_three_times(void *unused)
{
    for (int i = 1; i <= 3; i++) {
        goes_to_wait(i);
        looks_up();
        while (done < 10 * i)
            nap(1);
    }
    return unused;
}

static void *write_twice(void *unused)
{
    for (int i = 101; i <= 102; i++) {
        goes_to_wait(i);
        updates();
        while (done < 10 * i)
            nap(1);
    }
    return unused;
}

/* Three reads wait for a writer, and two writes for a reader. */
static void read_and_write(void)
{
    pthread_t thread;
    pthread_rwlock_wrlock(&cache);
    thread = begun(read_three_times);
    for (int i = 1; i <= 3; i++) {
        until_it_waits(i);
        nap(30);
        done = 0;
        pthread_rwlock_unlock(&cache);
        until_done(1);
        if (i < 3)
            pthread_rwlock_wrlock(&cache);
        done = 10 * i;
    }
    pthread_join(thread, NULL);
    done = 0;
    pthread_rwlock_rdlock(&cache);
    thread = begun(write_twice);
    for (int i = 101; i <= 102; i++) {
        until_it_waits(i);
        nap(30);
        done = 0;
        pthread_rwlock_unlock(&cache);
        until_done(1);
        if (i < 102)
            pthread_rwlock_rdlock(&cache);
        done = 10 * i;
    }
    pthread_join(thread, NULL);
    /* A thread may read again. It is one hold. */
    for (int i = 0; i < 5; i++)
        pthread_rwlock_rdlock(&cache);
    pthread_rwlock_trywrlock(&cache);
    nap(20);
    for (int i = 0; i < 5; i++)
        pthread_rwlock_unlock(&cache);
}

static void *write_once(void *unused)
{
    goes_to_wait(1);
    updates();
    return unused;
}

static void *read_often(void *times)
{
    for (long i = 0; i < (long)times; i++) {
        pthread_rwlock_rdlock(&cache);
        nap(2);
        pthread_rwlock_unlock(&cache);
    }
    return NULL;
}

/* A writer waits while threads read that came after it. */
static void starve(long reads)
{
    pthread_t writer, reader;
    pthread_rwlock_rdlock(&cache);
    writer = begun(write_once);
    until_it_waits(1);
    pthread_create(&reader, NULL, read_often, (void *)reads);
    pthread_join(reader, NULL);
    pthread_rwlock_unlock(&cache);
    pthread_join(writer, NULL);
}

/* A writer gives up, and never has the lock. */
static void *gives_up(void *unused)
{
    struct timespec soon = in_ms(1000);
    pthread_rwlock_timedwrlock(&cache, &soon);
    return unused;
}

/* ---- locks that are taken often, and are free each time ---- */

pthread_rwlock_t other = PTHREAD_RWLOCK_INITIALIZER;
pthread_mutex_t usual = PTHREAD_MUTEX_INITIALIZER, tried = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t deep = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
pthread_mutex_t strict = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;

static void *takes_often(void *unused)
{
    for (int i = 0; i < 1000; i++) {
        pthread_rwlock_rdlock(&cache);
        if (i % 4 == 0)
            pthread_rwlock_rdlock(&cache), pthread_rwlock_unlock(&cache);
        pthread_rwlock_unlock(&cache);
        pthread_rwlock_wrlock(&cache), pthread_rwlock_unlock(&cache);
        /* The one that was taken first is released first. */
        pthread_rwlock_rdlock(&cache), pthread_rwlock_rdlock(&other);
        pthread_rwlock_unlock(&cache), pthread_rwlock_unlock(&other);
        pthread_mutex_lock(&usual), pthread_mutex_unlock(&usual);
        pthread_mutex_lock(&deep), pthread_mutex_lock(&deep);
        pthread_mutex_unlock(&deep), pthread_mutex_unlock(&deep);
        pthread_mutex_lock(&strict), pthread_mutex_unlock(&strict);
        if (pthread_mutex_trylock(&tried) == 0)
            pthread_mutex_unlock(&tried);
    }
    return unused;
}

/* ---- condition variables ---- */

__attribute__((noinline)) void idles(int number)
{
    goes_to_wait(number);
    while (!ready)
        pthread_cond_wait(&jobs, &jobs_lock);
}

static void *works(void *unused)
{
    for (int i = 1; i <= 5; i++) {
        pthread_mutex_lock(&jobs_lock);
        idles(i);
        ready = 0;
        pthread_mutex_unlock(&jobs_lock);
        done++;
    }
    return unused;
}

static void unlock_jobs(void *unused)
{
    pthread_mutex_unlock(&jobs_lock);
    (void)unused;
}

static void *works_never(void *unused)
{
    pthread_mutex_lock(&jobs_lock);
    pthread_cleanup_push(unlock_jobs, NULL);
    idles(6);
    pthread_cleanup_pop(1);
    return unused;
}

static void wait_for_jobs(void)
{
    pthread_t thread = begun(works);
    for (int i = 1; i <= 5; i++) {
        until_it_waits(i);
        nap(20);
        pthread_mutex_lock(&jobs_lock);
        ready = 1;
        pthread_cond_signal(&jobs);
        pthread_mutex_unlock(&jobs_lock);
        until_done(i);
    }
    pthread_join(thread, NULL);
    pthread_mutex_lock(&jobs_lock);
    for (int i = 0; i < 3; i++) {
        struct timespec soon = in_ms(5);
        while (pthread_cond_timedwait(&jobs, &jobs_lock, &soon) == 0)
            ;
    }
    pthread_mutex_unlock(&jobs_lock);
    thread = begun(works_never);
    until_it_waits(6);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&jobs);
}

/* ---- barriers, semaphores, the ends of threads ---- */

static void *rounds(void *is_slow)
{
    for (int i = 0; i < 10; i++) {
        if (is_slow)
            nap(5);
        pthread_barrier_wait(&round_end);
    }
    return NULL;
}

static void meet(void)
{
    pthread_t threads[2];
    pthread_barrier_init(&round_end, NULL, 3);
    for (int i = 0; i < 2; i++)
        threads[i] = begun(rounds);
    rounds(&round_end);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

__attribute__((noinline)) void takes_a_ticket(int number)
{
    goes_to_wait(number);
    sem_wait(&tickets);
    done++;
}

static void *takes_tickets(void *unused)
{
    for (int i = 1; i <= 4; i++)
        takes_a_ticket(i);
    return unused;
}

static void *takes_none(void *unused)
{
    takes_a_ticket(5);
    return unused;
}

static void hand_out(void)
{
    pthread_t thread;
    sem_init(&tickets, 0, 6);
    for (int i = 0; i < 6; i++)
        sem_wait(&tickets);
    thread = begun(takes_tickets);
    for (int i = 1; i <= 4; i++) {
        until_it_waits(i);
        nap(10);
        sem_post(&tickets);
        until_done(i);
    }
    pthread_join(thread, NULL);
    struct timespec soon = in_ms(10);
    sem_timedwait(&tickets, &soon);
    thread = begun(takes_none);
    until_it_waits(5);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

static void *sleeps(void *unused)
{
    nap(30);
    return unused;
}

static int sleeps_too(void *unused)
{
    sleeps(unused);
    return 0;
}

__attribute__((noinline)) void waits_for_ends(void)
{
    thrd_t thread;
    for (int i = 0; i < 3; i++)
        pthread_join(begun(sleeps), NULL);
    if (thrd_create(&thread, sleeps_too, NULL) != thrd_success)
        abort();
    thrd_join(thread, NULL);
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    if (strcmp(mode, "rwlock") == 0)
        read_and_write();
    else if (strcmp(mode, "often") == 0) {
        pthread_join(begun(takes_often), NULL);
        pthread_join(begun(takes_often), NULL);
    } else if (strcmp(mode, "starved") == 0)
        starve(atol(words[2]));
    else if (strcmp(mode, "gives-up") == 0) {
        pthread_rwlock_rdlock(&cache);
        pthread_join(begun(gives_up), NULL);
        pthread_rwlock_unlock(&cache);
    } else if (strcmp(mode, "condvar") == 0)
        wait_for_jobs();
    else if (strcmp(mode, "barrier") == 0)
        meet();
    else if (strcmp(mode, "semaphore") == 0)
        hand_out();
    else if (strcmp(mode, "join") == 0)
        waits_for_ends();
    else if (strcmp(mode, "waiting") == 0) {
        sem_init(&tickets, 0, 0);
        begun(takes_none);
        until_it_waits(5);
        raise(SIGKILL);
    } else
        return 2;
    puts("done");
    return 0;
}
