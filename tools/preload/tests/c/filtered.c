/* Locks of all sorts under a filter of system calls which ends the process for any that is not
   documented. The argument "futex" allows nothing but what the C library itself calls here. */
#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { THREADS = 4, TIMES = 20000 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static long count, written, spun;
static atomic_int started, filtered;

/* What the C library calls here: futexes, sleeps, output, and the ends of threads. */
static const int plain[] = {
    SYS_futex, SYS_write, SYS_exit, SYS_exit_group, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask,
    SYS_rt_sigreturn, SYS_set_robust_list, SYS_clock_nanosleep,
};
/* What the guide lists for locks on top of that, without what only other settings call. */
static const int listed[] = {
    SYS_membarrier, SYS_mmap, SYS_mincore, SYS_sched_yield, SYS_sched_getscheduler,
    SYS_sched_getaffinity, SYS_openat, SYS_read, SYS_getdents64, SYS_close, SYS_clock_gettime,
    SYS_getcpu, SYS_nanosleep,
};

/* A system call that the filter does not allow. */
static void refused(int signal, siginfo_t *what, void *context)
{
    char text[] = "refused: 000\n";
    int call = what->si_syscall;
    for (int at = 11; at > 8; at--, call /= 10)
        text[at] = '0' + call % 10;
    (void)!write(1, text, sizeof text - 1);
    _exit(4);
}

static void filter(int all)
{
    struct sock_filter lines[64];
    unsigned short n = 0;
    size_t plains = sizeof plain / sizeof *plain, more = sizeof listed / sizeof *listed;
    lines[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                              offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < plains + (all ? more : 0); i++) {
        int call = i < plains ? plain[i] : listed[i - plains];
        lines[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
        lines[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    lines[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_fprog program = {n, lines};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
}

static void *work(void *number)
{
    started++;
    while (!filtered)
        nap(1);
    for (int i = 0; i < TIMES; i++) {
        struct timespec soon = in_ms(CLOCK_REALTIME, i % 2000 ? 1000 : 1);
        if (i % 8 || pthread_mutex_timedlock(&mutex, &soon) != 0)
            pthread_mutex_lock(&mutex);
        count++;
        if (i % 2000 == 0)
            pthread_cond_timedwait(&condvar, &mutex, &soon);
        pthread_cond_signal(&condvar);
        pthread_mutex_unlock(&mutex);
        if (i % 8 || pthread_rwlock_timedwrlock(&rwlock, &soon) != 0)
            pthread_rwlock_wrlock(&rwlock);
        written++;
        pthread_rwlock_unlock(&rwlock);
        pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
        pthread_spin_lock(&spin);
        spun++;
        pthread_spin_unlock(&spin);
    }
    return number;
}

int main(int words, char **word)
{
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    pthread_spin_init(&spin, 0);
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(work, NULL);
    while (started < THREADS)
        nap(1);
    filter(strcmp(word[1], "futex"));
    filtered = 1;
    for (int i = 0; i < THREADS; i++)
        end(threads[i]);
    printf("%ld %ld %ld\n", count, written, spun);
    if (words > 2)
        _exit(0);
    return 0;
}
