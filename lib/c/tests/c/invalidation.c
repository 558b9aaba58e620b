/* Delayed invalidation: a tag passes when its section and older ones have ended. */

#include "test.h"

static kinlock_invalidation_t *domain;
static kinlock_tag_t tag = KINLOCK_TAG_INIT;
static int begun, may_end, ended;

static void *invalidate(void *unused)
{
    kinlock_section_t section;
    CHECK(kinlock_invalidation_begin(domain, &section) == 0);
    CHECK(section.generation > 0);
    kinlock_invalidation_tag(&section, &tag);
    CHECK(kinlock_invalidation_wait(domain, &tag) == EDEADLK);
    STORE(begun, 1);
    while (!LOAD(may_end)) {
        sleep_ms(1);
    }
    STORE(ended, 1);
    kinlock_invalidation_end(&section);
    return unused;
}

static void *wait_for_tag(void *unused)
{
    CHECK(kinlock_invalidation_wait(domain, &tag) == 0);
    CHECK(LOAD(ended));
    return unused;
}

static void look(void *argument, const kinlock_open_section_t *open)
{
    CHECK(open->generation > 0 && open->current >= open->generation && open->thread > 0);
    CHECK(open->age < 60000 * MS);
    ++*(int *)argument;
}

int main(void)
{
    pthread_t invalidator, waiter;
    kinlock_section_t later;
    uint64_t begin;
    int open = 0;
    CHECK(kinlock_invalidation_create(&domain) == 0);
    CHECK(kinlock_invalidation_passed(domain, &tag) == 1);
    invalidator = start(invalidate, NULL);
    while (!LOAD(begun)) {
        sleep_ms(1);
    }
    CHECK(kinlock_invalidation_passed(domain, &tag) == 0);
    begin = kinlock_now();
    CHECK(kinlock_invalidation_wait_for(domain, &tag, 3 * MS) == ETIMEDOUT);
    CHECK(kinlock_now() - begin >= 3 * MS);
    CHECK(kinlock_invalidation_wait_for(domain, &tag, 0) == ETIMEDOUT);
    kinlock_invalidation_dump(domain, look, &open);
    CHECK(open == 1);
    waiter = start(wait_for_tag, NULL);
    /* A later section does not prolong the wait. */
    CHECK(kinlock_invalidation_begin(domain, &later) == 0);
    STORE(may_end, 1);
    join(invalidator);
    join(waiter);
    CHECK(kinlock_invalidation_passed(domain, &tag) == 1);
    kinlock_invalidation_end(&later);
    CHECK(kinlock_invalidation_wait_all(domain) == 0);
    CHECK(kinlock_invalidation_wait_for(domain, &tag, KINLOCK_FOREVER) == 0);
    open = 0;
    kinlock_invalidation_dump(domain, look, &open);
    CHECK(open == 0);
    kinlock_invalidation_destroy(domain);
    kinlock_invalidation_destroy(NULL);
    return 0;
}
