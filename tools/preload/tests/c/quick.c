/* Ends by quick_exit: without destructors, but with its handlers. */
#include "common.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void handler(void) { pthread_mutex_lock(&mutex), pthread_mutex_unlock(&mutex); }

int main(void)
{
    CHECK(at_quick_exit(handler) == 0);
    for (int i = 0; i < 2; i++)
        pthread_mutex_lock(&mutex), pthread_mutex_unlock(&mutex);
    quick_exit(0);
}
