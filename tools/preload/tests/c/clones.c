/* Children of a plain clone, for which no fork handler runs: which thread a mutex says holds it, and
   what the calls of such a child return. The C library takes the child's thread for the parent's,
   until the program corrects that. */
#include "common.h"
#include <sched.h>

static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
                       checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static char path[4096];

static int number(void)
{
    return syscall(SYS_gettid);
}

/* The number that the C library knows for the calling thread. */
static int owner(void)
{
    pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    int found = mutex.__data.__owner;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    CHECK(pthread_mutex_destroy(&mutex) == 0);
    return found;
}

/* Where the C library has the number, found in a thread that it knows. */
static int *place(void)
{
    int *words = (int *)pthread_self();
    for (int i = 0; i < 192; i++)
        if (words[i] == number())
            return words + i;
    return NULL;
}

static void use(pthread_mutex_t *mutex)
{
    for (int i = 0; i < 3; i++) {
        SHOW(pthread_mutex_trylock(mutex));
        SHOW(pthread_mutex_trylock(mutex));
        SHOW(pthread_mutex_unlock(mutex));
        SHOW(pthread_mutex_unlock(mutex));
    }
}

static void all(void)
{
    use(&recursive);
    use(&checking);
    SHOW(pthread_rwlock_trywrlock(&lock));
    SHOW(pthread_rwlock_wrlock(&lock));
    SHOW(pthread_rwlock_unlock(&lock));
    SHOW(pthread_rwlock_tryrdlock(&lock));
    SHOW(pthread_rwlock_unlock(&lock));
}

static void *all_in_a_thread(void *unused)
{
    all();
    printf("another thread of it: %d\n", owner() == number());
    return NULL;
}

static void run(int generations, int parents, int *known)
{
    fflush(stdout);
    long child = syscall(SYS_clone, (long)SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        printf("child: the parent's number %d\n", owner() == parents);
        /* The thread holds what it held. */
        SHOW(pthread_mutex_trylock(&held));
        SHOW(pthread_mutex_unlock(&recursive));
        SHOW(pthread_mutex_unlock(&checking));
        SHOW(pthread_rwlock_unlock(&lock));
        all();
        if (generations > 1) {
            pthread_mutex_lock(&recursive);
            pthread_mutex_lock(&checking);
            pthread_rwlock_wrlock(&lock);
            run(generations - 1, parents, known);
            SHOW(pthread_mutex_unlock(&recursive));
            SHOW(pthread_mutex_unlock(&checking));
            SHOW(pthread_rwlock_unlock(&lock));
        }
        *known = number();
        printf("corrected: %d\n", owner() == number());
        all();
        end(start(all_in_a_thread, NULL));
        fflush(stdout);
        if (generations == 2)
            execl(path, path, "executed", NULL);
        _exit(7);
    }
    printf("child %d\n", end_of(child));
}

static void *clones(void *unused)
{
    int *known = place();
    CHECK(known);
    printf("own number %d\n", owner() == number());
    all();
    CHECK(pthread_mutex_lock(&held) == 0);
    CHECK(pthread_mutex_lock(&recursive) == 0);
    CHECK(pthread_mutex_lock(&checking) == 0);
    CHECK(pthread_rwlock_wrlock(&lock) == 0);
    run(3, number(), known);
    SHOW(pthread_mutex_unlock(&recursive));
    SHOW(pthread_mutex_unlock(&checking));
    SHOW(pthread_rwlock_unlock(&lock));
    SHOW(pthread_mutex_unlock(&held));
    all();
    return NULL;
}

/* It has the memory of its parent, which waits for its end. */
static int in_shared_memory(void *unused)
{
    printf("with the parent's memory: the parent's number %d\n", owner() == getppid());
    SHOW(pthread_mutex_unlock(&recursive));
    SHOW(pthread_mutex_lock(&checking));
    _exit(9);
}

int main(int arguments, char **argument)
{
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(length > 0);
    if (arguments > 1) {
        printf("executed: own number %d\n", owner() == number());
        fflush(stdout);
        _exit(8);
    }
    clones(NULL);
    end(start(clones, NULL));
    CHECK(pthread_mutex_lock(&recursive) == 0);
    fflush(stdout);
    static char stack[65536] __attribute__((aligned(16)));
    const int flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
    printf("child %d\n", end_of(clone(in_shared_memory, stack + sizeof stack, flags, NULL)));
    SHOW(pthread_mutex_trylock(&recursive));
    SHOW(pthread_mutex_unlock(&recursive));
    SHOW(pthread_mutex_unlock(&recursive));
    SHOW(pthread_mutex_unlock(&checking));
    return 0;
}
