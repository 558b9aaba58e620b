/* How often a recursive mutex can be taken. The depth lies where the C library has it. */
#include "common.h"

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

int main(void)
{
    struct timespec past = {0, 0};
    for (int i = 0; i < 100000; i++)
        CHECK(pthread_mutex_lock(&mutex) == 0);
    printf("depth %u\n", mutex.__data.__count);
    mutex.__data.__count = UINT32_MAX - 2;
    SHOW(pthread_mutex_lock(&mutex));
    SHOW(pthread_mutex_trylock(&mutex));
    SHOW(pthread_mutex_lock(&mutex));
    SHOW(pthread_mutex_trylock(&mutex));
    SHOW(pthread_mutex_timedlock(&mutex, &past));
    printf("depth %u\n", mutex.__data.__count);
    mutex.__data.__count = 2;
    SHOW(pthread_mutex_unlock(&mutex));
    SHOW(elsewhere(try_mutex, &mutex));
    SHOW(pthread_mutex_unlock(&mutex));
    SHOW(pthread_mutex_unlock(&mutex));
    SHOW(elsewhere(try_mutex, &mutex));
    return 0;
}
