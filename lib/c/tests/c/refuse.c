/* refuse PROGRAM ARGS: executes the program where the kernel refuses rseq and membarrier, as some
   sandboxes do. */

#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_rseq
#ifdef __x86_64__
#define SYS_rseq 334
#else
#define SYS_rseq 293
#endif
#endif

int main(int argc, char **argv)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rseq, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
    if (argc < 2) {
        fprintf(stderr, "usage: refuse PROGRAM ARGS\n");
        return 2;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("refuse: prctl");
        return 2;
    }
    if (syscall(SYS_membarrier, 0, 0, 0) != -1 || errno != EPERM) {
        fprintf(stderr, "refuse: the kernel does not refuse membarrier\n");
        return 2;
    }
    /* Without the filter: EINVAL or EFAULT. */
    if (syscall(SYS_rseq, NULL, 0, 0, 0) != -1 || errno != EPERM) {
        fprintf(stderr, "refuse: the kernel does not refuse rseq\n");
        return 2;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 2;
}
