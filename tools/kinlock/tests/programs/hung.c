/* Threads that do what their arguments say, one step after the other, and hang there. Each argument
   is `NAME=STEP STEP ...`, a thread and its steps. It runs until stdin ends. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 8 };

pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t journal = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t nested = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
pthread_rwlock_t catalogue = PTHREAD_RWLOCK_INITIALIZER;
pthread_rwlock_t prices = PTHREAD_RWLOCK_INITIALIZER;
pthread_rwlock_t ledger = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
pthread_spinlock_t spin;
/* Shared between processes. */
__attribute__((aligned(4096))) char shared[4096];
__attribute__((aligned(4096))) char shared_rwlock[4096];
static pthread_barrier_t all_met;
static pthread_t threads[MOST];
static char *names[MOST];
static int pipe_of_none[2];

static void *object(const char *name)
{
    const struct {
        const char *name;
        void *object;
    } all[] = {{"accounts", &accounts}, {"journal", &journal},     {"nested", &nested},
               {"checked", &checked},   {"catalogue", &catalogue}, {"prices", &prices},
               {"ledger", &ledger},     {"ready", &ready},         {"shared", shared},
               {"shared_rwlock", shared_rwlock}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].object;
    fprintf(stderr, "hung: there is no %s\n", name);
    abort();
}

__attribute__((noinline)) void wait_for_input(void)
{
    char byte;
    while (read(pipe_of_none[0], &byte, 1) > 0)
        ;
    __asm__ volatile("");
}

__attribute__((noinline)) void take(void *mutex)
{
    pthread_mutex_lock(mutex);
    __asm__ volatile("");
}

/* Waits until a writer waits for a lock that others read. */
static void wait_for_writer(pthread_rwlock_t *lock)
{
    while (pthread_rwlock_tryrdlock(lock) == 0) {
        pthread_rwlock_unlock(lock);
        usleep(1000);
    }
}

static void share_locks(void)
{
    pthread_mutexattr_t mutex;
    pthread_rwlockattr_t rwlock;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_rwlockattr_init(&rwlock);
    pthread_rwlockattr_setpshared(&rwlock, PTHREAD_PROCESS_SHARED);
    for (int i = 0; i < 2; i++)
        mmap(i ? shared : shared_rwlock, 4096, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    pthread_mutex_init((pthread_mutex_t *)shared, &mutex);
    pthread_rwlock_init((pthread_rwlock_t *)shared_rwlock, &rwlock);
}

/* Another process takes the shared locks, and holds them for as long as this process exists. */
static void take_elsewhere(void)
{
    char byte;
    int taken[2];
    if (pipe(taken) != 0)
        abort();
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pthread_mutex_lock((pthread_mutex_t *)shared);
        pthread_rwlock_wrlock((pthread_rwlock_t *)shared_rwlock);
        if (write(taken[1], "", 1) != 1)
            abort();
        for (;;)
            pause();
    }
    if (read(taken[0], &byte, 1) != 1)
        abort();
}

/* Maps the library of the locks as a file, as a program does that only reads it. */
static void map_library(const char *rights)
{
    char line[4096], *path = NULL;
    struct stat data;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (path == NULL && fgets(line, sizeof line, maps) != NULL)
        if (strstr(line, "/libkinlock") != NULL)
            path = strtok(strchr(line, '/'), "\n");
    int file = path == NULL ? -1 : open(path, O_RDONLY);
    if (fstat(file, &data) != 0)
        abort();
    int protection = PROT_READ | (strchr(rights, 'w') ? PROT_WRITE : 0) |
                     (strchr(rights, 'x') ? PROT_EXEC : 0);
    if (mmap(NULL, data.st_size, protection, MAP_PRIVATE, file, 0) == MAP_FAILED)
        abort();
}

/* Makes the folder this process's root. The thread gets its name by a file below the old root. */
static void enter_jail(const char *folder)
{
    char own[16];
    do {
        usleep(1000);
        prctl(PR_GET_NAME, own);
    } while (strcmp(own, "hung") == 0);
    if (chroot(folder) != 0)
        abort();
}

static void step(const char *what, const char *name)
{
    struct timespec late;
    clock_gettime(CLOCK_REALTIME, &late);
    late.tv_sec += 1000;
    if (strcmp(what, "lock") == 0)
        take(object(name));
    else if (strcmp(what, "timed") == 0)
        pthread_mutex_timedlock(object(name), &late);
    else if (strcmp(what, "read") == 0)
        pthread_rwlock_rdlock(object(name));
    else if (strcmp(what, "write") == 0)
        pthread_rwlock_wrlock(object(name));
    else if (strcmp(what, "timed_write") == 0) {
        clock_gettime(CLOCK_MONOTONIC, &late);
        late.tv_sec += 1000;
        pthread_rwlock_clockwrlock(object(name), CLOCK_MONOTONIC, &late);
    } else if (strcmp(what, "behind") == 0)
        wait_for_writer(object(name));
    else if (strcmp(what, "release") == 0)
        pthread_rwlock_unlock(object(name));
    else if (strcmp(what, "spin") == 0)
        pthread_spin_lock(&spin);
    else if (strcmp(what, "wait") == 0) {
        pthread_mutex_lock(&journal);
        pthread_cond_wait(object(name), &journal);
    } else if (strcmp(what, "join") == 0) {
        for (int i = 0; i < MOST; i++)
            if (names[i] != NULL && strcmp(names[i], name) == 0)
                pthread_join(threads[i], NULL);
    } else if (strcmp(what, "meet") == 0)
        pthread_barrier_wait(&all_met);
    else if (strcmp(what, "idle") == 0)
        wait_for_input();
    else if (strcmp(what, "elsewhere") == 0)
        take_elsewhere();
    else if (strcmp(what, "map") == 0)
        map_library(name);
    else if (strcmp(what, "jail") == 0)
        enter_jail(name);
}

static void *run(void *steps)
{
    char *rest, *word = strtok_r(steps, " ", &rest);
    for (; word != NULL; word = strtok_r(NULL, " ", &rest)) {
        char *name = strchr(word, ':');
        if (name != NULL)
            *name++ = 0;
        step(word, name);
    }
    return NULL;
}

int main(int count, char **words)
{
    int meet = 0;
    char end;
    for (int i = 1; i < count; i++)
        meet += strstr(words[i], "meet") != NULL;
    pthread_barrier_init(&all_met, NULL, meet > 0 ? meet : 1);
    pthread_spin_init(&spin, 0);
    share_locks();
    if (pipe(pipe_of_none) != 0)
        abort();
    for (int i = 1; i < count; i++)
        names[i] = strsep(&words[i], "=");
    for (int i = 1; i < count; i++) {
        pthread_create(&threads[i], NULL, run, words[i]);
        pthread_setname_np(threads[i], names[i]);
    }
    printf("%d\n", getpid()), fflush(stdout);
    while (read(0, &end, 1) > 0)
        ;
    _exit(0);
}
