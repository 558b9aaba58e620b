/* A shared object that has added to a counter is unloaded, and must leave no pointer for the
   kernel. Otherwise the kernel would look for a sequence in memory that is gone, and end the
   process by SIGSEGV when it next interrupts the thread. The argument is the path of plugin.c's
   object. */

#include "test.h"
#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>

enum { ADDS = 10000, SEQUENCE = 8, SIGNATURE = 0x53053053, UNREGISTER = 1 };

static kinlock_counter_t *counter;
static void (*add)(kinlock_counter_t *);
static const char *path;
static unsigned long calls;

/* The address of the pointer to the current sequence, in the memory that the kernel shares with
   this thread. */
static uint64_t *sequence(void)
{
    const struct kinlock_counter_parts *parts = (const struct kinlock_counter_parts *)counter;
    char *thread = NULL;
    if (parts->area == 0) {
        return NULL;
    }
#ifdef __x86_64__
    __asm__("movq %%fs:0, %0" : "=r"(thread));
#endif
    return thread == NULL ? NULL : (uint64_t *)(void *)(thread + parts->area + SEQUENCE);
}

static int within_object(void)
{
    const uint64_t *under_way = sequence();
    uint64_t left = under_way == NULL ? 0 : __atomic_load_n(under_way, __ATOMIC_RELAXED);
    Dl_info info;
    return left != 0 && dladdr((void *)(uintptr_t)left, &info) != 0 &&
           strcmp(info.dli_fname, path) == 0;
}

/* Called by the object if the header's sequence does not add. */
void (kinlock_counter_add)(kinlock_counter_t *called, uint64_t n)
{
    void (*next)(kinlock_counter_t *, uint64_t);
    void *found = dlsym(RTLD_NEXT, "kinlock_counter_add");
    CHECK(found != NULL);
    memcpy(&next, &found, sizeof(found));
    CHECK(!within_object());
    calls++;
    next(called, n);
}

static void add_many(void)
{
    int i;
    for (i = 0; i < ADDS; i++) {
        add(counter);
        CHECK(!within_object());
    }
}

/* Without a registered area the addition leaves its sequence early. */
static void *add_unregistered(void *unused)
{
    char *area = sequence() == NULL ? NULL : (char *)sequence() - SEQUENCE;
    if (area != NULL) {
        /* The size has to be the one that the C library has registered, which is not known before
           glibc 2.35. */
        long size, result = -1;
        for (size = 32; size <= 256 && result != 0; size += 4) {
            result = syscall(SYS_rseq, area, size, UNREGISTER, SIGNATURE);
        }
        CHECK(result == 0);
    }
    calls = 0;
    add_many();
    CHECK(calls == ADDS);
    return unused;
}

int main(int argc, char **argv)
{
    kinlock_ids_t *ids;
    void *object, *found;
    uint64_t begin;
    CHECK(argc == 2);
    CHECK(kinlock_ids_create(&ids, KINLOCK_IDS_ANY, 0) == 0);
    CHECK(kinlock_counter_create(ids, &counter) == 0);
    if (has_restartable("unload.c")) {
        CHECK(sequence() != NULL);
    }
    path = argv[1];
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    found = object != NULL ? dlsym(object, "plugin_add") : NULL;
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    memcpy(&add, &found, sizeof(found));
    add_many();
    run_threads(1, add_unregistered, NULL);
    add(counter);
    CHECK(dlclose(object) == 0);
    CHECK(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL);
    /* Long enough for the kernel to interrupt this thread many times. */
    begin = kinlock_now();
    while (kinlock_now() - begin < 100 * MS) {
        sched_yield();
    }
    CHECK(kinlock_counter_sum(counter) == 2 * ADDS + 1);
    kinlock_counter_destroy(counter);
    kinlock_ids_destroy(ids);
    return 0;
}
