/* A thread that is older than some libraries with thread-locals waits for a lock. If it used thread-locals of the
   lock's library in the usual way, the C library would allocate memory during that wait. */
#include "common.h"
#include <dlfcn.h>
#include <sched.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static __thread int is_watched __attribute__((tls_model("initial-exec")));
static atomic_int allocations, go, waits;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static void note(void) { allocations += is_watched; }
void *malloc(size_t size) { return note(), __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return note(), __libc_calloc(n, size); }
void *realloc(void *old, size_t size) { return note(), __libc_realloc(old, size); }
void *memalign(size_t alignment, size_t size) { return note(), __libc_memalign(alignment, size); }

static void *work(void *unused)
{
    while (!go)
        sched_yield();
    is_watched = 1;
    waits = 1;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    pthread_rwlock_wrlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
    is_watched = 0;
    return unused;
}

int main(int count, char **words)
{
    pthread_t thread = start(work, NULL);
    for (int i = 1; i < count; i++)
        CHECK(dlopen(words[i], RTLD_NOW) != NULL);
    pthread_mutex_lock(&mutex);
    pthread_rwlock_rdlock(&rwlock);
    go = 1;
    while (!waits)
        sched_yield();
    nap(100);
    pthread_mutex_unlock(&mutex);
    nap(50);
    pthread_rwlock_unlock(&rwlock);
    end(thread);
    printf("%d libraries, %d allocations\n", count - 1, allocations);
    return 0;
}
