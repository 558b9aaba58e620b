/* What the header says of mistakes, and of versions. */

#include "test.h"

static void lock_null(void *unused)
{
    kinlock_mutex_t *volatile none = NULL;
    (void)unused;
    kinlock_mutex_lock(none);
}

static void relock(void *unused)
{
    kinlock_mutex_t lock = KINLOCK_MUTEX_INIT;
    (void)unused;
    kinlock_mutex_lock(&lock);
    CHECK(kinlock_mutex_lock_for(&lock, 2 * MS) == ETIMEDOUT);
    _exit(7);
}

static char memory[64] __attribute__((aligned(64)));

static void *misplaced(void)
{
    void *volatile place = memory + 1;
    return place;
}

static void wait_misaligned(void *unused)
{
    kinlock_mutex_t *lock = (kinlock_mutex_t *)misplaced();
    (void)unused;
    /* The first call is undefined as well, but has nothing to wait for. */
    kinlock_mutex_lock(lock);
    kinlock_mutex_lock(lock);
}

static void wait_misaligned_rwlock(void *unused)
{
    kinlock_rwlock_t *lock = (kinlock_rwlock_t *)misplaced();
    (void)unused;
    kinlock_rwlock_write_lock(lock);
    kinlock_rwlock_read_lock(lock);
}

/* Runs it in a child, and checks that it ends by SIGABRT with a message that contains `text`. */
static void ends_with_message(void (*function)(void *), const char *text)
{
    char message[512];
    int ends[2], status, saved;
    ssize_t length;
    CHECK(pipe(ends) == 0);
    saved = dup(2);
    CHECK(saved >= 0 && dup2(ends[1], 2) == 2);
    status = in_child(function, NULL);
    CHECK(dup2(saved, 2) == 2);
    close(saved);
    close(ends[1]);
    length = read(ends[0], message, sizeof(message) - 1);
    close(ends[0]);
    CHECK(length >= 0);
    message[length] = 0;
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(strstr(message, text) != NULL);
}

int main(void)
{
    int status = in_child(lock_null, NULL);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    status = in_child(relock, NULL);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
#ifdef __x86_64__
    /* Other processors may refuse the first access. */
    ends_with_message(wait_misaligned, "kinlock_mutex_lock");
    ends_with_message(wait_misaligned_rwlock, "is not aligned to 4 bytes");
#endif

    CHECK(kinlock_version() == KINLOCK_VERSION);
    {
        char expected[32];
        snprintf(expected, sizeof(expected), "%d.%d.%d", KINLOCK_VERSION_MAJOR,
                 KINLOCK_VERSION_MINOR, KINLOCK_VERSION_PATCH);
        CHECK(strcmp(kinlock_version_string(), expected) == 0);
    }
    CHECK(kinlock_version_check(KINLOCK_ABI, KINLOCK_VERSION) == 0);
    CHECK(kinlock_version_check(KINLOCK_ABI, 0) == 0);
    CHECK(kinlock_version_check(KINLOCK_ABI, KINLOCK_VERSION + 1) == ENOTSUP);
    CHECK(kinlock_version_check(KINLOCK_ABI + 1, KINLOCK_VERSION) == ENOTSUP);
    return 0;
}
