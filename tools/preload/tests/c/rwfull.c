/* How many readers a lock can count. */
#include "common.h"

int main(void)
{
    static pthread_rwlock_t lock;
    int readers = 0, error;
    while ((error = pthread_rwlock_rdlock(&lock)) == 0 && ++readers < 1100000)
        ;
    printf("%d readers, %s\n", readers, name(error));
    if (error) {
        struct timespec far = in_ms(CLOCK_REALTIME, 1000000000);
        int type;
        CHECK(pthread_rwlock_tryrdlock(&lock) == error);
        CHECK(pthread_rwlock_timedrdlock(&lock, &far) == error);
        CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type) == 0);
        CHECK(pthread_rwlock_rdlock(&lock) == error);
        CHECK(pthread_rwlock_timedrdlock(&lock, &far) == error);
        CHECK(pthread_setcanceltype(type, &type) == 0);
    }
    while (readers--)
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    SHOW(pthread_rwlock_trywrlock(&lock));
    return 0;
}
