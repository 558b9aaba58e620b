/* Tells whose a reader-writer lock is by what a reader leaves in it. */
#include "common.h"

int main(void)
{
    static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    CHECK(pthread_rwlock_rdlock(&lock) == 0);
    /* The C library counts readers from the fourth bit of the first word on. */
    printf(((unsigned *)&lock)[0] == 1u << 3 ? "the C library's\n" : "ours\n");
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    return 0;
}
