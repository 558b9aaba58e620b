/* A reader-writer lock that is released once too often: it may answer anything, but must not hang. */
#include "common.h"

static void once_more(pthread_rwlock_t *lock)
{
    /* After that, a lock cannot be used any more, neither ours nor the C library's. */
    printf("%s\n", name(pthread_rwlock_unlock(lock)));
}

int main(void)
{
    static pthread_rwlock_t fixed = PTHREAD_RWLOCK_INITIALIZER, read, written,
        prefers = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    alarm(300);
    once_more(&fixed);
    CHECK(pthread_rwlock_init(&read, NULL) == 0);
    for (int i = 0; i < 10000; i++) {
        CHECK(pthread_rwlock_rdlock(&read) == 0);
        CHECK(pthread_rwlock_unlock(&read) == 0);
    }
    once_more(&read);
    CHECK(pthread_rwlock_init(&written, NULL) == 0);
    CHECK(pthread_rwlock_wrlock(&written) == 0);
    CHECK(pthread_rwlock_unlock(&written) == 0);
    once_more(&written);
    once_more(&prefers);
    return 0;
}
