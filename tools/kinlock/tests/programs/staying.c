/* Programs that a command which stays behind must not disturb, and whose locks it must not lose. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long counter;

static void take(long times)
{
    for (long i = 0; i < times; i++)
        pthread_mutex_lock(&lock), counter++, pthread_mutex_unlock(&lock);
}

static void *take_many(void *times)
{
    take((long)times);
    return NULL;
}

static pthread_mutex_t many[100];

static void *take_each(void *unused)
{
    (void)unused;
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(many + i);
        if (i == 0)
            usleep(100);
        pthread_mutex_unlock(many + i);
    }
    return NULL;
}

/* Children that need much memory for their tables, all at the same time. Prints how each child ended
   that was killed. */
static void crowded(int processes)
{
    int ready[2], ends[2], status;
    char byte;
    pthread_t threads[10];
    if (pipe(ready) != 0 || pipe(ends) != 0)
        abort();
    for (int i = 0; i < processes; i++)
        if (fork() == 0) {
            close(ends[1]);
            for (int t = 0; t < 10; t++)
                if (pthread_create(threads + t, NULL, take_each, NULL) != 0)
                    abort();
            for (int t = 0; t < 10; t++)
                pthread_join(threads[t], NULL);
            /* This child keeps its table until the others have theirs, or have ended. */
            close(ready[1]);
            _exit(read(ends[0], &byte, 1) != 0);
        }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 0)
        abort();
    close(ends[1]);
    while (wait(&status) > 0)
        if (status != 0)
            printf("status %#x\n", status);
}

/* Threads that all take the first lock of the process at about the same time. */
static void together(int threads)
{
    pthread_t all[64];
    for (int i = 0; i < threads; i++)
        if (pthread_create(all + i, NULL, take_many, (void *)1000) != 0)
            abort();
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    printf("%ld\n", counter);
}

/* Children that all live at the same time, or one after the other. */
static void children(int count, int at_once)
{
    int ends[2], ready[2];
    char byte = 0;
    if (pipe(ends) != 0 || pipe(ready) != 0)
        abort();
    take(1);
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child < 0)
            abort();
        if (child == 0) {
            take(10);
            close(ends[1]);
            if (at_once && (write(ready[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 0))
                abort();
            _exit(0);
        }
        if (!at_once)
            waitpid(child, NULL, 0);
    }
    for (int i = 0; at_once && i < count; i++)
        if (read(ready[0], &byte, 1) != 1)
            abort();
    close(ends[1]);
    while (wait(NULL) > 0)
        ;
}

/* A child for which no fork handler runs. */
static void cloned(void)
{
    take(1);
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    take(1000);
    if (child == 0)
        syscall(SYS_exit_group, 0);
    waitpid(child, NULL, 0);
}

/* The parent ends before the child, which takes locks if told to, and stays until its input ends. */
static int daemonised(int locks)
{
    int ready[2];
    char byte = 0;
    if (pipe(ready) != 0)
        abort();
    take(1);
    if (fork() != 0)
        return read(ready[0], &byte, 1) == 1 ? 0 : 1;
    setsid();
    take(locks);
    if (write(ready[1], &byte, 1) != 1)
        abort();
    while (read(0, &byte, 1) > 0)
        ;
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            take(1);
            execl("/proc/self/exe", "staying", "once", NULL);
        }
        wait(NULL);
    }
    fputs("the daemon ends\n", stderr);
    return 0;
}

static void *wait_in_vain(void *unused)
{
    struct timespec past = {1, 0};
    if (pthread_mutex_timedlock(&lock, &past) == 0)
        abort();
    return unused;
}

/* Threads of which each finds the lock taken once. */
static void churn(int threads)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < threads; i++) {
        pthread_t one;
        if (pthread_create(&one, NULL, wait_in_vain, NULL) != 0)
            abort();
        pthread_join(one, NULL);
    }
    pthread_mutex_unlock(&lock);
}

/* Many threads wait at the same time and end. More threads follow that do not wait, until none of the
   first ones has an entry of its own any more. */
static void waited_before(void)
{
    enum { WAITERS = 200, OTHERS = 2200 };
    pthread_t threads[WAITERS], one;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < WAITERS; i++)
        if (pthread_create(threads + i, NULL, take_many, (void *)1) != 0)
            abort();
    usleep(500000);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < WAITERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < OTHERS; i++) {
        if (pthread_create(&one, NULL, take_many, (void *)1) != 0)
            abort();
        pthread_join(one, NULL);
    }
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    int n = count > 2 ? atoi(words[2]) : 0;
    if (strcmp(mode, "together") == 0)
        together(n);
    if (strcmp(mode, "crowded") == 0)
        crowded(n), puts("over");
    if (strcmp(mode, "at-once") == 0)
        children(n, 1), puts("over");
    if (strcmp(mode, "in-turn") == 0) {
        children(n, 0);
        puts("ready");
        fflush(stdout);
        getchar();
    }
    if (strcmp(mode, "cloned") == 0)
        cloned();
    if (strcmp(mode, "daemon") == 0)
        return daemonised(n);
    if (strcmp(mode, "churn") == 0)
        churn(n);
    if (strcmp(mode, "waited-before") == 0)
        waited_before();
    if (strcmp(mode, "hidden") == 0) {
        prctl(PR_SET_DUMPABLE, 0);
        while (read(0, &n, 1) > 0)
            ;
    }
    if (strcmp(mode, "once") == 0)
        take(1);
    if (strcmp(mode, "replaced") == 0) {
        take(1);
        execl("/proc/self/exe", "staying", "sleeps", NULL);
    }
    if (strcmp(mode, "sleeps") == 0)
        take(2), sleep(3);
    if (strcmp(mode, "none") == 0)
        pthread_mutex_init(&lock, NULL);
    if (strcmp(mode, "renamed") == 0) {
        take(1);
        strcpy(words[0], "another: title");
    }
    if (strcmp(mode, "killed") == 0) {
        static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
        take(1);
        strcpy(words[0], "another: title");
        pthread_mutex_lock(&other);
        raise(SIGKILL);
    }
    return 0;
}
