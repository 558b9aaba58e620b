/* One misuse of a lock, or one order of locks, per mode. The calls are made by functions with
   different names, which the report has to show. The test prepends the preload tests' common.h. */

#define APART __attribute__((noinline, noclone))
#define KEPT __asm__ volatile("")

pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t c = PTHREAD_MUTEX_INITIALIZER, gate = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t careful = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
pthread_mutex_t nested = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER, other_rw = PTHREAD_RWLOCK_INITIALIZER;
pthread_rwlock_t polite = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
pthread_spinlock_t spin;
pthread_mutex_t robust;
static atomic_int ready, told;

static void *calls(void *body)
{
    (*(void (**)(void))body)();
    return NULL;
}

/* Calls `body` in `count` threads at the same time. */
static void in_threads(int count, void (*body)(void))
{
    pthread_t threads[2];
    for (int i = 0; i < count; i++)
        threads[i] = start(calls, &body);
    for (int i = 0; i < count; i++)
        end(threads[i]);
}

static void in_thread(void (*body)(void))
{
    in_threads(1, body);
}

/* ---- misuse ---- */

APART void takes_a(void) { pthread_mutex_lock(&a); KEPT; }
APART void releases_a(void) { pthread_mutex_unlock(&a); KEPT; }
APART void destroys_a(void) { pthread_mutex_destroy(&a); KEPT; }
APART void releases_careful(void) { pthread_mutex_unlock(&careful); KEPT; }
APART void takes_careful_again(void) { pthread_mutex_lock(&careful); KEPT; }
APART void releases_spin(void) { pthread_spin_unlock(&spin); KEPT; }
APART void releases_rw(void) { pthread_rwlock_unlock(&rw); KEPT; }
APART void destroys_rw(void) { pthread_rwlock_destroy(&rw); KEPT; }
APART void destroys_condvar(void) { pthread_cond_destroy(&condvar); KEPT; }

APART void takes_a_again(void)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 100);
    pthread_mutex_timedlock(&a, &soon); KEPT;
}

APART void reads_again(void)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 100);
    if (pthread_rwlock_timedrdlock(&polite, &soon) == 0)
        pthread_rwlock_unlock(&polite);
}

APART void writes_what_it_reads(void)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 100);
    pthread_rwlock_timedwrlock(&rw, &soon); KEPT;
}

APART void releases_robust(void) { pthread_mutex_unlock(&robust); KEPT; }

static void initialise_robust(int inherits)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    if (inherits)
        pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    else
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    if (pthread_mutex_init(&robust, &kind) != 0)
        abort();
}

static void takes_robust(void) { pthread_mutex_lock(&robust); }

static void waits_for_a(void)
{
    goes_to_wait();
    takes_a();
    pthread_mutex_unlock(&a);
}

static void waits_for_condvar(void)
{
    struct timespec later = in_ms(CLOCK_REALTIME, 1500);
    pthread_mutex_lock(&a);
    goes_to_wait();
    pthread_cond_timedwait(&condvar, &a, &later);
    pthread_mutex_unlock(&a);
}

static void writes_politely(void)
{
    goes_to_wait();
    pthread_rwlock_wrlock(&polite), pthread_rwlock_unlock(&polite);
}

static void with_waiter(void (*body)(void), void (*misuse)(void), void (*release)(void))
{
    pthread_t thread = start(calls, &body);
    until_it_waits();
    misuse();
    if (release)
        release();
    end(thread);
}

static void ends_reading(void) { pthread_rwlock_unlock(&polite); }

static void a_then_reads(void);

static int misuses(const char *mode)
{
    if (strcmp(mode, "foreign") == 0)
        takes_a(), in_thread(releases_a);
    else if (strcmp(mode, "twice") == 0)
        takes_a(), pthread_mutex_unlock(&a), releases_a();
    else if (strcmp(mode, "destroyed") == 0)
        takes_a(), destroys_a(), pthread_mutex_unlock(&a);
    else if (strcmp(mode, "awaited") == 0)
        takes_a(), with_waiter(waits_for_a, destroys_a, releases_a);
    else if (strcmp(mode, "awaited condvar") == 0)
        with_waiter(waits_for_condvar, destroys_condvar, NULL);
    else if (strcmp(mode, "again") == 0)
        takes_a(), takes_a_again(), pthread_mutex_unlock(&a);
    else if (strcmp(mode, "careful foreign") == 0)
        pthread_mutex_lock(&careful), in_thread(releases_careful), pthread_mutex_unlock(&careful);
    else if (strcmp(mode, "careful twice") == 0)
        pthread_mutex_lock(&careful), pthread_mutex_unlock(&careful), releases_careful();
    else if (strcmp(mode, "careful again") == 0)
        pthread_mutex_lock(&careful), takes_careful_again(), pthread_mutex_unlock(&careful);
    else if (strcmp(mode, "spin twice") == 0)
        pthread_spin_init(&spin, 0), pthread_spin_lock(&spin), pthread_spin_unlock(&spin),
            releases_spin();
    else if (strcmp(mode, "rw twice") == 0)
        pthread_rwlock_wrlock(&rw), pthread_rwlock_unlock(&rw), releases_rw();
    else if (strcmp(mode, "rw foreign") == 0)
        pthread_rwlock_wrlock(&rw), in_thread(releases_rw);
    else if (strcmp(mode, "rw let go") == 0) {
        /* Now the writer is not known any more. */
        pthread_rwlock_wrlock(&rw), in_thread(releases_rw);
        pthread_mutex_lock(&a), pthread_mutex_unlock(&a);
        pthread_rwlock_wrlock(&rw), pthread_rwlock_unlock(&rw);
        in_thread(a_then_reads);
    } else if (strcmp(mode, "robust foreign") == 0)
        initialise_robust(0), pthread_mutex_lock(&robust), in_thread(releases_robust),
            pthread_mutex_unlock(&robust);
    else if (strcmp(mode, "inheriting foreign") == 0)
        initialise_robust(1), pthread_mutex_lock(&robust), in_thread(releases_robust),
            pthread_mutex_unlock(&robust);
    else if (strcmp(mode, "robust twice") == 0) {
        /* The mutex cannot be used any more. Its owner field is the number of no thread. */
        initialise_robust(0), in_thread(takes_robust);
        if (pthread_mutex_lock(&robust) != EOWNERDEAD)
            abort();
        pthread_mutex_unlock(&robust), releases_robust();
    } else if (strcmp(mode, "many") == 0) {
        static pthread_mutex_t never_taken[600];
        for (int i = 0; i < 600; i++)
            pthread_mutex_unlock(never_taken + i);
    } else if (strcmp(mode, "rw destroyed") == 0)
        pthread_rwlock_rdlock(&rw), destroys_rw(), pthread_rwlock_unlock(&rw);
    else if (strcmp(mode, "rw upgraded") == 0)
        pthread_rwlock_rdlock(&rw), writes_what_it_reads(), pthread_rwlock_unlock(&rw);
    else if (strcmp(mode, "read again") == 0)
        pthread_rwlock_rdlock(&polite), with_waiter(writes_politely, reads_again, ends_reading);
    else
        return 0;
    return 1;
}

/* ---- orders ---- */

APART void asks_for_b(void) { pthread_mutex_lock(&b); KEPT; }
APART void asks_for_a(void) { pthread_mutex_lock(&a); KEPT; }
APART void a_then_b(void)
{
    pthread_mutex_lock(&a);
    asks_for_b();
    pthread_mutex_unlock(&b), pthread_mutex_unlock(&a);
}
APART void b_then_a(void)
{
    pthread_mutex_lock(&b);
    asks_for_a();
    pthread_mutex_unlock(&a), pthread_mutex_unlock(&b);
}
APART void b_then_c(void)
{
    pthread_mutex_lock(&b), pthread_mutex_lock(&c);
    pthread_mutex_unlock(&c), pthread_mutex_unlock(&b);
}
APART void c_then_a(void)
{
    pthread_mutex_lock(&c), pthread_mutex_lock(&a);
    pthread_mutex_unlock(&a), pthread_mutex_unlock(&c);
}
APART void b_then_tries_a(void)
{
    pthread_mutex_lock(&b);
    if (pthread_mutex_trylock(&a) == 0)
        pthread_mutex_unlock(&a);
    pthread_mutex_unlock(&b);
}
APART void b_then_a_for_a_while(void)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 1000);
    pthread_mutex_lock(&b);
    if (pthread_mutex_timedlock(&a, &soon) == 0)
        pthread_mutex_unlock(&a);
    pthread_mutex_unlock(&b);
}
APART void writes_then_a(void)
{
    pthread_rwlock_wrlock(&rw), pthread_mutex_lock(&a);
    pthread_mutex_unlock(&a), pthread_rwlock_unlock(&rw);
}
APART void a_then_reads(void)
{
    pthread_mutex_lock(&a), pthread_rwlock_rdlock(&rw);
    pthread_rwlock_unlock(&rw), pthread_mutex_unlock(&a);
}
APART void reads_both(pthread_rwlock_t *one, pthread_rwlock_t *two)
{
    pthread_rwlock_rdlock(one), pthread_rwlock_rdlock(two);
    pthread_rwlock_unlock(two), pthread_rwlock_unlock(one);
}
/* A thread that already reads does not wait the second time. */
APART void reads_around_a(void)
{
    pthread_rwlock_rdlock(&rw), pthread_mutex_lock(&a), pthread_rwlock_rdlock(&rw);
    pthread_rwlock_unlock(&rw), pthread_mutex_unlock(&a), pthread_rwlock_unlock(&rw);
}
/* The wait releases a and takes it again, with b held. */
APART void waits_with_b(void)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 20);
    pthread_mutex_lock(&a), pthread_mutex_lock(&b);
    pthread_cond_timedwait(&condvar, &a, &soon);
    pthread_mutex_unlock(&b), pthread_mutex_unlock(&a);
}

/* Two of many accounts, by address. */
static pthread_mutex_t *accounts;
static void transfer(int from, int to)
{
    int first = from < to ? from : to, second = from < to ? to : from;
    pthread_mutex_lock(accounts + first), pthread_mutex_lock(accounts + second);
    pthread_mutex_unlock(accounts + second), pthread_mutex_unlock(accounts + first);
}

static void b_then_a_guarded(void)
{
    pthread_mutex_lock(&gate);
    b_then_a();
    pthread_mutex_unlock(&gate);
}
static void a_then_b_guarded(void)
{
    pthread_mutex_lock(&gate);
    a_then_b();
    pthread_mutex_unlock(&gate);
}
static void both_ways(void)
{
    a_then_b();
    b_then_a_guarded();
}
static void reads_backwards(void) { reads_both(&other_rw, &rw); }
static void transfers(void)
{
    for (int i = 0; i < 1000; i++)
        transfer(i * 7 % 20, (i * 3 + 1) % 20 == i * 7 % 20 ? 20 : (i * 3 + 1) % 20);
}
static void steps(void)
{
    /* Hand over hand, through a list. */
    for (int round = 0; round < 100; round++) {
        pthread_mutex_lock(accounts);
        for (int i = 1; i < 20; i++)
            pthread_mutex_lock(accounts + i), pthread_mutex_unlock(accounts + i - 1);
        pthread_mutex_unlock(accounts + 19);
    }
}
/* New locks at the same two addresses each time, so their orders are orders of different locks. */
static void reuses(void)
{
    pthread_mutex_t *two = accounts;
    for (int i = 0; i < 200; i++) {
        int first = i % 2;
        pthread_mutex_init(two, NULL), pthread_mutex_init(two + 1, NULL);
        pthread_mutex_lock(two + first), pthread_mutex_lock(two + !first);
        pthread_mutex_unlock(two + !first), pthread_mutex_unlock(two + first);
        pthread_mutex_destroy(two), pthread_mutex_destroy(two + 1);
    }
}
/* The same with locks like C++'s std::mutex, which end and begin without a call. */
static void constructs(void)
{
    pthread_mutex_t *two = accounts;
    for (int i = 0; i < 200; i++) {
        int first = i % 2;
        memset(two, 0, 2 * sizeof *two);
        pthread_mutex_lock(two + first), pthread_mutex_lock(two + !first);
        pthread_mutex_unlock(two + !first), pthread_mutex_unlock(two + first);
    }
}
/* Waits until it is told, and says that it was. */
static void *is_told(void *unused)
{
    pthread_mutex_lock(&a);
    ready++;
    while (!told)
        pthread_cond_wait(&condvar, &a);
    pthread_mutex_unlock(&a);
    return unused;
}

static int orders(const char *mode)
{
    accounts = calloc(21, sizeof *accounts);
    if (strcmp(mode, "circle") == 0)
        a_then_b(), in_thread(b_then_a);
    else if (strcmp(mode, "circle of a hot lock") == 0) {
        for (int i = 0; i < 20000; i++)
            pthread_mutex_lock(&a), pthread_mutex_unlock(&a);
        a_then_b(), a_then_b(), in_thread(b_then_a);
    } else if (strcmp(mode, "circle of three") == 0)
        a_then_b(), in_thread(b_then_c), in_thread(c_then_a);
    else if (strcmp(mode, "circle of three, two of them by two") == 0)
        /* The main thread makes two of the orders, and another thread also makes one of these. */
        a_then_b(), b_then_c(), in_thread(b_then_c), in_thread(c_then_a);
    else if (strcmp(mode, "circle of a crowd") == 0) {
        /* More threads than are noted for an order. The last one does not hold the gate. */
        for (int i = 0; i < 12; i++)
            in_thread(a_then_b_guarded);
        in_thread(a_then_b), in_thread(b_then_a_guarded), in_thread(b_then_a_guarded);
    } else if (strcmp(mode, "circle of a rwlock") == 0)
        writes_then_a(), in_thread(a_then_reads);
    else if (strcmp(mode, "circle of a wait") == 0)
        /* The threads run one after the other; otherwise they could deadlock. */
        in_thread(waits_with_b), in_thread(waits_with_b);
    else if (strcmp(mode, "tries") == 0)
        a_then_b(), in_thread(b_then_tries_a);
    else if (strcmp(mode, "for a while") == 0)
        a_then_b(), in_thread(b_then_a_for_a_while);
    else if (strcmp(mode, "gate") == 0) {
        pthread_mutex_lock(&gate), a_then_b(), pthread_mutex_unlock(&gate);
        in_thread(b_then_a_guarded);
    } else if (strcmp(mode, "gate of two") == 0)
        /* One thread holds the gate. Another makes both orders, one of them without the gate. */
        in_thread(a_then_b_guarded), in_thread(both_ways);
    else if (strcmp(mode, "gate of a crowd") == 0) {
        for (int i = 0; i < 12; i++)
            in_thread(a_then_b_guarded), in_thread(b_then_a_guarded);
    } else if (strcmp(mode, "two threads, three locks") == 0)
        /* For a deadlock one thread would have to be in two places. */
        a_then_b(), b_then_c(), in_thread(c_then_a);
    else if (strcmp(mode, "one thread") == 0)
        a_then_b(), b_then_a();
    else if (strcmp(mode, "readers") == 0)
        reads_both(&rw, &other_rw), in_thread(reads_backwards);
    else if (strcmp(mode, "addresses") == 0)
        in_threads(2, transfers);
    else if (strcmp(mode, "hand over hand") == 0)
        in_threads(2, steps);
    else if (strcmp(mode, "reused") == 0)
        in_thread(reuses), in_thread(reuses);
    else if (strcmp(mode, "many at once") == 0) {
        for (int i = 0; i < 20; i++)
            pthread_mutex_lock(accounts + i);
        for (int i = 0; i < 20; i++)
            pthread_mutex_unlock(accounts + i);
    } else if (strcmp(mode, "constructed") == 0)
        in_thread(constructs), in_thread(constructs);
    else if (strcmp(mode, "reads around") == 0)
        reads_around_a(), in_thread(writes_then_a);
    else if (strcmp(mode, "same order") == 0)
        a_then_b(), in_thread(a_then_b);
    else
        return 0;
    return 1;
}

/* ---- other correct programs ---- */

static void hold(void) { pthread_mutex_lock(&a); }
static void let_go(void) { pthread_mutex_unlock(&a); }
/* In the child the owners of these locks are no threads of the process, so the release fails. */
static void hold_owned(void) { pthread_mutex_lock(&nested), pthread_mutex_lock(&careful); }
static void let_owned_go(void) { pthread_mutex_unlock(&nested), pthread_mutex_unlock(&careful); }

static int correct(const char *mode)
{
    if (strcmp(mode, "kinds") == 0) {
        pthread_mutex_lock(&nested), pthread_mutex_lock(&nested);
        pthread_mutex_unlock(&nested), pthread_mutex_unlock(&nested);
        pthread_mutex_lock(&careful), pthread_mutex_unlock(&careful);
        pthread_mutex_lock(&a), pthread_mutex_trylock(&a), pthread_mutex_unlock(&a);
        pthread_mutex_destroy(&a);
        pthread_rwlock_rdlock(&rw), pthread_rwlock_rdlock(&rw);
        pthread_rwlock_unlock(&rw), pthread_rwlock_unlock(&rw);
        pthread_rwlock_destroy(&rw);
        pthread_spin_init(&spin, 0), pthread_spin_lock(&spin), pthread_spin_unlock(&spin);
        pthread_spin_destroy(&spin);
    } else if (strcmp(mode, "told") == 0) {
        /* Destroyed right after the broadcast: the waiters may not have left yet. */
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            pthread_create(threads + i, NULL, is_told, NULL);
        while (ready < 4)
            nap(1);
        pthread_mutex_lock(&a);
        told = 1;
        pthread_cond_broadcast(&condvar);
        pthread_cond_destroy(&condvar);
        pthread_mutex_unlock(&a);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        pthread_mutex_destroy(&a);
    } else if (strcmp(mode, "forks") == 0) {
        /* A lock that is held over a fork is released in both processes. */
        pthread_atfork(hold, let_go, let_go);
        pthread_rwlock_rdlock(&rw);
        pid_t child = fork();
        pthread_rwlock_unlock(&rw);
        pthread_mutex_lock(&b), pthread_mutex_unlock(&b);
        pthread_mutex_lock(&a), pthread_mutex_unlock(&a);
        if (child == 0)
            _exit(0);
        int status;
        waitpid(child, &status, 0);
    } else if (strcmp(mode, "forks with owners") == 0) {
        pthread_atfork(hold_owned, let_owned_go, let_owned_go);
        pid_t child = fork();
        pthread_mutex_lock(&b), pthread_mutex_unlock(&b);
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    } else if (strcmp(mode, "clones with owners") == 0) {
        /* The C library takes the child's thread for the parent's. */
        hold_owned();
        pid_t child = syscall(SYS_clone, (long)SIGCHLD, 0, 0, 0, 0);
        let_owned_go(), hold_owned(), let_owned_go();
        pthread_rwlock_wrlock(&rw), pthread_rwlock_unlock(&rw);
        pthread_mutex_lock(&b), pthread_mutex_unlock(&b);
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    } else if (strcmp(mode, "forks and destroys") == 0) {
        /* The parent's locks are nothing to the child. */
        pthread_mutex_lock(&a), pthread_rwlock_wrlock(&rw);
        pid_t child = fork();
        if (child == 0) {
            pthread_mutex_lock(&b), pthread_mutex_unlock(&b);
            pthread_mutex_destroy(&a), pthread_rwlock_destroy(&rw);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        pthread_mutex_unlock(&a), pthread_rwlock_unlock(&rw);
    } else
        return 0;
    return 1;
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    if (!misuses(mode) && !orders(mode) && !correct(mode))
        return 2;
    puts("done");
    return 0;
}
