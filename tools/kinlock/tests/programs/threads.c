/* Threads that take a mutex, and then a child process that takes it once. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;
static void *work(void *of) {
    for (int i = 0; i < 10000; i++) {
        pthread_mutex_lock(&lock);
        sum++;
        pthread_mutex_unlock(&lock);
    }
    return of;
}
int main(int count, char **words) {
    pthread_t threads[4];
    if (count > 1) return pthread_mutex_lock(&lock);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("%ld\n", sum);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) execl(words[0], words[0], "child", (char *)NULL);
    int status;
    return waitpid(child, &status, 0) != child || status != 0;
}
