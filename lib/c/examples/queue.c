/* A bounded queue between producers and consumers, as in a server: a mutex, two condition
   variables, a counter without contention, and a time limit. Prints how much work was done.

   cc -O2 queue.c $(pkg-config --cflags --libs kinlock) -pthread -o queue */

#include <errno.h>
#include <kinlock.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { PRODUCERS = 2, CONSUMERS = 2, JOBS = 20000, ROOM = 64 };

struct queue {
    kinlock_mutex_t lock;
    kinlock_cond_t not_empty, not_full;
    unsigned first, count;
    unsigned long jobs[ROOM];
};

/* All zeros: ready for use. */
static struct queue queue;
static kinlock_counter_t *done, *idle;

static void put(struct queue *q, unsigned long job)
{
    kinlock_mutex_lock(&q->lock);
    while (q->count == ROOM) {
        kinlock_cond_wait(&q->not_full, &q->lock);
    }
    q->jobs[(q->first + q->count++) % ROOM] = job;
    kinlock_mutex_unlock(&q->lock);
    kinlock_cond_signal(&q->not_empty);
}

/* Returns 0, or ETIMEDOUT if no job has come for `nanos` nanoseconds. */
static int take(struct queue *q, unsigned long *job, uint64_t nanos)
{
    const uint64_t deadline = kinlock_now() + nanos;
    int result = 0;
    kinlock_mutex_lock(&q->lock);
    while (q->count == 0 && result == 0) {
        result = kinlock_cond_wait_until(&q->not_empty, &q->lock, deadline);
    }
    if (q->count > 0) {
        *job = q->jobs[q->first];
        q->first = (q->first + 1) % ROOM;
        q->count--;
        result = 0;
    }
    kinlock_mutex_unlock(&q->lock);
    if (result == 0) {
        kinlock_cond_signal(&q->not_full);
    }
    return result;
}

static void *produce(void *unused)
{
    unsigned long job;
    for (job = 1; job <= JOBS; job++) {
        put(&queue, job);
    }
    return unused;
}

/* Job 0 means that there are no more. */
static void *consume(void *unused)
{
    unsigned long job = 0;
    do {
        /* A consumer without jobs can do other things every 10 ms. */
        while (take(&queue, &job, 10000000) == ETIMEDOUT) {
            kinlock_counter_add(idle, 1);
        }
        kinlock_counter_add(done, job);
    } while (job != 0);
    return unused;
}

int main(void)
{
    pthread_t threads[PRODUCERS + CONSUMERS];
    kinlock_ids_t *ids;
    uint64_t sum;
    int i;
    if (kinlock_ids_create(&ids, KINLOCK_IDS_ANY, 0) != 0 ||
        kinlock_counter_create(ids, &done) != 0 || kinlock_counter_create(ids, &idle) != 0) {
        fprintf(stderr, "no memory\n");
        return 1;
    }
    for (i = 0; i < PRODUCERS + CONSUMERS; i++) {
        if (pthread_create(&threads[i], NULL, i < PRODUCERS ? produce : consume, NULL) != 0) {
            return 1;
        }
    }
    for (i = 0; i < PRODUCERS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (i = 0; i < CONSUMERS; i++) {
        put(&queue, 0);
    }
    for (i = PRODUCERS; i < PRODUCERS + CONSUMERS; i++) {
        pthread_join(threads[i], NULL);
    }
    sum = kinlock_counter_sum(done);
    printf("kinlock %s, %u CPUs: sum of all jobs %llu, nothing to do %llu times\n",
           kinlock_version_string(), (unsigned)kinlock_usable_cpus(), (unsigned long long)sum,
           (unsigned long long)kinlock_counter_sum(idle));
    return sum == (uint64_t)PRODUCERS * JOBS * (JOBS + 1) / 2 ? 0 : 1;
}
