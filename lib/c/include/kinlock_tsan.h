/* SPDX-License-Identifier: MIT OR Apache-2.0

   What ThreadSanitizer has to know. kinlock.h includes this header if a program is compiled with
   -fsanitize=thread. The sanitizer does not see into the library, so it would report every access
   that a lock protects as a race. Here each function of a lock is replaced by one that tells the
   sanitizer what happens. Then the sanitizer also reports misuse of locks: releasing a free lock,
   and orders of locks that may deadlock.

   A change from one way of holding a reader-writer lock to another is reported to it as a release
   and an acquisition, and each removal from a stack as if it saw all insertions before it. The
   sanitizer is told nothing about areas and delayed invalidation. */

#ifndef KINLOCK_TSAN_H
#define KINLOCK_TSAN_H

#include "kinlock.h"
#include <sanitizer/tsan_interface.h>

#define KINLOCK_TSAN_FUNCTION __attribute__((unused)) static inline int

/* The names of the two ways of holding a lock, for the sanitizer and for clang's analysis. */
#define KINLOCK_TSAN_FLAGS_write 0u
#define KINLOCK_TSAN_FLAGS_read __tsan_mutex_read_lock
#define KINLOCK_TSAN_ACQUIRE_write acquire_capability
#define KINLOCK_TSAN_ACQUIRE_read acquire_shared_capability
#define KINLOCK_TSAN_ATTEMPT_write try_acquire_capability
#define KINLOCK_TSAN_ATTEMPT_read try_acquire_shared_capability
#define KINLOCK_TSAN_RELEASE_write release_capability
#define KINLOCK_TSAN_RELEASE_read release_shared_capability

/* Declared first, because in C a definition cannot have an attribute after its parameters. */
#define KINLOCK_TSAN_DECLARED(function, parameters, attribute) \
    KINLOCK_TSAN_FUNCTION kinlock_tsan_##function parameters KINLOCK_NOEXCEPT \
        KINLOCK_ANALYSIS(attribute) KINLOCK_ANALYSIS(no_thread_safety_analysis); \
    KINLOCK_TSAN_FUNCTION kinlock_tsan_##function parameters KINLOCK_NOEXCEPT

/* An acquisition by `call`, which may fail. */
#define KINLOCK_TSAN_RESULT(flags, call) \
    { \
        int result; \
        __tsan_mutex_pre_lock(lock, __tsan_mutex_linker_init | (flags)); \
        result = call; \
        __tsan_mutex_post_lock(lock, \
                               __tsan_mutex_linker_init | (flags) | \
                                   (result != 0 ? __tsan_mutex_try_lock_failed : 0u), \
                               0); \
        return result; \
    }

#define KINLOCK_TSAN_LOCK(function, type, how) \
    KINLOCK_TSAN_DECLARED(function, (type * lock), KINLOCK_TSAN_ACQUIRE_##how(*lock)) \
    KINLOCK_TSAN_RESULT(KINLOCK_TSAN_FLAGS_##how, kinlock_##function(lock))

#define KINLOCK_TSAN_TRY(function, type, how) \
    KINLOCK_TSAN_DECLARED(function, (type * lock), KINLOCK_TSAN_ATTEMPT_##how(0, *lock)) \
    KINLOCK_TSAN_RESULT(__tsan_mutex_try_lock | KINLOCK_TSAN_FLAGS_##how, kinlock_##function(lock))

#define KINLOCK_TSAN_TIMED(function, type, how) \
    KINLOCK_TSAN_DECLARED(function, (type * lock, uint64_t limit), \
                          KINLOCK_TSAN_ATTEMPT_##how(0, *lock)) \
    KINLOCK_TSAN_RESULT(__tsan_mutex_try_lock | KINLOCK_TSAN_FLAGS_##how, \
                        kinlock_##function(lock, limit))

#define KINLOCK_TSAN_UNLOCK(function, type, how) \
    KINLOCK_TSAN_DECLARED(function, (type * lock), KINLOCK_TSAN_RELEASE_##how(*lock)) \
    { \
        int result; \
        __tsan_mutex_pre_unlock(lock, KINLOCK_TSAN_FLAGS_##how); \
        result = kinlock_##function(lock); \
        __tsan_mutex_post_unlock(lock, KINLOCK_TSAN_FLAGS_##how); \
        return result; \
    }

/* A change from one way of holding the lock to another, which always succeeds. */
#define KINLOCK_TSAN_CHANGE(function, from, to) \
    KINLOCK_TSAN_FUNCTION kinlock_tsan_##function(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT \
    { \
        int result; \
        __tsan_mutex_pre_unlock(lock, (from)); \
        __tsan_mutex_post_unlock(lock, (from)); \
        __tsan_mutex_pre_lock(lock, __tsan_mutex_linker_init | (to)); \
        result = kinlock_##function(lock); \
        __tsan_mutex_post_lock(lock, __tsan_mutex_linker_init | (to), 0); \
        return result; \
    }

/* A change from upgradable reading to writing, if `call` succeeds. */
#define KINLOCK_TSAN_UPGRADED(call) \
    { \
        int result = call; \
        if (result == 0) { \
            __tsan_mutex_pre_unlock(lock, __tsan_mutex_read_lock); \
            __tsan_mutex_post_unlock(lock, __tsan_mutex_read_lock); \
            __tsan_mutex_pre_lock(lock, __tsan_mutex_linker_init | __tsan_mutex_try_lock); \
            __tsan_mutex_post_lock(lock, __tsan_mutex_linker_init | __tsan_mutex_try_lock, 0); \
        } \
        return result; \
    }

/* The wait releases the mutex and takes it again. */
#define KINLOCK_TSAN_WAIT(function, parameters, call) \
    KINLOCK_TSAN_DECLARED(function, parameters, requires_capability(*mutex)) \
    { \
        int result; \
        __tsan_mutex_pre_unlock(mutex, 0); \
        __tsan_mutex_post_unlock(mutex, 0); \
        result = call; \
        __tsan_mutex_pre_lock(mutex, __tsan_mutex_linker_init); \
        __tsan_mutex_post_lock(mutex, __tsan_mutex_linker_init, 0); \
        return result; \
    }

#ifdef __cplusplus
extern "C" {
#endif

KINLOCK_TSAN_LOCK(mutex_lock, kinlock_mutex_t, write)
KINLOCK_TSAN_TRY(mutex_trylock, kinlock_mutex_t, write)
KINLOCK_TSAN_TIMED(mutex_lock_for, kinlock_mutex_t, write)
KINLOCK_TSAN_TIMED(mutex_lock_until, kinlock_mutex_t, write)
KINLOCK_TSAN_UNLOCK(mutex_unlock, kinlock_mutex_t, write)
KINLOCK_TSAN_UNLOCK(mutex_unlock_fair, kinlock_mutex_t, write)

KINLOCK_TSAN_WAIT(cond_wait, (kinlock_cond_t * cond, kinlock_mutex_t *mutex),
                  kinlock_cond_wait(cond, mutex))
KINLOCK_TSAN_WAIT(cond_wait_for, (kinlock_cond_t * cond, kinlock_mutex_t *mutex, uint64_t limit),
                  kinlock_cond_wait_for(cond, mutex, limit))
KINLOCK_TSAN_WAIT(cond_wait_until, (kinlock_cond_t * cond, kinlock_mutex_t *mutex, uint64_t limit),
                  kinlock_cond_wait_until(cond, mutex, limit))

KINLOCK_TSAN_LOCK(rwlock_read_lock, kinlock_rwlock_t, read)
KINLOCK_TSAN_TRY(rwlock_read_trylock, kinlock_rwlock_t, read)
KINLOCK_TSAN_TIMED(rwlock_read_lock_for, kinlock_rwlock_t, read)
KINLOCK_TSAN_TIMED(rwlock_read_lock_until, kinlock_rwlock_t, read)
KINLOCK_TSAN_LOCK(rwlock_read_lock_recursive, kinlock_rwlock_t, read)
KINLOCK_TSAN_TRY(rwlock_read_trylock_recursive, kinlock_rwlock_t, read)
KINLOCK_TSAN_TIMED(rwlock_read_lock_recursive_for, kinlock_rwlock_t, read)
KINLOCK_TSAN_TIMED(rwlock_read_lock_recursive_until, kinlock_rwlock_t, read)
KINLOCK_TSAN_UNLOCK(rwlock_read_unlock, kinlock_rwlock_t, read)
KINLOCK_TSAN_UNLOCK(rwlock_read_unlock_fair, kinlock_rwlock_t, read)
KINLOCK_TSAN_LOCK(rwlock_write_lock, kinlock_rwlock_t, write)
KINLOCK_TSAN_TRY(rwlock_write_trylock, kinlock_rwlock_t, write)
KINLOCK_TSAN_TIMED(rwlock_write_lock_for, kinlock_rwlock_t, write)
KINLOCK_TSAN_TIMED(rwlock_write_lock_until, kinlock_rwlock_t, write)
KINLOCK_TSAN_UNLOCK(rwlock_write_unlock, kinlock_rwlock_t, write)
KINLOCK_TSAN_UNLOCK(rwlock_write_unlock_fair, kinlock_rwlock_t, write)
KINLOCK_TSAN_CHANGE(rwlock_downgrade, 0u, __tsan_mutex_read_lock)
KINLOCK_TSAN_CHANGE(rwlock_downgrade_to_upgradable, 0u, __tsan_mutex_read_lock)
KINLOCK_TSAN_LOCK(rwlock_upgradable_lock, kinlock_rwlock_t, read)
KINLOCK_TSAN_TRY(rwlock_upgradable_trylock, kinlock_rwlock_t, read)
KINLOCK_TSAN_TIMED(rwlock_upgradable_lock_for, kinlock_rwlock_t, read)
KINLOCK_TSAN_TIMED(rwlock_upgradable_lock_until, kinlock_rwlock_t, read)
KINLOCK_TSAN_UNLOCK(rwlock_upgradable_unlock, kinlock_rwlock_t, read)
KINLOCK_TSAN_UNLOCK(rwlock_upgradable_unlock_fair, kinlock_rwlock_t, read)
KINLOCK_TSAN_CHANGE(rwlock_upgrade, __tsan_mutex_read_lock, 0u)
KINLOCK_TSAN_FUNCTION kinlock_tsan_rwlock_tryupgrade(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
KINLOCK_TSAN_UPGRADED(kinlock_rwlock_tryupgrade(lock))
KINLOCK_TSAN_FUNCTION kinlock_tsan_rwlock_upgrade_for(kinlock_rwlock_t *lock, uint64_t limit)
    KINLOCK_NOEXCEPT
KINLOCK_TSAN_UPGRADED(kinlock_rwlock_upgrade_for(lock, limit))
KINLOCK_TSAN_FUNCTION kinlock_tsan_rwlock_upgrade_until(kinlock_rwlock_t *lock, uint64_t limit)
    KINLOCK_NOEXCEPT
KINLOCK_TSAN_UPGRADED(kinlock_rwlock_upgrade_until(lock, limit))

KINLOCK_TSAN_LOCK(spin_lock, kinlock_spin_t, write)
KINLOCK_TSAN_TRY(spin_trylock, kinlock_spin_t, write)
KINLOCK_TSAN_TIMED(spin_lock_for, kinlock_spin_t, write)
KINLOCK_TSAN_TIMED(spin_lock_until, kinlock_spin_t, write)
KINLOCK_TSAN_UNLOCK(spin_unlock, kinlock_spin_t, write)

/* The function runs in one thread, and all threads that call kinlock_once see what it did. */
struct kinlock_tsan_once_call {
    kinlock_once_t *once;
    void (*function)(void *);
    void *argument;
};

__attribute__((unused)) static inline void kinlock_tsan_once_run(void *argument)
{
    struct kinlock_tsan_once_call *call = (struct kinlock_tsan_once_call *)argument;
    call->function(call->argument);
    __tsan_release(call->once);
}

KINLOCK_TSAN_FUNCTION kinlock_tsan_once(kinlock_once_t *once, void (*function)(void *),
                                        void *argument)
{
    struct kinlock_tsan_once_call call;
    int result;
    call.once = once;
    call.function = function;
    call.argument = argument;
    result = kinlock_once(once, kinlock_tsan_once_run, &call);
    __tsan_acquire(once);
    return result;
}

KINLOCK_TSAN_FUNCTION kinlock_tsan_once_is_done(const kinlock_once_t *once) KINLOCK_NOEXCEPT
{
    int result = kinlock_once_is_done(once);
    if (result != 0) {
        __tsan_acquire((void *)(uintptr_t)once);
    }
    return result;
}

/* Orders all pushes before a pop by the address of the stack, because a pointer on it need not be
   an address. The sanitizer sees that the library allocates and frees nodes, and is told to ignore
   that, as in a mutex's own code. */
__attribute__((unused)) static inline void
kinlock_tsan_stack_push(kinlock_stack_t *stack, void *pointer) KINLOCK_NOEXCEPT
{
    __tsan_release(stack);
    __tsan_mutex_pre_signal(stack, 0);
    kinlock_stack_push(stack, pointer);
    __tsan_mutex_post_signal(stack, 0);
}

__attribute__((unused)) static inline void *kinlock_tsan_stack_pop(kinlock_stack_t *stack)
    KINLOCK_NOEXCEPT
{
    void *pointer;
    __tsan_mutex_pre_signal(stack, 0);
    pointer = kinlock_stack_pop(stack);
    __tsan_mutex_post_signal(stack, 0);
    if (pointer != NULL) {
        __tsan_acquire(stack);
    }
    return pointer;
}

#ifdef __cplusplus
}
#endif

#define kinlock_mutex_lock kinlock_tsan_mutex_lock
#define kinlock_mutex_trylock kinlock_tsan_mutex_trylock
#define kinlock_mutex_lock_for kinlock_tsan_mutex_lock_for
#define kinlock_mutex_lock_until kinlock_tsan_mutex_lock_until
#define kinlock_mutex_unlock kinlock_tsan_mutex_unlock
#define kinlock_mutex_unlock_fair kinlock_tsan_mutex_unlock_fair
#define kinlock_cond_wait kinlock_tsan_cond_wait
#define kinlock_cond_wait_for kinlock_tsan_cond_wait_for
#define kinlock_cond_wait_until kinlock_tsan_cond_wait_until
#define kinlock_rwlock_read_lock kinlock_tsan_rwlock_read_lock
#define kinlock_rwlock_read_trylock kinlock_tsan_rwlock_read_trylock
#define kinlock_rwlock_read_lock_for kinlock_tsan_rwlock_read_lock_for
#define kinlock_rwlock_read_lock_until kinlock_tsan_rwlock_read_lock_until
#define kinlock_rwlock_read_lock_recursive kinlock_tsan_rwlock_read_lock_recursive
#define kinlock_rwlock_read_trylock_recursive kinlock_tsan_rwlock_read_trylock_recursive
#define kinlock_rwlock_read_lock_recursive_for kinlock_tsan_rwlock_read_lock_recursive_for
#define kinlock_rwlock_read_lock_recursive_until kinlock_tsan_rwlock_read_lock_recursive_until
#define kinlock_rwlock_read_unlock kinlock_tsan_rwlock_read_unlock
#define kinlock_rwlock_read_unlock_fair kinlock_tsan_rwlock_read_unlock_fair
#define kinlock_rwlock_write_lock kinlock_tsan_rwlock_write_lock
#define kinlock_rwlock_write_trylock kinlock_tsan_rwlock_write_trylock
#define kinlock_rwlock_write_lock_for kinlock_tsan_rwlock_write_lock_for
#define kinlock_rwlock_write_lock_until kinlock_tsan_rwlock_write_lock_until
#define kinlock_rwlock_write_unlock kinlock_tsan_rwlock_write_unlock
#define kinlock_rwlock_write_unlock_fair kinlock_tsan_rwlock_write_unlock_fair
#define kinlock_rwlock_downgrade kinlock_tsan_rwlock_downgrade
#define kinlock_rwlock_downgrade_to_upgradable kinlock_tsan_rwlock_downgrade_to_upgradable
#define kinlock_rwlock_upgradable_lock kinlock_tsan_rwlock_upgradable_lock
#define kinlock_rwlock_upgradable_trylock kinlock_tsan_rwlock_upgradable_trylock
#define kinlock_rwlock_upgradable_lock_for kinlock_tsan_rwlock_upgradable_lock_for
#define kinlock_rwlock_upgradable_lock_until kinlock_tsan_rwlock_upgradable_lock_until
#define kinlock_rwlock_upgradable_unlock kinlock_tsan_rwlock_upgradable_unlock
#define kinlock_rwlock_upgradable_unlock_fair kinlock_tsan_rwlock_upgradable_unlock_fair
#define kinlock_rwlock_upgrade kinlock_tsan_rwlock_upgrade
#define kinlock_spin_lock kinlock_tsan_spin_lock
#define kinlock_spin_trylock kinlock_tsan_spin_trylock
#define kinlock_spin_lock_for kinlock_tsan_spin_lock_for
#define kinlock_spin_lock_until kinlock_tsan_spin_lock_until
#define kinlock_spin_unlock kinlock_tsan_spin_unlock
#define kinlock_rwlock_tryupgrade kinlock_tsan_rwlock_tryupgrade
#define kinlock_rwlock_upgrade_for kinlock_tsan_rwlock_upgrade_for
#define kinlock_rwlock_upgrade_until kinlock_tsan_rwlock_upgrade_until
#define kinlock_once kinlock_tsan_once
#define kinlock_once_is_done kinlock_tsan_once_is_done
#define kinlock_stack_push kinlock_tsan_stack_push
#define kinlock_stack_pop kinlock_tsan_stack_pop

#endif
