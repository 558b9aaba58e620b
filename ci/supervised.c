/* For ci/supervised.sh: what a program sees of its surroundings, and what its parent sees of it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum { LIMIT_MS = 20000 };

static void nap(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0)
        ;
}

static void fail(const char *what)
{
    printf("FAILED: %s\n", what);
    fflush(stdout);
    _exit(99);
}

static void take_locks(void)
{
    for (int i = 0; i < 100; i++)
        pthread_mutex_lock(&lock), pthread_mutex_unlock(&lock);
}

/* Another program with other attributes: ignore:N block:N raise:N close:N open:N timer:N umask:N subreaper me:NAME */
static int as(char **words)
{
    for (; *words != NULL && strcmp(*words, "--") != 0; words++) {
        char *text = strchr(*words, ':');
        int n = text != NULL ? atoi(text + 1) : 0;
        sigset_t set;
        sigemptyset(&set);
        if (strncmp(*words, "ignore:", 7) == 0)
            signal(n, SIG_IGN);
        else if (strncmp(*words, "block:", 6) == 0)
            sigaddset(&set, n), sigprocmask(SIG_BLOCK, &set, NULL);
        else if (strncmp(*words, "raise:", 6) == 0)
            raise(n);
        else if (strncmp(*words, "close:", 6) == 0)
            close(n);
        else if (strncmp(*words, "open:", 5) == 0)
            dup2(open("/dev/null", O_RDWR), n);
        else if (strncmp(*words, "umask:", 6) == 0)
            umask(n);
        else if (strncmp(*words, "timer:", 6) == 0) {
            struct itimerval time = {{0, 0}, {n, 0}};
            setitimer(ITIMER_REAL, &time, NULL), setitimer(ITIMER_PROF, &time, NULL);
        } else if (strcmp(*words, "subreaper") == 0)
            prctl(PR_SET_CHILD_SUBREAPER, 1);
        else if (strncmp(*words, "me:", 3) == 0) {
            char number[12];
            snprintf(number, sizeof number, "%d", getpid());
            setenv(text + 1, number, 1);
        } else
            return 98;
    }
    execvp(words[1], words + 1);
    return 97;
}

/* Writes what a program inherits to a file, as stdout may be closed. */
static int attributes(char **words)
{
    FILE *out = fopen(words[0], "w");
    sigset_t blocked, pending;
    int subreaper = 0;
    take_locks();
    fprintf(out, "ignored");
    for (int n = 1; n <= 64; n++) {
        struct sigaction action = {0};
        if (sigaction(n, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            fprintf(out, " %d%s", n, action.sa_handler == SIG_IGN ? "" : "?");
    }
    sigprocmask(SIG_BLOCK, NULL, &blocked), sigpending(&pending);
    fprintf(out, "\nblocked");
    for (int n = 1; n <= 64; n++)
        if (sigismember(&blocked, n) == 1)
            fprintf(out, " %d", n);
    fprintf(out, "\npending");
    for (int n = 1; n <= 64; n++)
        if (sigismember(&pending, n) == 1)
            fprintf(out, " %d", n);
    fprintf(out, "\nopen");
    for (int n = 0; n < 40; n++)
        if (n != fileno(out) && fcntl(n, F_GETFD) != -1)
            fprintf(out, " %d", n);
    mode_t mask = umask(0);
    fprintf(out, "\numask %o, nice %d\n", mask, getpriority(PRIO_PROCESS, 0));
    for (int n = 0; n < 16; n++) {
        struct rlimit limit;
        getrlimit(n, &limit);
        fprintf(out, "limit %d: %llu %llu\n", n, (unsigned long long)limit.rlim_cur,
                (unsigned long long)limit.rlim_max);
    }
    for (int n = 0; n < 3; n++) {
        struct itimerval time;
        getitimer(n, &time);
        fprintf(out, "timer %d %s\n", n, time.it_value.tv_sec > 0 ? "runs" : "is off");
    }
    prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
    fprintf(out, "subreaper %d, no new privileges %d, slack %d\n", subreaper, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
            prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0));
    fprintf(out, "session %s, group %s\n", getsid(0) == getsid(getppid()) ? "of parent" : "own",
            getpgrp() == getpgid(getppid()) ? "of parent" : "own");
    char folder[4096], text[64] = "";
    fprintf(out, "folder %s\n", getcwd(folder, sizeof folder));
    int score = open("/proc/self/oom_score_adj", O_RDONLY);
    if (read(score, text, sizeof text - 1) < 0)
        return 96;
    fprintf(out, "oom %s", text);
    for (char **entry = environ; *entry != NULL; entry++) {
        char *value = strchr(*entry, '=');
        if (strncmp(*entry, "KINLOCK_", 8) == 0 || strncmp(*entry, "LD_PRELOAD=", 11) == 0)
            continue;
        if (value != NULL && strstr(*entry, "_PID=") != NULL)
            fprintf(out, "%.*s %s\n", (int)(value - *entry), *entry,
                    atoi(value + 1) == getpid() ? "is me" : "is not me");
        else
            fprintf(out, "%s\n", *entry);
    }
    return fclose(out);
}

static void say(int log, const char *what, int number)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %d\n", what, number);
    if (write(log, line, length) != length)
        _exit(95);
}

/* Notes each signal in a file, until the last one has come, and for half a second after it. */
static int signals(char **words)
{
    int log = open(words[0], O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600), last = atoi(words[1]), number;
    struct timespec half = {0, 500000000};
    sigset_t all;
    sigfillset(&all), sigdelset(&all, SIGCHLD);
    sigprocmask(SIG_BLOCK, &all, NULL);
    take_locks();
    say(log, "ready", getpid());
    do {
        siginfo_t info;
        number = sigwaitinfo(&all, &info);
        if (number > 0)
            say(log, "signal", number);
    } while (number != last);
    while ((number = sigtimedwait(&all, NULL, &half)) > 0)
        say(log, "signal", number);
    return 5;
}

/* Says that it is ready, and sleeps. */
static int sleeps(char **words)
{
    int log = open(words[0], O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
    take_locks();
    say(log, "ready", getpid());
    nap(3 * LIMIT_MS);
    return 6;
}

static int lines(const char *file, int *ready)
{
    FILE *in = fopen(file, "r");
    char line[64];
    int count = 0, number;
    while (in != NULL && fgets(line, sizeof line, in) != NULL)
        if (count++ == 0 && sscanf(line, "ready %d", &number) == 1)
            *ready = number;
    if (in != NULL)
        fclose(in);
    return count;
}

static int wait_for_lines(const char *file, int count)
{
    int ready = 0;
    for (int i = 0; lines(file, &ready) < count; i++, nap(5))
        if (i > LIMIT_MS / 5)
            fail("the program does not go on");
    return ready;
}

static pid_t start(char **words)
{
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        execvp(words[0], words);
        _exit(97);
    }
    setpgid(child, child);
    return child;
}

/* Prints what a parent learns about its child within the limit. */
static void change(pid_t child)
{
    int status;
    for (int i = 0; waitpid(child, &status, WNOHANG | WUNTRACED | WCONTINUED) == 0; i++, nap(5))
        if (i > LIMIT_MS / 5)
            kill(-child, SIGKILL), fail("the command does not change its state");
    if (WIFSTOPPED(status))
        printf("stopped %d\n", WSTOPSIG(status));
    else if (WIFCONTINUED(status))
        printf("continued\n");
    else if (WIFSIGNALED(status))
        printf("signal %d\n", WTERMSIG(status));
    else
        printf("exit %d\n", WEXITSTATUS(status));
}

static int status(char **words)
{
    change(start(words));
    return 0;
}

static void show_signals(const char *file)
{
    FILE *in = fopen(file, "r");
    char line[64];
    while (fgets(line, sizeof line, in) != NULL)
        if (strncmp(line, "ready", 5) != 0)
            fputs(line, stdout);
    fclose(in);
}

/* FILE alone|group N,N,... COMMAND: sends these signals, one after the other, and finally SIGRTMAX. */
static int sends(char **words)
{
    const char *file = words[0];
    unlink(file);
    pid_t child = start(words + 3), target = strcmp(words[1], "group") == 0 ? -child : child;
    int count = 1;
    wait_for_lines(file, count);
    for (char *at = words[2]; *at != 0; at += *at == ',') {
        kill(target, strtol(at, &at, 10));
        wait_for_lines(file, ++count);
    }
    kill(target, SIGRTMAX);
    change(child);
    show_signals(file);
    return 0;
}

/* Waits until the program itself, and not only its parent, is stopped or goes on. */
static void wait_for_stop(int pid, int is_stopped)
{
    char path[64], text[512], *end;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for (int i = 0; i < LIMIT_MS / 5; i++, nap(5)) {
        FILE *in = fopen(path, "r");
        int is_read = in != NULL && fgets(text, sizeof text, in) != NULL && (end = strrchr(text, ')')) != NULL;
        if (in != NULL)
            fclose(in);
        if (is_read && (end[2] == 'T') == is_stopped)
            return;
    }
    fail(is_stopped ? "the program is not stopped" : "the program is not continued");
}

/* FILE alone|group|program COMMAND: stops, continues and ends it. */
static int stops(char **words)
{
    const char *file = words[0];
    unlink(file);
    pid_t child = start(words + 2);
    int program = wait_for_lines(file, 1), signals[] = {SIGTSTP, SIGTTIN, SIGSTOP};
    pid_t target = strcmp(words[1], "group") == 0 ? -child : strcmp(words[1], "program") == 0 ? program : child;
    /* A command that is stopped alone by SIGSTOP cannot know it. */
    for (int i = 0; i < (strcmp(words[1], "alone") == 0 ? 2 : 3); i++) {
        kill(target, signals[i]), change(child), wait_for_stop(program, 1);
        kill(target, SIGCONT), change(child), wait_for_stop(program, 0);
    }
    kill(target, SIGTERM), change(child);
    return 0;
}

/* FILE COMMAND: stops and continues the group faster than it can react; the last signal counts. */
static int flickers(char **words)
{
    const char *file = words[0];
    /* Not SIGSTOP, which stops the command's witness, too: see decision 0106. */
    int stops[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGTTIN};
    unsigned random = 1;
    unlink(file);
    pid_t child = start(words + 1);
    int program = wait_for_lines(file, 1);
    for (int round = 0; round < 60; round++) {
        for (int is_stopped = 1; is_stopped >= 0; is_stopped--) {
            random = random * 1103515245 + 12345;
            /* An odd number of changes, so that the last one leads to the state that is awaited. */
            for (int left = (random >> 16) % 4 * 2; left >= 0; left--) {
                int stop = left % 2 ? !is_stopped : is_stopped;
                kill(-child, stop ? stops[(random >> (18 + left)) % 4] : SIGCONT);
            }
            wait_for_stop(program, is_stopped), wait_for_stop(child, is_stopped);
        }
    }
    kill(-child, SIGTERM);
    int status = 0;
    waitpid(child, &status, 0);
    printf("the last one counts; signal %d\n", WTERMSIG(status));
    return 0;
}

/* FILE COMMAND: signals to the group and to the command alone stop and continue it. */
static int mixes(char **words)
{
    const char *file = words[0];
    int signals[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGSTOP};
    unlink(file);
    pid_t child = start(words + 1);
    int program = wait_for_lines(file, 1), status = 0;
    for (int round = 0; round < 32; round++) {
        int stop = signals[round % 4];
        /* A command that is stopped alone by SIGSTOP cannot know it. */
        int to_group = stop == SIGSTOP || round & 4;
        kill(to_group ? -child : child, stop);
        wait_for_stop(program, 1), wait_for_stop(child, 1);
        /* A second signal changes nothing. */
        if (round & 16)
            kill(-child, stop);
        kill(round & 8 ? -child : child, SIGCONT);
        wait_for_stop(program, 0), wait_for_stop(child, 0);
    }
    kill(-child, SIGTERM);
    waitpid(child, &status, 0);
    printf("32 times; signal %d\n", WTERMSIG(status));
    return 0;
}

/* FILE COMMAND: after SIGSTOP to the group, SIGCONT to the command, a signal to the group comes once. */
static int once(char **words)
{
    const char *file = words[0];
    unlink(file);
    pid_t child = start(words + 1);
    int program = wait_for_lines(file, 1);
    for (int round = 0; round < 3; round++) {
        kill(-child, SIGSTOP);
        wait_for_stop(program, 1), wait_for_stop(child, 1);
        kill(child, SIGCONT);
        wait_for_stop(program, 0), wait_for_stop(child, 0);
        wait_for_lines(file, 2 + 2 * round);
        kill(-child, SIGUSR2);
        wait_for_lines(file, 3 + 2 * round);
    }
    int status = 0;
    kill(-child, SIGRTMAX);
    waitpid(child, &status, 0);
    printf("exit %d\n", WEXITSTATUS(status));
    show_signals(file);
    return 0;
}

static int count_zombies(void)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    int count = 0;
    while ((entry = readdir(folder)) != NULL) {
        char path[300], text[512] = "", *end;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *in = atoi(entry->d_name) > 0 ? fopen(path, "r") : NULL;
        if (in == NULL)
            continue;
        if (fgets(text, sizeof text, in) != NULL && (end = strrchr(text, ')')) != NULL && end[2] == 'Z')
            count++;
        fclose(in);
    }
    closedir(folder);
    return count;
}

/* Leaves a grandchild behind, and is killed. */
static int orphans(char **words)
{
    int ends[2], seen[2];
    (void)words;
    if (pipe(ends) != 0)
        return 94;
    take_locks();
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            while (getppid() != 1)
                nap(1);
            seen[0] = getppid(), seen[1] = getpid();
            _exit(write(ends[1], seen, sizeof seen) != sizeof seen);
        }
        _exit(0);
    }
    waitpid(child, NULL, 0);
    if (read(ends[0], seen, sizeof seen) != sizeof seen)
        return 93;
    printf("the orphan's parent is %d\n", seen[0]);
    fflush(stdout);
    /* If this program is PID 1, it is the orphan's parent, and does not wait for it. */
    for (int i = 0; i < LIMIT_MS / 5 && (getpid() == 1 ? count_zombies() == 0 : kill(seen[1], 0) == 0); i++)
        nap(5);
    printf("zombies: %d\n", count_zombies());
    fflush(stdout);
    kill(getpid(), SIGKILL);
    return 4;
}

/* Many children take a lock, one by one. Then there must be room for the program's shared memory. */
static int forks(char **words)
{
    int count = atoi(words[0]);
    pid_t last = 0;
    take_locks();
    for (int i = 0; i < count; i++) {
        if ((last = fork()) == 0) {
            take_locks();
            _exit(7);
        }
        int status;
        if (waitpid(-1, &status, 0) != last || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
            fail("a child did not end as it should");
    }
    if (wait(NULL) != -1 || errno != ECHILD)
        fail("there is another child");
    int memory = open("/dev/shm/supervised", O_CREAT | O_RDWR, 0600);
    printf("%d children; memory: %d\n", count, posix_fallocate(memory, 0, 32 << 20));
    unlink("/dev/shm/supervised");
    return 0;
}

/* Closes stdout, and goes on until the file exists. */
static int closes(char **words)
{
    take_locks();
    close(1);
    int i = 0;
    while (access(words[0], F_OK) != 0 && i++ < LIMIT_MS / 5)
        nap(5);
    return access(words[0], F_OK) == 0 ? 8 : 9;
}

static int locks(char **words)
{
    (void)words;
    take_locks();
    return 0;
}

static int raises(char **words)
{
    take_locks();
    raise(atoi(words[0]));
    return 92;
}

int main(int count, char **words)
{
    const struct {
        const char *name;
        int (*run)(char **words);
    } modes[] = {{"as", as},           {"attributes", attributes}, {"signals", signals},
                 {"sleeps", sleeps},   {"status", status},         {"sends", sends},
                 {"stops", stops},     {"flickers", flickers},     {"mixes", mixes},
                 {"once", once},       {"orphans", orphans},       {"forks", forks},
                 {"closes", closes},   {"locks", locks},           {"raises", raises}};
    for (size_t i = 0; count > 1 && i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].name, words[1]) == 0)
            return modes[i].run(words + 2);
    return 92;
}
