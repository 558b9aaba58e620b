/* How many readers a lock can count. */
#include "common.h"

int main(void)
{
    static pthread_rwlock_t lock;
    int readers = 0, error;
    while ((error = pthread_rwlock_rdlock(&lock)) == 0 && ++readers < 1100000)
        ;
    printf("%d readers, %s\n", readers, name(error));
    while (readers--)
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    SHOW(pthread_rwlock_trywrlock(&lock));
    return 0;
}
