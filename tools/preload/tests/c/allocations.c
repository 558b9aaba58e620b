/* Taking and releasing locks allocates nothing, however contended they are: during that part of the test, malloc
   and its relatives end the program. Nor does malloc hang if it takes a lock itself. */
#include "common.h"

static atomic_int forbidden;
static pthread_mutex_t of_malloc = PTHREAD_MUTEX_INITIALIZER;
static char memory[64 << 20];
static size_t used;
static atomic_long allocations;

static void *allocate(size_t size, size_t alignment)
{
    if (forbidden) {
        static const char text[] = "an allocation on a lock's path\n";
        write(1, text, sizeof text - 1);
        abort();
    }
    allocations++;
    pthread_mutex_lock(&of_malloc);
    size_t at = (used + 16 + alignment - 1) & ~(alignment - 1);
    used = at + size;
    if (used > sizeof memory)
        abort();
    *(size_t *)(memory + at - 16) = size;
    pthread_mutex_unlock(&of_malloc);
    return memory + at;
}

void *malloc(size_t size) { return allocate(size, 16); }
void *calloc(size_t n, size_t size) { return allocate(n * size, 16); }
void *memalign(size_t alignment, size_t size) { return allocate(size, alignment < 16 ? 16 : alignment); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **to, size_t alignment, size_t size) { return *to = memalign(alignment, size), 0; }
void free(void *pointer) {}
void *realloc(void *old, size_t size)
{
    void *new = malloc(size);
    if (old) {
        size_t before = *(size_t *)((char *)old - 16);
        memcpy(new, old, before < size ? before : size);
    }
    return new;
}

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t robust, inherits;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t careful = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_spinlock_t spin;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static long counter, turn;
static void *unused_memory;

static void *work(void *argument)
{
    long me = (long)argument;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 3000; i++) {
        struct timespec soon = in_ms(CLOCK_REALTIME, 1), far = in_ms(CLOCK_MONOTONIC, 10000);
        pthread_mutex_lock(&normal);
        counter++;
        if (i % 100 == 0)
            nap(1);
        pthread_mutex_unlock(&normal);
        if (pthread_mutex_timedlock(&normal, &soon) == 0)
            pthread_mutex_unlock(&normal);
        if (pthread_mutex_clocklock(&normal, CLOCK_MONOTONIC, &far) == 0)
            pthread_mutex_unlock(&normal);
        pthread_mutex_lock(&recursive);
        pthread_mutex_lock(&recursive);
        /* Nested locks, and an unlock of a mutex that is not held, so that a report has something to note. */
        pthread_mutex_lock(&careful);
        pthread_mutex_unlock(&careful);
        pthread_mutex_unlock(&careful);
        pthread_mutex_unlock(&recursive);
        pthread_mutex_unlock(&recursive);
        pthread_mutex_lock(&robust);
        pthread_mutex_unlock(&robust);
        pthread_mutex_lock(&inherits);
        pthread_mutex_unlock(&inherits);
        for (int reads = 0; reads < 4; reads++) {
            pthread_rwlock_rdlock(&rwlock);
            if (pthread_rwlock_timedrdlock(&rwlock, &soon) == 0)
                pthread_rwlock_unlock(&rwlock);
            pthread_rwlock_unlock(&rwlock);
        }
        if (i % 10 == 0) {
            pthread_rwlock_wrlock(&rwlock);
            pthread_rwlock_unlock(&rwlock);
            if (pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &far) == 0)
                pthread_rwlock_unlock(&rwlock);
        }
        pthread_spin_lock(&spin);
        pthread_spin_unlock(&spin);
        if (i % 30 == 0) {
            pthread_mutex_lock(&normal);
            while (turn % 8 != me)
                if (i % 60)
                    pthread_cond_wait(&condvar, &normal);
                else
                    pthread_cond_clockwait(&condvar, &normal, CLOCK_MONOTONIC, &far);
            turn++;
            pthread_cond_broadcast(&condvar);
            pthread_mutex_unlock(&normal);
        }
    }
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(void)
{
    pthread_t threads[8];
    make_mutex(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, 0);
    make_mutex(&inherits, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT, 0);
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    pthread_barrier_init(&barrier, NULL, 9);
    printf("begin\n");
    fflush(stdout);
    for (long i = 0; i < 8; i++)
        threads[i] = start(work, (void *)i);
    /* All have begun, and do nothing before the next one. */
    pthread_barrier_wait(&barrier);
    forbidden = getenv("ALLOWED") == NULL;
    pthread_barrier_wait(&barrier);
    if (getenv("ALLOCATES"))
        *(void *volatile *)&unused_memory = malloc(1);
    pthread_barrier_wait(&barrier);
    forbidden = 0;
    for (int i = 0; i < 8; i++)
        end(threads[i]);
    CHECK(allocations > 0);
    printf("%ld %ld\n", counter, turn);
    return 0;
}
