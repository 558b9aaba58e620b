/* A program whose locks' numbers can be counted on paper. The tests find some of its lines by the
   marks, and prepend the preload tests' common.h. */
#include <sched.h>

pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER, quiet = PTHREAD_MUTEX_INITIALIZER, late = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t nested = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, again, in_turn = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t waited_with = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
pthread_spinlock_t spin;
static atomic_int go, done, turn;

static inline __attribute__((always_inline)) void inlined_take(void)
{
    pthread_mutex_lock(&busy); /* MARK inlined */
}

__attribute__((noinline)) void worker_takes(void)
{
    inlined_take(); /* MARK worker */
    pthread_mutex_unlock(&busy);
    done++;
}

static void *work(void *unused)
{
    for (int i = 1; i <= 5; i++) {
        while (go < i)
            nap(1);
        goes_to_wait();
        worker_takes();
        __asm__ volatile("");
    }
    return unused;
}

__attribute__((noinline)) void some_life(int times)
{
    pthread_mutex_init(&again, NULL);
    for (int i = 0; i < times; i++)
        pthread_mutex_lock(&again), pthread_mutex_unlock(&again);
}

/* Every other turn belongs to this thread. Nobody waits for the lock. */
static void *take_in_turn(void *first)
{
    for (int i = first ? 0 : 1; i < 600; i += 2) {
        while (turn != i)
            sched_yield();
        pthread_mutex_lock(&in_turn), pthread_mutex_unlock(&in_turn);
        turn++;
    }
    return NULL;
}

static pthread_mutex_t steady = PTHREAD_MUTEX_INITIALIZER;

/* Holds the lock 2,000 times for 20 us. */
static void hold_steadily(void)
{
    for (int i = 0; i < 2000; i++) {
        struct timespec now, then;
        pthread_mutex_lock(&steady);
        clock_gettime(CLOCK_MONOTONIC, &then);
        do
            clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - then.tv_sec) * 1000000000L + now.tv_nsec - then.tv_nsec < 20000);
        pthread_mutex_unlock(&steady);
    }
}

static void move_to(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        abort();
}

static int cpus[2];

/* Takes the lock five times in turn with the main thread: first on its CPU, then on the other one. */
static void *take_turns(void *unused)
{
    for (int i = 1; i <= 5; i++) {
        while (go < i)
            nap(1);
        move_to(cpus[i > 2]);
        pthread_mutex_lock(&busy), pthread_mutex_unlock(&busy);
        done++;
    }
    return unused;
}

static int in_domains(char **numbers)
{
    pthread_t thread;
    cpus[0] = atoi(numbers[0]), cpus[1] = atoi(numbers[1]);
    move_to(cpus[0]);
    pthread_create(&thread, NULL, take_turns, NULL);
    for (int i = 1; i <= 5; i++) {
        pthread_mutex_lock(&busy), pthread_mutex_unlock(&busy);
        go = i;
        while (done < i)
            nap(1);
    }
    pthread_join(thread, NULL);
    return 0;
}

static void *take_twice(void *unused)
{
    for (int i = 0; i < 2; i++)
        pthread_mutex_lock(&busy), pthread_mutex_unlock(&busy);
    done++;
    while (!go)
        nap(5);
    return unused;
}

static void *take_once(void *unused)
{
    goes_to_wait();
    pthread_mutex_lock(&quiet), pthread_mutex_unlock(&quiet);
    return unused;
}

static void *release_late(void *unused)
{
    pthread_mutex_unlock(&late);
    return unused;
}

/* More locks and threads than a thread, or the process, has room for at a time. */
static int in_crowds(void)
{
    enum { LOCKS = 200, AT_A_TIME = 600, IN_TURN = 1500 };
    static pthread_mutex_t all[LOCKS];
    static pthread_t threads[AT_A_TIME];
    pthread_t one;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < LOCKS; i++)
            pthread_mutex_lock(all + i), pthread_mutex_unlock(all + i);
    for (int i = 0; i < AT_A_TIME; i++)
        if (pthread_create(threads + i, NULL, take_twice, NULL) != 0)
            abort();
    while (done < AT_A_TIME)
        nap(5);
    go = 1;
    for (int i = 0; i < AT_A_TIME; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < IN_TURN; i++)
        pthread_create(&one, NULL, take_once, NULL), pthread_join(one, NULL);
    pthread_mutex_lock(&late);
    pthread_create(&one, NULL, release_late, NULL), pthread_join(one, NULL);
    return 0;
}

/* Threads that only try, and never wait. */
pthread_mutex_t hot = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t hot_rw = PTHREAD_RWLOCK_INITIALIZER;
pthread_spinlock_t hot_spin;

static __attribute__((noinline)) void tries_often(void)
{
    for (int i = 0; i < 40; i++) {
        pthread_mutex_trylock(&hot); /* MARK often */
        pthread_rwlock_trywrlock(&hot_rw);
        pthread_spin_trylock(&hot_spin);
    }
}

static __attribute__((noinline)) void tries_seldom(void)
{
    for (int i = 0; i < 10; i++) {
        pthread_mutex_trylock(&hot); /* MARK seldom */
        pthread_rwlock_tryrdlock(&hot_rw);
    }
}

static void *only_tries(void *unused)
{
    tries_often();
    tries_seldom();
    return unused;
}

static int in_vain(void)
{
    pthread_t thread;
    for (int i = 0; i < 50000; i++)
        pthread_mutex_lock(&quiet), pthread_mutex_unlock(&quiet);
    pthread_spin_init(&hot_spin, 0);
    pthread_mutex_trylock(&hot), pthread_rwlock_wrlock(&hot_rw), pthread_spin_lock(&hot_spin);
    pthread_create(&thread, NULL, only_tries, NULL);
    pthread_join(thread, NULL);
    pthread_mutex_unlock(&hot), pthread_rwlock_unlock(&hot_rw), pthread_spin_unlock(&hot_spin);
    return 0;
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    pthread_t thread;
    if (strcmp(mode, "once") == 0) {
        pthread_mutex_lock(&quiet), pthread_mutex_unlock(&quiet);
        return 3;
    }
    if (strncmp(mode, "many", 4) == 0) {
        pthread_mutex_t *all = calloc(20000, sizeof *all);
        for (int i = 0; i < 20000; i++)
            pthread_mutex_lock(all + i), pthread_mutex_unlock(all + i);
        if (strcmp(mode, "many") == 0)
            return 0;
        /* What follows the start-up locks is what matters. */
    }
    if (strcmp(mode, "short-lived") == 0) {
        for (int i = 0; i < 20000; i++) {
            pthread_mutex_t *one = malloc(sizeof *one + i % 7 * 16);
            pthread_mutex_init(one, NULL);
            pthread_mutex_lock(one), pthread_mutex_unlock(one);
            pthread_mutex_destroy(one), free(one);
        }
        return 0;
    }
    if (strcmp(mode, "reborn") == 0) {
        static pthread_mutex_t one;
        for (int i = 0; i < 1000; i++) {
            pthread_mutex_init(&one, NULL);
            switch (i % 4) { /* By four callers. */
            case 0: pthread_mutex_lock(&one); break;
            case 1: pthread_mutex_lock(&one); __asm__ volatile("nop"); break;
            case 2: pthread_mutex_lock(&one); __asm__ volatile("nop; nop"); break;
            case 3: pthread_mutex_lock(&one); __asm__ volatile("nop; nop; nop"); break;
            }
            pthread_mutex_unlock(&one);
            pthread_mutex_destroy(&one);
        }
        return 0;
    }
    if (strcmp(mode, "tries") == 0)
        return in_vain();
    if (strcmp(mode, "domains") == 0)
        return in_domains(words + 2);
    if (strcmp(mode, "crowds") == 0)
        return in_crowds();
    if (strcmp(mode, "condvar") == 0) {
        struct timespec soon = in_ms(CLOCK_REALTIME, 300);
        pthread_mutex_lock(&waited_with);
        pthread_cond_timedwait(&condvar, &waited_with, &soon);
        return pthread_mutex_unlock(&waited_with);
    }
    pthread_create(&thread, NULL, work, NULL);
    for (int i = 1; i <= 5; i++) {
        pthread_mutex_lock(&busy);
        go = i;
        until_it_waits();
        nap(40);
        pthread_mutex_unlock(&busy);
        while (done < i)
            nap(1);
    }
    pthread_join(thread, NULL);
    hold_steadily();
    pthread_create(&thread, NULL, take_in_turn, NULL);
    take_in_turn(&turn);
    pthread_join(thread, NULL);
    for (int i = 0; i < 1000; i++)
        pthread_mutex_lock(&quiet), pthread_mutex_unlock(&quiet);
    pthread_mutex_lock(&quiet);
    pthread_mutex_trylock(&quiet);
    pthread_mutex_unlock(&quiet);
    for (int i = 0; i < 3; i++)
        pthread_mutex_lock(&nested);
    for (int i = 0; i < 3; i++)
        pthread_mutex_unlock(&nested);
    struct timespec soon = in_ms(CLOCK_REALTIME, 50);
    pthread_mutex_lock(&late);
    pthread_mutex_timedlock(&late, &soon);
    pthread_mutex_unlock(&late);
    some_life(5);
    pthread_mutex_destroy(&again);
    some_life(7);
    pthread_spin_init(&spin, 0);
    for (int i = 0; i < 4; i++)
        pthread_spin_lock(&spin), pthread_spin_unlock(&spin);
    if (strcmp(mode, "child") == 0) {
        pid_t child = fork();
        if (child == 0) {
            pthread_mutex_lock(&busy), pthread_mutex_unlock(&busy);
            execl("/proc/self/exe", words[0], "once", NULL);
        }
        end_of(child);
    }
    if (strcmp(mode, "killed") == 0)
        raise(SIGKILL);
    if (strcmp(mode, "stays") == 0) {
        pthread_mutex_lock(&quiet);
        pthread_create(&thread, NULL, take_once, NULL);
        until_it_waits();
        puts("ready");
        fflush(stdout);
        nap(60000);
    }
    puts("done");
    return 7;
}
