/* An allocator that uses locks: no function of a lock allocates, contended or not. If one did, this
   program would count it, and might wait for itself. With the path of the shared library as an
   argument, the program loads the library by dlopen, after its threads have started. */

#include "test.h"
#include <dlfcn.h>

/* The tested functions, which the program is linked with or has loaded. */
static int (*lock_mutex)(kinlock_mutex_t *);
static int (*unlock_mutex)(kinlock_mutex_t *);
static int (*wait_cond)(kinlock_cond_t *, kinlock_mutex_t *, uint64_t);
static int (*signal_cond)(kinlock_cond_t *);
static int (*lock_read)(kinlock_rwlock_t *);
static int (*unlock_read)(kinlock_rwlock_t *);
static int (*lock_write)(kinlock_rwlock_t *);
static int (*unlock_write)(kinlock_rwlock_t *);

static kinlock_mutex_t mutex;
static kinlock_cond_t cond;
static kinlock_rwlock_t rwlock;
static int counts, loaded, done;
static unsigned allocations;

static void *allocate(size_t size)
{
    static char memory[1 << 24] __attribute__((aligned(64)));
    static size_t used;
    size_t at = __atomic_fetch_add(&used, (size + 63) & ~(size_t)63, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&counts, __ATOMIC_SEQ_CST)) {
        __atomic_add_fetch(&allocations, 1, __ATOMIC_SEQ_CST);
    }
    if (at + size > sizeof(memory)) {
        _exit(9);
    }
    return memory + at;
}

#ifdef __cplusplus
extern "C" {
#endif

/* These functions never free memory. */
void *malloc(size_t size) { return allocate(size); }
void free(void *memory) { (void)memory; }
void *calloc(size_t count, size_t size) { return allocate(count * size); }

void *realloc(void *old, size_t size)
{
    /* What is copied beyond the old size is within the static memory, or right behind it. */
    char *memory = (char *)allocate(size + 64);
    size_t at;
    for (at = 0; old != NULL && at < size; at++) {
        memory[at] = ((char *)old)[at];
    }
    return memory;
}

void *memalign(size_t alignment, size_t size)
{
    char *memory = (char *)allocate(size + alignment);
    return memory + (alignment - (uintptr_t)memory % alignment) % alignment;
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **result, size_t alignment, size_t size)
{
    *result = memalign(alignment, size);
    return 0;
}

#ifdef __cplusplus
}
#endif

static void *contend(void *unused)
{
    int i;
    while (!LOAD(loaded)) {
        sleep_ms(1);
    }
    for (i = 0; i < 3000; i++) {
        lock_mutex(&mutex);
        if (i % 8 == 0) {
            wait_cond(&cond, &mutex, 1000);
        }
        signal_cond(&cond);
        unlock_mutex(&mutex);
        if (i % 16 == 0) {
            lock_write(&rwlock);
            unlock_write(&rwlock);
        } else {
            lock_read(&rwlock);
            unlock_read(&rwlock);
        }
    }
    ADD(done, 1);
    return unused;
}

/* Copies the address, because C cannot convert a pointer to an object to a pointer to a function.
   */
static void find(void *library, const char *name, void *function, size_t size)
{
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    memcpy(function, &found, size);
}

#define FIND(library, variable, name) find(library, name, &variable, sizeof(variable))

int main(int argc, char **argv)
{
    pthread_t threads[4];
    int i;
    for (i = 0; i < 4; i++) {
        threads[i] = start(contend, NULL);
    }
    if (argc > 1) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        FIND(library, lock_mutex, "kinlock_mutex_lock");
        FIND(library, unlock_mutex, "kinlock_mutex_unlock");
        FIND(library, wait_cond, "kinlock_cond_wait_for");
        FIND(library, signal_cond, "kinlock_cond_signal");
        FIND(library, lock_read, "kinlock_rwlock_read_lock");
        FIND(library, unlock_read, "kinlock_rwlock_read_unlock");
        FIND(library, lock_write, "kinlock_rwlock_write_lock");
        FIND(library, unlock_write, "kinlock_rwlock_write_unlock");
        /* The library stays: threads that have waited call into it when they end. */
        CHECK(dlclose(library) == 0);
    } else {
#ifdef WITHOUT_LIBRARY
        fprintf(stderr, "usage: allocator LIBRARY\n");
        return 2;
#else
        lock_mutex = kinlock_mutex_lock;
        unlock_mutex = kinlock_mutex_unlock;
        wait_cond = kinlock_cond_wait_for;
        signal_cond = kinlock_cond_signal;
        lock_read = kinlock_rwlock_read_lock;
        unlock_read = kinlock_rwlock_read_unlock;
        lock_write = kinlock_rwlock_write_lock;
        unlock_write = kinlock_rwlock_write_unlock;
#endif
    }
    STORE(counts, 1);
    STORE(loaded, 1);
    while (LOAD(done) < 4) {
        sleep_ms(1);
    }
    STORE(counts, 0);
    for (i = 0; i < 4; i++) {
        join(threads[i]);
    }
    if (allocations != 0) {
        fprintf(stderr, "the locks have allocated %u times\n", allocations);
        return 1;
    }
    return 0;
}
