/* uncontended LOCK TURNS: takes and releases a free lock, or adds to a counter (`counter`), so that
   ci/c.sh can count instructions, and users can measure time. `none` is the empty loop, `pthread`
   the C library's mutex. */

#include "test.h"

#define LOOP(statement) \
    for (turn = 0; turn < turns; turn++) { \
        statement; \
        __asm__ volatile("" ::: "memory"); \
    }

int main(int argc, char **argv)
{
    static pthread_mutex_t theirs = PTHREAD_MUTEX_INITIALIZER;
    static kinlock_mutex_t mutex;
    static kinlock_spin_t spin;
    static kinlock_rwlock_t rwlock;
    kinlock_ids_t *ids;
    kinlock_counter_t *counter;
    long turn, turns = argc == 3 ? atol(argv[2]) : 0;
    const char *name = argc == 3 ? argv[1] : "";
    CHECK(kinlock_ids_create(&ids, KINLOCK_IDS_ANY, 0) == 0);
    CHECK(kinlock_counter_create(ids, &counter) == 0);
    kinlock_counter_add(counter, 1);
    if (strcmp(name, "none") == 0) {
        LOOP((void)0);
    } else if (strcmp(name, "pthread") == 0) {
        LOOP(pthread_mutex_lock(&theirs); pthread_mutex_unlock(&theirs));
    } else if (strcmp(name, "mutex") == 0) {
        LOOP(kinlock_mutex_lock(&mutex); kinlock_mutex_unlock(&mutex));
    } else if (strcmp(name, "spin") == 0) {
        LOOP(kinlock_spin_lock(&spin); kinlock_spin_unlock(&spin));
    } else if (strcmp(name, "read") == 0) {
        LOOP(kinlock_rwlock_read_lock(&rwlock); kinlock_rwlock_read_unlock(&rwlock));
    } else if (strcmp(name, "write") == 0) {
        LOOP(kinlock_rwlock_write_lock(&rwlock); kinlock_rwlock_write_unlock(&rwlock));
    } else if (strcmp(name, "counter") == 0) {
        LOOP(kinlock_counter_add(counter, 1));
    } else {
        fprintf(stderr, "usage: uncontended LOCK TURNS\n");
        return 2;
    }
    return 0;
}
