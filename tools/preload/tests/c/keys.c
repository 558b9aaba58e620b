/* A key that the program has not created is invalid, and the program can create as many keys as the system allows. */
#include "common.h"
#include <limits.h>
#include <threads.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t keys[PTHREAD_KEYS_MAX];
static int made;

/* The thread waits for a lock, so the library keeps a value for it. That value must not appear under the program's
   keys. */
static void *locks(void *unused)
{
    goes_to_wait();
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    if (!made)
        SHOW(pthread_setspecific(0, &mutex));
    for (int n = 0; n < made; n++)
        CHECK(!pthread_getspecific(keys[n]));
    return NULL;
}

static void one_waits(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    pthread_t thread = start(locks, NULL);
    until_it_waits();
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    end(thread);
}

/* The same for a thread that has also waited before the keys were created. */
static void *waits_twice(void *created)
{
    locks(NULL);
    ((atomic_int *)created)[0] = 1;
    while (((atomic_int *)created)[1] == 0)
        sched_yield();
    return locks(NULL);
}

static void a_key_is_called_when_a_thread_ends(void *value)
{
    *(int *)value += 1;
}

static void *has_a_value(void *value)
{
    CHECK(pthread_setspecific(keys[PTHREAD_KEYS_MAX - 1], value) == 0);
    return NULL;
}

int main(void)
{
    atomic_int created[2] = {0};
    pthread_key_t more;
    int calls = 0;
    one_waits();
    SHOW(pthread_setspecific(0, &mutex));
    CHECK(pthread_mutex_lock(&mutex) == 0);
    pthread_t thread = start(waits_twice, created);
    until_it_waits();
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    while (!created[0])
        sched_yield();
    for (int n = 0; n < PTHREAD_KEYS_MAX; n++) {
        if (n % 2)
            CHECK(tss_create(&keys[n], NULL) == thrd_success);
        else
            CHECK(pthread_key_create(&keys[n], NULL) == 0);
        if (n == 0)
            printf("the first is %u\n", keys[n]);
        CHECK(!pthread_getspecific(keys[n]) && pthread_setspecific(keys[n], &keys[n]) == 0);
    }
    SHOW(pthread_key_create(&more, NULL));
    SHOW(tss_create(&more, NULL));
    made = PTHREAD_KEYS_MAX;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    created[1] = 1;
    until_it_waits();
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    end(thread);
    one_waits();
    for (int n = 0; n < PTHREAD_KEYS_MAX; n++) {
        CHECK(pthread_getspecific(keys[n]) == &keys[n]);
        CHECK(pthread_key_delete(keys[n]) == 0);
    }
    for (int n = 0; n < PTHREAD_KEYS_MAX; n++)
        CHECK(pthread_key_create(&keys[n], a_key_is_called_when_a_thread_ends) == 0);
    end(start(has_a_value, &calls));
    printf("%d call\n", calls);
    return 0;
}
