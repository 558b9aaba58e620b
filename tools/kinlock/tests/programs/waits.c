/* A program whose waits can be counted on paper: for reader-writer locks, and for objects that are
   not locks. The test prepends the preload tests' common.h. */

#include <semaphore.h>
#include <threads.h>

pthread_rwlock_t cache = PTHREAD_RWLOCK_INITIALIZER;
pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t jobs = PTHREAD_COND_INITIALIZER;
pthread_barrier_t round_end;
sem_t tickets;
static atomic_int done;
static int ready;

static void until_done(int number)
{
    while (done < number)
        nap(1);
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
        goes_to_wait();
        looks_up();
        while (done < 10 * i)
            nap(1);
    }
    return unused;
}

static void *write_twice(void *unused)
{
    for (int i = 1; i <= 2; i++) {
        goes_to_wait();
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
    thread = start(read_three_times, NULL);
    for (int i = 1; i <= 3; i++) {
        until_it_waits();
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
    thread = start(write_twice, NULL);
    for (int i = 1; i <= 2; i++) {
        until_it_waits();
        nap(30);
        done = 0;
        pthread_rwlock_unlock(&cache);
        until_done(1);
        if (i < 2)
            pthread_rwlock_rdlock(&cache);
        done = 10 * i;
    }
    pthread_join(thread, NULL);
    /* Nested reads by one thread are one hold. */
    for (int i = 0; i < 5; i++)
        pthread_rwlock_rdlock(&cache);
    pthread_rwlock_trywrlock(&cache);
    nap(20);
    for (int i = 0; i < 5; i++)
        pthread_rwlock_unlock(&cache);
}

static void *write_once(void *unused)
{
    goes_to_wait();
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

/* A writer waits while threads that came after it read. */
static void starve(long reads)
{
    pthread_t writer, reader;
    pthread_rwlock_rdlock(&cache);
    writer = start(write_once, NULL);
    until_it_waits();
    pthread_create(&reader, NULL, read_often, (void *)reads);
    pthread_join(reader, NULL);
    pthread_rwlock_unlock(&cache);
    pthread_join(writer, NULL);
}

static pthread_mutex_t left;

static void *ends_with_both(void *unused)
{
    pthread_rwlock_rdlock(&cache);
    pthread_mutex_lock(&left);
    return unused;
}

/* Locks of a thread that has ended are released by another thread. */
static void takes_over(void)
{
    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&left, &robust);
    pthread_join(start(ends_with_both, NULL), NULL);
    pthread_rwlock_unlock(&cache);
    if (pthread_mutex_lock(&left) == EOWNERDEAD)
        pthread_mutex_consistent(&left);
    pthread_mutex_unlock(&left);
}

/* A writer gives up, and never has the lock. */
static void *gives_up(void *unused)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 100);
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
        if (i % 4 == 0 && pthread_rwlock_tryrdlock(&cache) == 0)
            pthread_rwlock_unlock(&cache);
        pthread_rwlock_unlock(&cache);
        pthread_rwlock_wrlock(&cache), pthread_rwlock_unlock(&cache);
        /* The lock that was taken first is released first. */
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

static void *takes_usual(void *unused)
{
    goes_to_wait();
    pthread_mutex_lock(&usual);
    return unused;
}

/* ---- condition variables ---- */

__attribute__((noinline)) void idles(void)
{
    goes_to_wait();
    while (!ready)
        pthread_cond_wait(&jobs, &jobs_lock);
}

static void *works(void *unused)
{
    for (int i = 1; i <= 5; i++) {
        pthread_mutex_lock(&jobs_lock);
        idles();
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
    idles();
    pthread_cleanup_pop(1);
    return unused;
}

static void wait_for_jobs(void)
{
    pthread_t thread = start(works, NULL);
    for (int i = 1; i <= 5; i++) {
        until_it_waits();
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
        struct timespec soon = in_ms(CLOCK_REALTIME, 5);
        while (pthread_cond_timedwait(&jobs, &jobs_lock, &soon) == 0)
            ;
    }
    pthread_mutex_unlock(&jobs_lock);
    thread = start(works_never, NULL);
    until_it_waits();
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
        threads[i] = start(rounds, NULL);
    rounds(&round_end);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

__attribute__((noinline)) void takes_a_ticket(void)
{
    goes_to_wait();
    sem_wait(&tickets);
    done++;
}

static void *takes_tickets(void *unused)
{
    for (int i = 1; i <= 4; i++)
        takes_a_ticket();
    return unused;
}

static void *takes_none(void *unused)
{
    takes_a_ticket();
    return unused;
}

static void hand_out(void)
{
    pthread_t thread;
    sem_init(&tickets, 0, 6);
    for (int i = 0; i < 6; i++)
        sem_wait(&tickets);
    thread = start(takes_tickets, NULL);
    for (int i = 1; i <= 4; i++) {
        until_it_waits();
        nap(10);
        sem_post(&tickets);
        until_done(i);
    }
    pthread_join(thread, NULL);
    struct timespec soon = in_ms(CLOCK_REALTIME, 10);
    sem_timedwait(&tickets, &soon);
    thread = start(takes_none, NULL);
    until_it_waits();
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
        pthread_join(start(sleeps, NULL), NULL);
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
        pthread_join(start(takes_often, NULL), NULL);
        pthread_join(start(takes_often, NULL), NULL);
    } else if (strcmp(mode, "starved") == 0)
        starve(atol(words[2]));
    else if (strcmp(mode, "gives-up") == 0) {
        pthread_rwlock_rdlock(&cache);
        pthread_join(start(gives_up, NULL), NULL);
        pthread_rwlock_unlock(&cache);
    } else if (strcmp(mode, "lasting") == 0) {
        /* Two waits that last until the process ends. */
        pthread_mutex_lock(&usual);
        start(takes_usual, NULL);
        until_it_waits();
        pthread_rwlock_wrlock(&cache);
        start(read_three_times, NULL);
        until_it_waits();
        nap(50);
    } else if (strcmp(mode, "left") == 0)
        takes_over();
    else if (strcmp(mode, "condvar") == 0)
        wait_for_jobs();
    else if (strcmp(mode, "barrier") == 0)
        meet();
    else if (strcmp(mode, "semaphore") == 0)
        hand_out();
    else if (strcmp(mode, "join") == 0)
        waits_for_ends();
    else if (strcmp(mode, "waiting") == 0) {
        sem_init(&tickets, 0, 0);
        start(takes_none, NULL);
        until_it_waits();
        raise(SIGKILL);
    } else
        return 2;
    puts("done");
    return 0;
}
