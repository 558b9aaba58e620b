/* Threads that do what their arguments say, one step after the other, and hang there. Each argument
   is `NAME=STEP STEP ...`, a thread and its steps. It runs until stdin ends. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 8 };

pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t journal = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t nested = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
pthread_rwlock_t catalogue = PTHREAD_RWLOCK_INITIALIZER;
pthread_rwlock_t prices = PTHREAD_RWLOCK_INITIALIZER;
pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
pthread_spinlock_t spin;
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
               {"ready", &ready}};
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
