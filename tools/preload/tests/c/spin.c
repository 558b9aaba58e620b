/* Spinlocks. */
#include "common.h"
#include <setjmp.h>

static pthread_spinlock_t lock;
static long counter;

static void *count(void *unused)
{
    for (int i = 0; i < 20000; i++) {
        CHECK(pthread_spin_lock(&lock) == 0);
        counter++;
        CHECK(pthread_spin_unlock(&lock) == 0);
    }
    return NULL;
}

static void *unlock_it(void *unused)
{
    return (void *)(intptr_t)pthread_spin_unlock(&lock);
}

#ifdef __x86_64__
/* POSIX has no static initialiser, but some programs use the C library's value of a free spinlock. */
static pthread_spinlock_t fixed = 1;
#else
static pthread_spinlock_t fixed;
#endif
static sigjmp_buf out;

static void leave(int signal)
{
    siglongjmp(out, 1);
}

/* It waits for long enough to fall asleep. */
static void with_another_process(pthread_spinlock_t *lock)
{
    CHECK(pthread_spin_init(lock, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_spin_lock(lock) == 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(300);
        CHECK(pthread_spin_lock(lock) == 0);
        CHECK(pthread_spin_unlock(lock) == 0);
        _exit(0);
    }
    nap(50);
    CHECK(pthread_spin_unlock(lock) == 0);
    printf("child %d\n", end_of(child));
    SHOW(pthread_spin_trylock(lock));
}

int main(void)
{
    SHOW(pthread_spin_lock(&fixed));
    SHOW(pthread_spin_trylock(&fixed));
    /* A wait that is left by a jump leaves nothing behind. */
    signal(SIGALRM, leave);
    if (sigsetjmp(out, 1) == 0) {
        ualarm(50000, 0);
        pthread_spin_lock(&fixed);
    }
    SHOW(pthread_spin_unlock(&fixed));
    SHOW(pthread_spin_lock(&fixed));
    SHOW(pthread_spin_unlock(&fixed));
    for (int shared = 0; shared < 2; shared++) {
        SHOW(pthread_spin_init(&lock, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE));
        SHOW(pthread_spin_trylock(&lock));
        SHOW(pthread_spin_trylock(&lock));
        SHOW(elsewhere(unlock_it, NULL));
        SHOW(pthread_spin_lock(&lock));
        SHOW(pthread_spin_trylock(&lock));
        SHOW(pthread_spin_unlock(&lock));
        counter = 0;
        run_threads(8, count);
        printf("%ld\n", counter);
        SHOW(pthread_spin_destroy(&lock));
    }
    with_another_process(shared_memory(sizeof lock));
    return 0;
}
