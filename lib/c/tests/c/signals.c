/* A signal handler takes a lock that the interrupted code does not use, and notifies. */

#include "test.h"

static kinlock_mutex_t fought_for, of_handler;
static kinlock_cond_t cond;
static unsigned long counted, handled;
static int end;

static void handle(int number)
{
    (void)number;
    kinlock_mutex_lock(&of_handler);
    handled++;
    kinlock_cond_signal(&cond);
    kinlock_mutex_unlock(&of_handler);
}

static void *fight(void *unused)
{
    do {
        kinlock_mutex_lock(&fought_for);
        counted++;
        kinlock_mutex_unlock(&fought_for);
    } while (!LOAD(end));
    return unused;
}

int main(void)
{
    struct sigaction action;
    pthread_t threads[3];
    unsigned long seen;
    int i;
    memset(&action, 0, sizeof(action));
    action.sa_handler = handle;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (i = 0; i < 3; i++) {
        threads[i] = start(fight, NULL);
    }
    for (i = 0; i < 300; i++) {
        CHECK(pthread_kill(threads[i % 3], SIGUSR1) == 0);
        if (i % 10 == 0) {
            sleep_ms(1);
        }
    }
    STORE(end, 1);
    for (i = 0; i < 3; i++) {
        join(threads[i]);
    }
    kinlock_mutex_lock(&of_handler);
    seen = handled;
    kinlock_mutex_unlock(&of_handler);
    /* Signals are merged while a signal of the same kind is pending. */
    CHECK(seen > 0 && seen <= 300);
    CHECK(counted >= 3);
    return 0;
}
