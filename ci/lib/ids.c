/* ids THREADS DELAY WARM_UP PINNED SEED: which concurrency IDs the kernel gives to threads that run
   now and then, and how often one of these IDs is new to the process. The bursts are those of
   librseq's `basic_percpu_benchmark`: the threads meet, all running at the same time. Then they run
   one after the other in an order drawn with SEED, DELAY milliseconds apart, five times. In each
   burst a thread increments the 16,384 bytes of its ID's area. Before its first burst a thread
   warms up: it does the same for WARM_UP microseconds. Areas are private mappings of one file.
   With PINNED other than 0 each thread has a CPU of its own.

   Prints for the warm-up and for each round of bursts how many IDs were in use, which, how many
   areas were written for the first time, how many page faults that took, how many bursts had the ID
   of the thread's burst before, and how many areas another CPU had written last. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <time.h>
#include <unistd.h>

enum { AREA = 16 << 10, STRIDE = 64 << 10, IDS = 1024, ROUNDS = 5 };

/* Of the warm-up, which is round 0, and of the rounds of bursts. */
static struct {
    unsigned char used[IDS];
    long first, faults, kept, foreign;
} rounds[1 + ROUNDS];

static int threads, delay, warm_up, pinned;
static int cpus[IDS], order[IDS], active;
static char *areas;
/* The CPU that has written an area last, plus one. One thread runs at a time. */
static int written_by[IDS];

static void check(int right, const char *what)
{
    if (!right) {
        perror(what);
        exit(1);
    }
}

static int64_t micros(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000ll + time.tv_nsec / 1000;
}

/* The field `mm_cid` of the area that the C library has registered. */
static int concurrency_id(void)
{
    char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
    return *(volatile int *)(area + 24);
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
}

/* Returns the ID. */
static int burst(int round, int before)
{
    int id = concurrency_id(), cpu = sched_getcpu();
    check(id >= 0 && id < IDS, "the ID is too large");
    char *area = areas + (size_t)id * STRIDE;
    for (int i = 0; i < AREA; i++)
        area[i]++;
    __asm__ volatile("" ::: "memory");
    rounds[round].used[id] = 1;
    rounds[round].first += written_by[id] == 0;
    rounds[round].foreign += written_by[id] != 0 && written_by[id] != cpu + 1;
    rounds[round].kept += id == before;
    written_by[id] = cpu + 1;
    return id;
}

static void *run(void *argument)
{
    int me = (intptr_t)argument, id = -1;
    long since;
    int64_t until;
    if (pinned) {
        cpu_set_t own;
        CPU_ZERO(&own);
        CPU_SET(cpus[me], &own);
        check(sched_setaffinity(0, sizeof own, &own) == 0, "sched_setaffinity");
    }
    __atomic_add_fetch(&active, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&active, __ATOMIC_SEQ_CST) < threads)
        __builtin_ia32_pause();
    poll(NULL, 0, delay * order[me]);
    since = faults();
    for (until = micros() + warm_up; micros() < until;)
        id = burst(0, -1);
    rounds[0].faults += faults() - since;
    for (int round = 1; round <= ROUNDS; round++) {
        since = faults();
        id = burst(round, id);
        rounds[round].faults += faults() - since;
        poll(NULL, 0, delay * threads);
    }
    return NULL;
}

static void print(int round)
{
    int count = 0;
    for (int id = 0; id < IDS; id++)
        count += rounds[round].used[id];
    printf("round %d: %d IDs:", round, count);
    for (int id = 0, end; id < IDS; id = end + 1) {
        for (end = id; end < IDS && rounds[round].used[end]; end++)
            ;
        if (end > id + 1)
            printf(" %d-%d", id, end - 1);
        else if (end > id)
            printf(" %d", id);
    }
    printf("; first %ld, faults %ld, kept %ld, foreign %ld\n", rounds[round].first, rounds[round].faults,
           rounds[round].kept, rounds[round].foreign);
}

int main(int argc, char **argv)
{
    pthread_t handles[IDS];
    cpu_set_t allowed;
    int allowed_cpus = 0, file;
    if (argc != 6)
        return 2;
    threads = atoi(argv[1]);
    delay = atoi(argv[2]);
    warm_up = atoi(argv[3]);
    pinned = atoi(argv[4]);
    srand(atoi(argv[5]));
    if (__rseq_size == 0 || getauxval(27 /* AT_RSEQ_FEATURE_SIZE */) < 28) {
        fprintf(stderr, "there are no concurrency IDs\n");
        return 1;
    }
    check(sched_getaffinity(0, sizeof allowed, &allowed) == 0, "sched_getaffinity");
    for (int cpu = 0; cpu < IDS; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            cpus[allowed_cpus++] = cpu;
    check(threads > 0 && threads <= allowed_cpus, "there are fewer CPUs");
    file = memfd_create("areas", 0);
    check(file >= 0 && ftruncate(file, AREA) == 0, "memfd_create");
    areas = mmap(NULL, (size_t)IDS * STRIDE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(areas != MAP_FAILED, "mmap");
    for (int id = 0; id < IDS; id++)
        check(mmap(areas + (size_t)id * STRIDE, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) !=
                  MAP_FAILED,
              "mmap of an area");
    for (int i = 0; i < threads; i++) {
        int other = rand() % (i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    for (int i = 0; i < threads; i++)
        check(pthread_create(&handles[i], NULL, run, (void *)(intptr_t)i) == 0, "pthread_create");
    for (int i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    for (int round = 0; round <= ROUNDS; round++)
        print(round);
    return 0;
}
