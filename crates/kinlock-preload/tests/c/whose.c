/* Whose reader-writer lock it is: what a writer leaves in it tells. */
#include "common.h"

int main(void)
{
    static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    CHECK(pthread_rwlock_wrlock(&lock) == 0);
    /* The C library has the writer's number for the kernel in the seventh word. */
    printf(((unsigned *)&lock)[6] == (unsigned)gettid() ? "the C library's\n" : "ours\n");
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    return 0;
}
