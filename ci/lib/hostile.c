/* For ci/pages.sh: threads that contend for a lock and a reader-writer lock, and a thread that
   waits for a condition variable. The names of the threads, of a function, of the lock and of the
   condition variable contain HTML, which a page must show as text. The first argument is the number
   of threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* A symbol's name in assembly may be any text. */
pthread_mutex_t lock __asm__("\"<script>hostile=1</script>\"") = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t ended __asm__("\"<script>hostile=2</script>\"") = PTHREAD_COND_INITIALIZER;
pthread_rwlock_t cache = PTHREAD_RWLOCK_INITIALIZER;
static int running;

static void nap(long us)
{
    struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}

void hold_the_lock(void) __asm__("\"hold<script>hostile=1</script>\"");

__attribute__((noinline)) void hold_the_lock(void)
{
    pthread_mutex_lock(&lock);
    nap(200);
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void look_up(void)
{
    pthread_rwlock_rdlock(&cache);
    nap(200);
    pthread_rwlock_unlock(&cache);
}

__attribute__((noinline)) static void update(void)
{
    pthread_rwlock_wrlock(&cache);
    nap(100);
    pthread_rwlock_unlock(&cache);
}

__attribute__((noinline)) static void hold_both(int turned)
{
    pthread_mutex_t *first = turned ? &other : &lock, *second = turned ? &lock : &other;
    pthread_mutex_lock(first);
    pthread_mutex_lock(second);
    pthread_mutex_unlock(second);
    pthread_mutex_unlock(first);
}

static void *work(void *unused)
{
    pthread_setname_np(pthread_self(), "<script>x=1//");
    for (int i = 0; i < 20; i++) {
        hold_the_lock();
        i % 4 == 0 ? update() : look_up();
    }
    pthread_mutex_lock(&other);
    running--;
    pthread_cond_signal(&ended);
    pthread_mutex_unlock(&other);
    return unused;
}

static void *turn(void *unused)
{
    hold_both(1);
    return unused;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 4;
    pthread_t threads[64];
    hold_both(0);
    pthread_create(&threads[0], NULL, turn, NULL);
    pthread_join(threads[0], NULL);
    running = count < 64 ? count : 64;
    for (int i = 0; i < count && i < 64; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    pthread_mutex_lock(&other);
    while (running > 0)
        pthread_cond_wait(&ended, &other);
    pthread_mutex_unlock(&other);
    for (int i = 0; i < count && i < 64; i++)
        pthread_join(threads[i], NULL);
}
