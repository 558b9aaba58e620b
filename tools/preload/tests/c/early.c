/* Locks that are used before main, in a library that is loaded and unloaded, and after main. */
#include "common.h"
#include <dlfcn.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static int ready, early, late;

static void *helper(void *unused)
{
    pthread_mutex_lock(&mutex);
    ready = 1;
    pthread_cond_signal(&condvar);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void before_all(void)
{
    static pthread_mutex_t robust;
    make_mutex(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, 0);
    early += pthread_mutex_lock(&robust) == 0;
    early += pthread_mutex_unlock(&robust) == 0;
    early += pthread_mutex_lock(&mutex) == 0;
    early += pthread_mutex_lock(&recursive) == 0 && pthread_mutex_lock(&recursive) == 0;
    early += pthread_mutex_unlock(&recursive) == 0;
    early += pthread_mutex_unlock(&recursive) == 0;
    early += pthread_mutex_unlock(&mutex) == 0;
    static pthread_rwlock_t rwlock;
    early += pthread_rwlock_wrlock(&rwlock) == 0;
    early += pthread_rwlock_tryrdlock(&rwlock) == EBUSY;
    early += pthread_rwlock_unlock(&rwlock) == 0;
}

/* The program's own constructors of this sort run before those of all libraries. */
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = before_all;

__attribute__((constructor(101))) static void constructor(void)
{
    pthread_mutex_lock(&mutex);
    pthread_t thread = start(helper, NULL);
    while (!ready)
        pthread_cond_wait(&condvar, &mutex);
    pthread_mutex_unlock(&mutex);
    end(thread);
}

__attribute__((destructor(101))) static void destructor(void)
{
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    printf("after main %d\n", late);
    fflush(stdout);
}

static void *use(void *argument)
{
    long (*work)(void) = argument;
    return (void *)work();
}

int main(int argc, char **argv)
{
    printf("early %d, ready %d\n", early, ready);
    for (int i = 0; argc > 1 && i < 20; i++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        CHECK(library);
        void *work = dlsym(library, "work");
        CHECK(work);
        pthread_t threads[4];
        for (int t = 0; t < 4; t++)
            threads[t] = start(use, work);
        for (int t = 0; t < 4; t++)
            CHECK(end(threads[t]) == (void *)1000);
        CHECK(dlclose(library) == 0);
    }
    late = 1;
    return 0;
}
