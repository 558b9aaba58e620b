/* Several copies of the library in one process use the same locks: the copy that this program is
   linked with, and a copy in each shared object that is named on the command line. Readers of one
   copy announce themselves where writers of another copy look, and waiters of one copy queue behind
   waiters of another. The objects are linked with --exclude-libs: otherwise the loader would make
   all of them use the first copy, which is checked first. */

#include "test.h"
#include <dlfcn.h>

typedef void (*work_function)(kinlock_mutex_t *, kinlock_cond_t *, kinlock_rwlock_t *,
                              unsigned long *, int);

enum { TURNS = 20000, MOST = 4 };

static kinlock_mutex_t lock;
static kinlock_cond_t cond;
static kinlock_rwlock_t pair;
static unsigned long data[3];
static work_function work[MOST];
static uintptr_t addresses[MOST];

static void *run(void *argument)
{
    (*(work_function *)argument)(&lock, &cond, &pair, data, TURNS);
    return NULL;
}

static void own_work(kinlock_mutex_t *mutex, kinlock_cond_t *changed, kinlock_rwlock_t *both,
                     unsigned long *values, int turns)
{
    int i;
    for (i = 0; i < turns; i++) {
        kinlock_mutex_lock(mutex);
        values[0]++;
        kinlock_cond_broadcast(changed);
        kinlock_mutex_unlock(mutex);
        kinlock_rwlock_read_lock(both);
        CHECK(values[1] == values[2]);
        kinlock_rwlock_read_unlock(both);
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[2 * MOST];
    int copies = 0, i;
    CHECK(argc - 1 < MOST);
    for (i = 1; i < argc; i++) {
        uintptr_t (*address)(void);
        void *object = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        void *found = object != NULL ? dlsym(object, "copy_work") : NULL;
        if (found == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        memcpy(&work[copies], &found, sizeof(found));
        found = dlsym(object, "copy_address");
        CHECK(found != NULL);
        memcpy(&address, &found, sizeof(found));
        addresses[copies++] = address();
    }
    work[copies] = own_work;
    addresses[copies++] = (uintptr_t)&kinlock_mutex_lock;
    for (i = 1; i < copies; i++) {
        CHECK(addresses[i] != addresses[i - 1]);
    }
    for (i = 0; i < 2 * copies; i++) {
        threads[i] = start(run, &work[i % copies]);
    }
    for (i = 0; i < 2 * copies; i++) {
        join(threads[i]);
    }
    CHECK(data[0] == (unsigned long)(2 * copies * TURNS));
    CHECK(data[1] == (unsigned long)(2 * (copies - 1) * (TURNS / 16)));
    CHECK(kinlock_mutex_trylock(&lock) == 0);
    CHECK(kinlock_rwlock_write_trylock(&pair) == 0);
    return 0;
}
