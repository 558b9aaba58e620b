/* Plugins with copies of the crate, and the preloaded library, which is another: they share
 * locks with each other, and the program has its own. In a child of fork, too. */
#include "common.h"
#include <dlfcn.h>

struct copy {
    void (*decide)(void);
    void (*lock[2])(void *), (*unlock[2])(void *);
    void (*read_lock)(void *), (*read_unlock)(void *), (*bias)(void *);
    char (*write_try)(void *);
    void (*write_unlock)(void *);
};

static struct copy copies[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static _Alignas(64) char memory[256];
static long counters[4];

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

static void load(struct copy *copy, const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    copy->decide = find(library, "decide");
    copy->lock[0] = find(library, "mutex_lock");
    copy->unlock[0] = find(library, "mutex_unlock");
    copy->lock[1] = find(library, "spin_lock");
    copy->unlock[1] = find(library, "spin_unlock");
    copy->read_lock = find(library, "read_lock");
    copy->read_unlock = find(library, "read_unlock");
    copy->bias = find(library, "bias");
    copy->write_try = find(library, "write_try");
    copy->write_unlock = find(library, "write_unlock");
    copy->decide();
}

static void *count(void *number)
{
    struct copy *copy = &copies[(intptr_t)number % 2];
    for (int i = 0; i < 2000; i++) {
        for (int kind = 0; kind < 2; kind++) {
            copy->lock[kind](memory);
            counters[kind]++;
            copy->unlock[kind](memory);
        }
        pthread_mutex_lock(&mutex);
        counters[2]++;
        pthread_mutex_unlock(&mutex);
        pthread_rwlock_wrlock(&rwlock);
        counters[3]++;
        pthread_rwlock_unlock(&rwlock);
    }
    return NULL;
}

static void check(void)
{
    memset(counters, 0, sizeof counters);
    run_threads(4, count);
    for (int i = 0; i < 4; i++)
        CHECK(counters[i] == 8000);
    copies[0].bias(memory);
    copies[0].read_lock(memory);
    CHECK(!copies[1].write_try(memory));
    copies[0].read_unlock(memory);
    CHECK(copies[1].write_try(memory));
    copies[1].write_unlock(memory);
}

int main(int argc, char **argv)
{
    for (int i = 0; i < 2; i++)
        load(&copies[i], argv[i + 1]);
    check();
    copies[0].bias(memory);
    copies[0].read_lock(memory);
    pid_t child = fork();
    if (child == 0) {
        CHECK(!copies[1].write_try(memory));
        copies[0].read_unlock(memory);
        check();
        _exit(0);
    }
    CHECK(end_of(child) == 0);
    copies[0].read_unlock(memory);
    puts("done");
}
