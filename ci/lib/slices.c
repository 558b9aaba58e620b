/* slices THREADS SECTIONS SECTION PRIVATE: each thread takes the same mutex SECTIONS times, holds
   it for SECTION nanoseconds, and works PRIVATE nanoseconds without it in between. Prints how many
   critical sections there were; in how many the thread had asked for a longer time slice; how many
   the thread ended in such an extension, granted during the section; in how many the thread lost
   its CPU; and how often the threads lost their CPUs in all.

   A thread finds out that it lost its CPU without a system call, which would end a time-slice
   extension: it points the field `rseq_cs` of its area at a sequence that contains no instruction.
   If another thread runs on the CPU, the kernel finds that the thread does not execute this
   sequence, and sets the field to null. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sections, section, private, turns_per_us;
static uint64_t under_lock; /* changed by holders only */

/* If the sequence were executed, the thread would go on after this signature, which the C library
   has registered. */
static const struct {
    uint32_t signature;
    char end[4];
} aborts = {.signature = RSEQ_SIG};
static const struct rseq_cs nowhere = {.start_ip = 1, .abort_ip = (uintptr_t)aborts.end};

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void work(uint64_t nanos)
{
    for (uint64_t i = nanos * turns_per_us / 1000; i > 0; i--)
        __asm__ volatile("" ::: "memory");
}

/* Takes the fastest of some trials, because others may have been interrupted. */
static void calibrate(void)
{
    uint64_t best = UINT64_MAX;
    turns_per_us = 1;
    for (int trial = 0; trial < 50; trial++) {
        uint64_t since = now(), took;
        work(100000 * 1000);
        took = now() - since;
        best = took < best ? took : best;
    }
    turns_per_us = 100000 * 1000 / best;
    if (turns_per_us == 0)
        turns_per_us = 1;
}

struct counts {
    uint64_t sections, asked, saved, lost, all;
};

static void *take_turns(void *result)
{
    struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    volatile uint64_t *sequence = (volatile uint64_t *)&area->rseq_cs;
    /* Older C libraries may have other data in these bytes. */
    volatile uint8_t *request = (volatile uint8_t *)area + 28, *granted = request + 1;
    int may_ask = __rseq_size > 32;
    struct counts *counts = result;
    struct rusage usage;
    for (; counts->sections < sections; counts->sections++) {
        pthread_mutex_lock(&mutex);
        *sequence = (uintptr_t)&nowhere;
        int asked = may_ask && *request;
        under_lock++;
        work(section);
        counts->asked += asked;
        counts->saved += asked && *granted;
        counts->lost += *sequence == 0;
        *sequence = 0;
        pthread_mutex_unlock(&mutex);
        work(private);
    }
    getrusage(RUSAGE_THREAD, &usage);
    counts->all = usage.ru_nivcsw;
    return NULL;
}

int main(int argc, char **argv)
{
    struct counts counts[64] = {0}, sum = {0};
    pthread_t threads[64];
    int n = argc == 5 ? atoi(argv[1]) : 0;
    if (n < 1 || n > 64 || __rseq_size == 0) {
        fprintf(stderr, "usage: slices THREADS SECTIONS SECTION PRIVATE, with restartable sequences\n");
        return 2;
    }
    calibrate();
    sections = strtoull(argv[2], NULL, 10);
    section = strtoull(argv[3], NULL, 10);
    private = strtoull(argv[4], NULL, 10);
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, take_turns, &counts[i]))
            return 2;
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        sum.sections += counts[i].sections;
        sum.asked += counts[i].asked;
        sum.saved += counts[i].saved;
        sum.lost += counts[i].lost;
        sum.all += counts[i].all;
    }
    if (sum.sections != under_lock) {
        fprintf(stderr, "slices: two threads were in a section at once\n");
        return 1;
    }
    printf("%lu %lu %lu %lu %lu\n", sum.sections, sum.asked, sum.saved, sum.lost, sum.all);
    return 0;
}
