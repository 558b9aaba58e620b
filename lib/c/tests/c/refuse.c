/* refuse WHAT[,WHAT..] PROGRAM ARGS: executes the program after the kernel was told to refuse these
   system calls, as some sandboxes do: rseq, membarrier, an operation of futex, or futex2 for the
   newer futex calls. Checks first that each of them is refused. */

#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
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

/* Stands for all operations of a system call. */
enum { ANY = -1 };

static const struct {
    const char *name;
    long first, last;
    int operation;
} known[] = {
    {"rseq", SYS_rseq, SYS_rseq, ANY},
    {"membarrier", SYS_membarrier, SYS_membarrier, ANY},
    {"futex-wait", SYS_futex, SYS_futex, FUTEX_WAIT},
    {"futex-wait-bitset", SYS_futex, SYS_futex, FUTEX_WAIT_BITSET},
    {"futex-wake-bitset", SYS_futex, SYS_futex, FUTEX_WAKE_BITSET},
    {"futex-requeue", SYS_futex, SYS_futex, FUTEX_REQUEUE},
    {"futex-cmp-requeue", SYS_futex, SYS_futex, FUTEX_CMP_REQUEUE},
    /* futex_waitv; futex_wake, futex_wait and futex_requeue. */
    {"futex2", 449, 449, ANY},
    {"futex2", 454, 456, ANY},
};
enum { KNOWN = sizeof(known) / sizeof(known[0]), LENGTH = 7 };

/* Adds the instructions that refuse one of the known calls. */
static struct sock_filter *add(struct sock_filter *at, unsigned index)
{
    const struct sock_filter code[LENGTH] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)known[index].first, 0, 5),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)known[index].last, 4, 0),
        /* The low half of the second argument: the operation and its flags. */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, known[index].operation == ANY ? 0 : FUTEX_CMD_MASK),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                 known[index].operation == ANY ? 0 : (uint32_t)known[index].operation, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    memcpy(at, code, sizeof(code));
    return at + LENGTH;
}

/* Whether the call is refused. Without the filter it succeeds or fails with another error, and does
   not sleep. */
static int is_refused(unsigned index)
{
    static uint32_t word;
    long number;
    for (number = known[index].first; number <= known[index].last; number++) {
        const int operation = known[index].operation == ANY ? 0 : known[index].operation;
        if (syscall(number, &word, operation | FUTEX_PRIVATE_FLAG, 1, NULL, &word, 1) != -1 ||
            errno != EPERM) {
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    struct sock_filter code[LENGTH * KNOWN + 1], *end = code;
    const struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program;
    int wanted[KNOWN] = {0};
    char *name;
    unsigned index;
    if (argc < 3) {
        fprintf(stderr, "usage: refuse WHAT[,WHAT..] PROGRAM ARGS\n");
        return 2;
    }
    for (name = strtok(argv[1], ","); name != NULL; name = strtok(NULL, ",")) {
        int found = 0;
        for (index = 0; index < KNOWN; index++) {
            if (strcmp(known[index].name, name) == 0) {
                wanted[index] = found = 1;
                end = add(end, index);
            }
        }
        if (!found) {
            fprintf(stderr, "refuse: cannot refuse %s\n", name);
            return 2;
        }
    }
    *end++ = allow;
    program.len = (unsigned short)(end - code);
    program.filter = code;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("refuse: prctl");
        return 2;
    }
    for (index = 0; index < KNOWN; index++) {
        if (wanted[index] && !is_refused(index)) {
            fprintf(stderr, "refuse: the kernel does not refuse %s\n", known[index].name);
            return 2;
        }
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 2;
}
