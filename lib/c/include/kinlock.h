/* SPDX-License-Identifier: MIT OR Apache-2.0

   kinlock: locks for many threads and short critical sections.

   Link with -lkinlock (pkg-config kinlock). Linux only; kinlock_fallback.h has the locks' names for
   other systems. This is the reference; the page docs/guide/c.md of the sources is an introduction.

   WHAT HOLDS FOR ALL FUNCTIONS

   - Results. Functions that can fail return 0 or an error number of <errno.h>; their comments list
     which. Functions that ask something return the answer. Functions of locks leave errno alone.
   - Memory. The locks, the condition variable and kinlock_once allocate nothing and make no system
     call unless they have to wait or to wake a thread. Objects that are made by a function named
     ..._create allocate; the comments on their functions say when.
   - Cancellation. No function of a lock is a cancellation point, kinlock_cond_wait included.
     kinlock_ids_create, kinlock_node and kinlock_cache may be: they read files. A thread whose
     cancellation type is asynchronous must not call any function.
   - Signals. A handler may call the functions of a lock if the interrupted code neither holds that
     lock nor is acquiring or releasing it. It may call kinlock_cond_signal and
     kinlock_cond_broadcast on a condition variable that the interrupted code is not using. It must
     not wait for a condition variable. Of the other functions it may call only those whose comments
     say so.
   - Inside malloc. An allocator may use the locks, the condition variable and kinlock_once: they
     never allocate, and take no lock of the C library. Exceptions, for a library that was loaded by
     dlopen: on aarch64, and where a shared library contains a static copy, a thread's first wait
     may allocate.
   - fork. In the child, locks that other threads held stay held. All other locks work, including
     those for which other threads waited, and the child holds the locks that the forking thread
     held. The functions named ..._reset_in_child make a lock free there. A child made by _Fork or
     clone runs no fork handlers: before Linux 4.14, or with pages of another size than 4 KiB, a
     lock for which threads of the parent waited may stay locked there.
   - exec, exit. Nothing to do. The shared library stays loaded after dlclose.
   - C++. No exception leaves a function. A function that the program passes must return, and not
     leave by an exception, longjmp, pthread_exit or cancellation. Otherwise the process ends, or
     the object stays in use forever.
   - Copies. Each copy of the library in a process has knobs and counters of its own. Objects made
     by ..._create belong to the copy that made them.

   WHAT HOLDS FOR ALL LOCKS, THE CONDITION VARIABLE AND kinlock_once_t

   - An object of zeros is ready for use: static, from calloc, or initialised with KINLOCK_..._INIT.
     There is no destroy function. Memory of an object that nobody uses may be freed or reused.
   - An object must not be copied or moved while it is in use. A copy of a lock that is held is
     another lock that is held, and that no thread will release. A copy of a free lock is a free
     lock, except that a copied reader-writer lock may be slower at first.
   - Objects must be aligned as their types are: to 4 bytes. Using a lock that is not aligned is
     undefined behaviour; on x86-64 a thread that has to wait for it ends the process with a
     message.
   - Passing a null pointer is undefined behaviour; the functions read through it, and the process
     usually ends by SIGSEGV.
   - Objects are private to the process. They do not work in memory that processes share, because
     waiters of other processes are not found.
   - Up to 64 copies of one version, static or shared, may use the same lock. docs/guide/copies.md
     says what holds for more, and for other versions.

   TIME

   A time limit is in nanoseconds, uint64_t. Functions named ..._for take a duration, and functions
   named ..._until a moment on CLOCK_MONOTONIC, as kinlock_now returns it. KINLOCK_FOREVER never
   comes. With a duration of 0, or a moment in the past, they try once. Setting the realtime clock
   changes nothing. A wait may last longer than its limit by the time that the scheduler takes to
   run the thread.

   COMPLEXITY AND MEMORY ORDER

   Taking a lock acquires what the previous holder's release published; the same holds for
   kinlock_once and its function. Without contention each function of a lock takes O(1) time: one
   atomic read-modify-write to take a mutex, and one to release it. A hand-off to a waiter takes
   O(1) transfers of cache lines. */

#ifndef KINLOCK_H
#define KINLOCK_H

#include <stddef.h>
#include <stdint.h>

/* ---- what compilers know --------------------------------------------------------------------- */

#ifdef __cplusplus
#define KINLOCK_NOEXCEPT noexcept
#else
#define KINLOCK_NOEXCEPT
#endif

#if defined(__GNUC__)
#define KINLOCK_MUST_CHECK __attribute__((warn_unused_result))
#else
#define KINLOCK_MUST_CHECK
#endif

/* Clang's thread safety analysis (-Wthread-safety). Define KINLOCK_NO_THREAD_SAFETY_ANALYSIS before
   the header is included to switch it off. */
#if defined(__clang__) && !defined(KINLOCK_NO_THREAD_SAFETY_ANALYSIS)
#define KINLOCK_ANALYSIS(attribute) __attribute__((attribute))
#else
#define KINLOCK_ANALYSIS(attribute)
#endif

/* Fails to compile unless `condition` holds, in C99 as well. */
#define KINLOCK_ASSERT(name, condition) typedef char kinlock_assert_##name[(condition) ? 1 : -1]

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version --------------------------------------------------------------------------------- */

#define KINLOCK_VERSION_MAJOR 0
#define KINLOCK_VERSION_MINOR 1
#define KINLOCK_VERSION_PATCH 0
/* The version as one number, which grows from version to version. */
#define KINLOCK_VERSION \
    (KINLOCK_VERSION_MAJOR * 1000000 + KINLOCK_VERSION_MINOR * 1000 + KINLOCK_VERSION_PATCH)
/* The number in libkinlock.so.1. It changes when programs must be compiled again. */
#define KINLOCK_ABI 1

/* The version of the library that the program runs with, as KINLOCK_VERSION. Signal handlers: yes.
   */
uint32_t kinlock_version(void) KINLOCK_NOEXCEPT;

/* The version of the library as text, such as "0.1.0". The text is constant. Signal handlers: yes.
   */
const char *kinlock_version_string(void) KINLOCK_NOEXCEPT;

/* Whether the library that the program runs with suits the header that it was compiled with:
   kinlock_version_check(KINLOCK_ABI, KINLOCK_VERSION). A program that loads the library by dlopen
   should ask first; for other programs the dynamic loader has checked the ABI.

   ENOTSUP: the library has another ABI, or is older than the header. */
KINLOCK_MUST_CHECK int kinlock_version_check(uint32_t abi, uint32_t version) KINLOCK_NOEXCEPT;

/* ---- time ------------------------------------------------------------------------------------ */

/* A time limit that never comes. */
#define KINLOCK_FOREVER UINT64_MAX

/* The time on CLOCK_MONOTONIC in nanoseconds. Signal handlers: yes. */
uint64_t kinlock_now(void) KINLOCK_NOEXCEPT;

/* ---- the mutex ------------------------------------------------------------------------------- */

/* The lock for most purposes. Waiters spin for a moment, then sleep. A lock that one thread takes
   again and again stays with it for a quantum (1 ms; see kinlock_set), then goes to the waiter at
   the front of the queue.

   Recursion: no. A thread that locks it again waits forever, or until its time limit.
   Released by another thread than took it: allowed.
   Freed: a thread that takes the lock after a release may free it, even if that
   kinlock_mutex_unlock has not returned yet. Not after kinlock_mutex_unlock_fair.
   Priority inheritance, robustness, sharing between processes: no.

   Waiting: the thread at the front of the queue gets the lock about once in two quanta at worst,
   plus critical sections; docs/guide/mutex.md has the bounds. */
typedef struct KINLOCK_ANALYSIS(capability("mutex")) {
    uint32_t kinlock_private;
} kinlock_mutex_t;

#define KINLOCK_MUTEX_INIT {0}

KINLOCK_ASSERT(mutex, sizeof(kinlock_mutex_t) == 4);

/* Takes the lock, and waits for it without a time limit. Returns 0. */
int kinlock_mutex_lock(kinlock_mutex_t *mutex) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(acquire_capability(*mutex));

/* Takes the lock if it is free, even if threads wait for it. EBUSY: it is held. */
KINLOCK_MUST_CHECK int kinlock_mutex_trylock(kinlock_mutex_t *mutex) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(try_acquire_capability(0, *mutex));

/* Takes the lock, waiting for `nanos` nanoseconds at most. ETIMEDOUT: it was held until then. */
KINLOCK_MUST_CHECK int kinlock_mutex_lock_for(kinlock_mutex_t *mutex, uint64_t nanos)
    KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(try_acquire_capability(0, *mutex));

/* Takes the lock, waiting until `deadline` at most, a moment as kinlock_now returns it. ETIMEDOUT:
   it was held until then. */
KINLOCK_MUST_CHECK int kinlock_mutex_lock_until(kinlock_mutex_t *mutex, uint64_t deadline)
    KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(try_acquire_capability(0, *mutex));

/* Releases the lock, which must be held. Returns 0. Releasing a free lock is undefined. */
int kinlock_mutex_unlock(kinlock_mutex_t *mutex) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(release_capability(*mutex));

/* Releases the lock. If threads wait, the caller then waits until one of them has the lock, for 250
   us at most. The memory must not be freed before this function returns. Returns 0. */
int kinlock_mutex_unlock_fair(kinlock_mutex_t *mutex) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(release_capability(*mutex));

/* Whether some thread holds the lock at this moment: 1 or 0. For assertions and statistics. */
int kinlock_mutex_is_locked(const kinlock_mutex_t *mutex) KINLOCK_NOEXCEPT;

/* In the child of a fork: makes the lock free, whatever its state. No other thread may be using it,
   and no thread may rely on holding it. */
void kinlock_mutex_reset_in_child(kinlock_mutex_t *mutex) KINLOCK_NOEXCEPT;

/* ---- the condition variable ------------------------------------------------------------------ */

/* Waiting for a condition under a kinlock_mutex_t.

   All threads that wait at the same time must use the same mutex; later waiters may use another.
   A wait may return without a notification: check the condition in a loop.
   Freed: once all waits have returned and no notification is under way. The last waiter may free it
   once it holds the mutex again, if all notifiers hold that mutex while they notify.
   A notifier need not hold the mutex. If it changes the condition under the mutex before it
   notifies, no waiter misses the change. */
typedef struct {
    uint32_t kinlock_private[2];
} kinlock_cond_t;

#define KINLOCK_COND_INIT \
    { \
        {0, 0} \
    }

KINLOCK_ASSERT(cond, sizeof(kinlock_cond_t) == 8);

/* Releases the mutex, which the caller must hold, waits for a notification, and takes the mutex
   again. Returns 0, even if there was no notification. Signal handlers: no. */
int kinlock_cond_wait(kinlock_cond_t *cond, kinlock_mutex_t *mutex) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(requires_capability(*mutex));

/* Waits for `nanos` nanoseconds at most. The limit does not cover taking the mutex again, which the
   caller holds in any case.

   ETIMEDOUT: the time was up, and this waiter has consumed no notification. The caller holds the
   mutex nevertheless. */
int kinlock_cond_wait_for(kinlock_cond_t *cond, kinlock_mutex_t *mutex, uint64_t nanos)
    KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(requires_capability(*mutex));

/* Waits as kinlock_cond_wait_for, but until `deadline`, a moment as kinlock_now returns it.
   ETIMEDOUT. */
int kinlock_cond_wait_until(kinlock_cond_t *cond, kinlock_mutex_t *mutex, uint64_t deadline)
    KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(requires_capability(*mutex));

/* Wakes at least one waiter, if there is any. Costs a load if no thread waits. Returns 0. */
int kinlock_cond_signal(kinlock_cond_t *cond) KINLOCK_NOEXCEPT;

/* Wakes all waiters: up to 256 at once, and the others as the mutex is released. Takes O(waiters)
   time in the kernel. Returns 0. */
int kinlock_cond_broadcast(kinlock_cond_t *cond) KINLOCK_NOEXCEPT;

/* ---- the reader-writer lock ------------------------------------------------------------------ */

/* One writer, or any number of readers, of which one may be upgradable.

   If readers get into each other's way, the lock becomes read-biased: then readers write to no
   shared cache line, and the next writer takes longer. Neither side starves; docs/guide/rwlock.md
   has the bounds.

   Recursion: a thread that reads may read again by kinlock_rwlock_read_lock_recursive, which passes
   waiting writers. With the plain function it may wait behind a writer forever.
   Released by another thread than took it: allowed. After such a release of a read lock, do not use
   the lock in the child of a fork.
   Freed right after a release: allowed to a thread that has taken the lock for writing after that,
   unless threads release each other's read locks.
   Limit: 1,048,575 holders. A further reader, upgradable or not, does not wait: it gets EAGAIN, or
   EBUSY if it only tries.
   There is one release function for each way in which the lock is held. */
typedef struct KINLOCK_ANALYSIS(capability("mutex")) {
    uint32_t kinlock_private[2];
} kinlock_rwlock_t;

#define KINLOCK_RWLOCK_INIT \
    { \
        {0, 0} \
    }

KINLOCK_ASSERT(rwlock, sizeof(kinlock_rwlock_t) == 8);

/* Takes the lock for reading. Returns 0. EAGAIN: the limit on holders is reached. */
int kinlock_rwlock_read_lock(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(acquire_shared_capability(*lock));

/* Takes the lock for reading if that is possible at once. EBUSY: it is held for writing, or it is a
   writer's turn. */
KINLOCK_MUST_CHECK int kinlock_rwlock_read_trylock(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(try_acquire_shared_capability(0, *lock));

/* Takes the lock for reading, waiting for `nanos` nanoseconds at most. ETIMEDOUT, EAGAIN. */
KINLOCK_MUST_CHECK int kinlock_rwlock_read_lock_for(kinlock_rwlock_t *lock, uint64_t nanos)
    KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(try_acquire_shared_capability(0, *lock));

/* Takes the lock for reading, waiting until `deadline` at most. ETIMEDOUT, EAGAIN. */
KINLOCK_MUST_CHECK int kinlock_rwlock_read_lock_until(kinlock_rwlock_t *lock, uint64_t deadline)
    KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(try_acquire_shared_capability(0, *lock));

/* As the four functions above, but for a thread that may read already: they pass waiting writers.
   */
int kinlock_rwlock_read_lock_recursive(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(acquire_shared_capability(*lock));
KINLOCK_MUST_CHECK int kinlock_rwlock_read_trylock_recursive(kinlock_rwlock_t *lock)
    KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(try_acquire_shared_capability(0, *lock));
KINLOCK_MUST_CHECK int kinlock_rwlock_read_lock_recursive_for(kinlock_rwlock_t *lock,
                                                              uint64_t nanos) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(try_acquire_shared_capability(0, *lock));
KINLOCK_MUST_CHECK int kinlock_rwlock_read_lock_recursive_until(kinlock_rwlock_t *lock,
                                                                uint64_t deadline) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(try_acquire_shared_capability(0, *lock));

/* Ends reading. Returns 0. One release too many ends the reading of another thread, if there is
   one. */
int kinlock_rwlock_read_unlock(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(release_shared_capability(*lock));

/* Ends reading. If a writer sleeps at the front of the queue, no reader enters before it. Returns
   0. */
int kinlock_rwlock_read_unlock_fair(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(release_shared_capability(*lock));

/* Takes the lock for writing. Returns 0. */
int kinlock_rwlock_write_lock(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(acquire_capability(*lock));

/* Takes the lock for writing if that is possible at once. EBUSY: it is held, or it is the turn of a
   waiting writer. */
KINLOCK_MUST_CHECK int kinlock_rwlock_write_trylock(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(try_acquire_capability(0, *lock));

/* Takes the lock for writing, waiting for `nanos` nanoseconds at most. ETIMEDOUT. */
KINLOCK_MUST_CHECK int kinlock_rwlock_write_lock_for(kinlock_rwlock_t *lock, uint64_t nanos)
    KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(try_acquire_capability(0, *lock));

/* Takes the lock for writing, waiting until `deadline` at most. ETIMEDOUT. */
KINLOCK_MUST_CHECK int kinlock_rwlock_write_lock_until(kinlock_rwlock_t *lock, uint64_t deadline)
    KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(try_acquire_capability(0, *lock));

/* Ends writing. Returns 0. */
int kinlock_rwlock_write_unlock(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(release_capability(*lock));

/* Ends writing. Threads that wait get the lock before others. Returns 0. */
int kinlock_rwlock_write_unlock_fair(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(release_capability(*lock));

/* Change from writing to reading, or to upgradable reading. No writer comes in between. Return 0.
   The thread safety analysis cannot express this change, and still takes the lock as held for
   writing. */
int kinlock_rwlock_downgrade(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT;
int kinlock_rwlock_downgrade_to_upgradable(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT;

/* Takes the lock for upgradable reading: together with readers, but without writers and other
   upgradable readers. The four functions return what the functions for reading return. */
int kinlock_rwlock_upgradable_lock(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(acquire_shared_capability(*lock));
KINLOCK_MUST_CHECK int kinlock_rwlock_upgradable_trylock(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(try_acquire_shared_capability(0, *lock));
KINLOCK_MUST_CHECK int kinlock_rwlock_upgradable_lock_for(kinlock_rwlock_t *lock, uint64_t nanos)
    KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(try_acquire_shared_capability(0, *lock));
KINLOCK_MUST_CHECK int kinlock_rwlock_upgradable_lock_until(kinlock_rwlock_t *lock,
                                                            uint64_t deadline) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(try_acquire_shared_capability(0, *lock));

/* End upgradable reading. The second function does so as kinlock_rwlock_read_unlock_fair. Return 0.
   */
int kinlock_rwlock_upgradable_unlock(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(release_shared_capability(*lock));
int kinlock_rwlock_upgradable_unlock_fair(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(release_shared_capability(*lock));

/* Changes from upgradable reading to reading. Returns 0. */
int kinlock_rwlock_upgradable_downgrade(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT;

/* Change from upgradable reading to writing, once all other readers have left. No writer comes in
   between. If readers are left, kinlock_rwlock_tryupgrade returns EBUSY, and the functions with a
   time limit return ETIMEDOUT; the caller is then still an upgradable reader. */
int kinlock_rwlock_upgrade(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT;
KINLOCK_MUST_CHECK int kinlock_rwlock_tryupgrade(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT;
KINLOCK_MUST_CHECK int kinlock_rwlock_upgrade_for(kinlock_rwlock_t *lock, uint64_t nanos)
    KINLOCK_NOEXCEPT;
KINLOCK_MUST_CHECK int kinlock_rwlock_upgrade_until(kinlock_rwlock_t *lock, uint64_t deadline)
    KINLOCK_NOEXCEPT;

/* Whether the lock is held in any way at this moment: 1 or 0. */
int kinlock_rwlock_is_locked(const kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT;

/* As kinlock_mutex_reset_in_child. */
void kinlock_rwlock_reset_in_child(kinlock_rwlock_t *lock) KINLOCK_NOEXCEPT;

/* ---- the spinlock ---------------------------------------------------------------------------- */

/* For very short critical sections. Waiters queue, spin for a while, and then sleep. The order is
   first in, first out; with several NUMA nodes, waiters of the holder's node go first for 10 ms at
   most.

   Recursion: no. Released by another thread than took it: allowed. Freed right after a release: NO.
   The release of the previous holder may still read the memory when another thread has the lock.
   Use the mutex if memory is freed in that way. */
typedef struct KINLOCK_ANALYSIS(capability("spinlock")) {
    uint32_t kinlock_private;
} kinlock_spin_t;

#define KINLOCK_SPIN_INIT {0}

KINLOCK_ASSERT(spin, sizeof(kinlock_spin_t) == 4);

/* As the functions of the mutex with these names. */
int kinlock_spin_lock(kinlock_spin_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(acquire_capability(*lock));
KINLOCK_MUST_CHECK int kinlock_spin_trylock(kinlock_spin_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(try_acquire_capability(0, *lock));
KINLOCK_MUST_CHECK int kinlock_spin_lock_for(kinlock_spin_t *lock, uint64_t nanos) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(try_acquire_capability(0, *lock));
KINLOCK_MUST_CHECK int kinlock_spin_lock_until(kinlock_spin_t *lock, uint64_t deadline)
    KINLOCK_NOEXCEPT KINLOCK_ANALYSIS(try_acquire_capability(0, *lock));
int kinlock_spin_unlock(kinlock_spin_t *lock) KINLOCK_NOEXCEPT
    KINLOCK_ANALYSIS(release_capability(*lock));
int kinlock_spin_is_locked(const kinlock_spin_t *lock) KINLOCK_NOEXCEPT;
void kinlock_spin_reset_in_child(kinlock_spin_t *lock) KINLOCK_NOEXCEPT;

/* ---- once ------------------------------------------------------------------------------------ */

/* Runs a function once. Freed: once no call is under way; a call that has returned no longer
   touches it. */
typedef struct {
    uint32_t kinlock_private;
} kinlock_once_t;

#define KINLOCK_ONCE_INIT {0}

KINLOCK_ASSERT(once, sizeof(kinlock_once_t) == 4);

/* Calls function(argument) unless a function has returned for this object, and waits for a function
   that is running. Returns 0 when the function has returned, whichever thread called it. Later
   calls cost one load. A function that calls kinlock_once for the same object waits forever. In the
   child of a fork, a function that another thread was running never ends. */
int kinlock_once(kinlock_once_t *once, void (*function)(void *), void *argument);

/* Whether a function has returned: 1 or 0. If so, the caller sees what it did. */
int kinlock_once_is_done(const kinlock_once_t *once) KINLOCK_NOEXCEPT;

/* ---- knobs and statistics -------------------------------------------------------------------- */

/* Sets a knob for all operations of this copy of the library: kinlock_set("KINLOCK_QUANTUM",
   "fair"). Names and values are those of the environment variables in docs/guide/knobs.md, which
   the library reads before main: KINLOCK_NUMA, KINLOCK_LOCAL_LIMIT, KINLOCK_STEALING,
   KINLOCK_QUANTUM, KINLOCK_SLICE_EXTENSION and KINLOCK_DOMAIN; the last does not take "auto" here.
   This function overrides the environment.

   ENOENT: there is no such knob, or it is only in the environment. EINVAL: the knob has no such
   value. EBUSY (KINLOCK_DOMAIN): locks use the domains already. */
KINLOCK_MUST_CHECK int kinlock_set(const char *name, const char *value) KINLOCK_NOEXCEPT;

/* Starts (1) or stops (0) counting what locks do when they are contended, over all operations of
   this copy of the library. Counting is off at first; then a contended operation costs one more
   load per event. An uncontended operation is never counted. */
void kinlock_stats_enable(int on) KINLOCK_NOEXCEPT;

/* How many counters there are. Later versions may add more at the end. */
size_t kinlock_stats_count(void) KINLOCK_NOEXCEPT;

/* Copies the name of counter `index`, such as "park", to `buffer`, which has `size` bytes.

   EINVAL: there is no such counter. ERANGE: the buffer is too small; 32 bytes suffice. */
KINLOCK_MUST_CHECK int kinlock_stats_name(size_t index, char *buffer, size_t size) KINLOCK_NOEXCEPT;

/* Writes the first `count` counters to `values`, or all, if there are fewer. Returns how many it
   has written. The numbers may be of different moments, because other threads may count at the same
   time. */
size_t kinlock_stats_read(uint64_t *values, size_t count) KINLOCK_NOEXCEPT;

/* ---- topology -------------------------------------------------------------------------------- */

/* Where the calling thread ran a moment ago: the number of the CPU, of its NUMA node, and of the
   lowest CPU that shares its last-level cache. -1: unknown. It may run elsewhere by now.

   kinlock_cpu costs a few loads, or a function call without a system call if the C library does not
   register restartable sequences; signal handlers may call it. The others read the topology at
   their first call, which allocates and takes a millisecond; later calls cost a few more loads than
   kinlock_cpu. Signal handlers may call them after that. CPUs that are plugged in later are
   unknown. */
int kinlock_cpu(void) KINLOCK_NOEXCEPT;
int kinlock_node(void) KINLOCK_NOEXCEPT;
int kinlock_cache(void) KINLOCK_NOEXCEPT;

/* How many CPUs' time the process may use now: on how many CPUs its threads may run, or how many
   the quotas of its control groups allow, rounded up, if that is less. At least 1. Each call asks
   anew, which takes a system call per thread and reads some files. Signal handlers: yes. */
uint32_t kinlock_usable_cpus(void) KINLOCK_NOEXCEPT;

/* ---- concurrency IDs ------------------------------------------------------------------------- */

/* A concurrency ID is a small number that no other thread has at the same moment. A process with
   four threads on a machine with 384 CPUs uses IDs 0 to 3. An ID indexes data that need no lock. A
   domain is a group of threads among which IDs are unique. docs/guide/ids.md explains more.

   All functions here may be called by any thread, but objects must be destroyed by one thread while
   no other uses them, and before their domain is destroyed. Functions named ..._destroy accept a
   null pointer. Functions named ..._create write the new object to *result, and return

     0, or ENOMEM: no memory or address space for the data of the IDs; EINVAL: an argument is out of
     range.

   If there is no memory for the object itself, some hundred bytes, the process ends with a message.

   In the child of a fork, counters and domains work. Data of an ID that another thread was changing
   may be half changed. A stack or an area that another thread was using must not be used there. */
typedef struct kinlock_ids kinlock_ids_t;

/* How threads get IDs. Restartable: the kernel allocates them (Linux 6.3 or later, x86-64 and
   aarch64), and nothing is held. Lease: this library allocates them, and a thread holds one between
   kinlock_ids_enter and kinlock_ids_leave. */
#define KINLOCK_IDS_ANY 0
#define KINLOCK_IDS_RESTARTABLE 1
#define KINLOCK_IDS_LEASE 2

/* Makes a domain. With KINLOCK_IDS_ANY it is restartable if that is possible and `max_ids` is 0.
   `max_ids`: at least this many IDs can be held at a time; 0 means eight for each CPU, but at least
   256. Only leases have a choice.

   ENOTSUP: restartable was asked for and is not possible. EINVAL: no such backend, or a number of
   IDs that is too large or was given for a restartable domain. EAGAIN: 2147483647 domains were
   made. ENOMEM. */
KINLOCK_MUST_CHECK int kinlock_ids_create(kinlock_ids_t **result, int backend, uint32_t max_ids)
    KINLOCK_NOEXCEPT;
void kinlock_ids_destroy(kinlock_ids_t *ids) KINLOCK_NOEXCEPT;

/* KINLOCK_IDS_RESTARTABLE or KINLOCK_IDS_LEASE. */
int kinlock_ids_backend(const kinlock_ids_t *ids) KINLOCK_NOEXCEPT;

/* All IDs are below this number. */
uint32_t kinlock_ids_max(const kinlock_ids_t *ids) KINLOCK_NOEXCEPT;

/* The ID with which the calling thread ran a moment ago, in a restartable domain. Good for
   statistics only, since the thread may have another ID by now. -1: the domain has leases, or the
   thread has no ID. */
int64_t kinlock_ids_momentary(const kinlock_ids_t *ids) KINLOCK_NOEXCEPT;

/* An ID that a thread holds. Read `id`; the rest is the library's. It must not be copied. */
typedef struct {
    uint64_t kinlock_private[2];
    uint32_t id;
    uint32_t kinlock_reserved;
} kinlock_lease_t;

KINLOCK_ASSERT(lease, sizeof(kinlock_lease_t) == 24);

/* Acquires an ID; the caller sees what earlier holders of this ID did. Lock-free. A thread's first
   call may allocate; after that a signal handler may call it. A thread may hold several IDs.

   EAGAIN: all IDs are held. ENOTSUP: the domain is restartable. ESRCH: the thread is in its last
   destructors. */
KINLOCK_MUST_CHECK int kinlock_ids_enter(const kinlock_ids_t *ids, kinlock_lease_t *lease)
    KINLOCK_NOEXCEPT;

/* Gives the ID back, on the thread that has acquired it. An ID that a thread forgets is given back
   when it ends. */
void kinlock_ids_leave(kinlock_lease_t *lease) KINLOCK_NOEXCEPT;

/* A counter with a separate part for each ID, so that additions need no locked instruction.
   Additions wrap at 2^64, none is lost, and they order nothing else. Signal handlers may add, once
   the thread has added to a counter of that domain. */
typedef struct kinlock_counter kinlock_counter_t;

KINLOCK_MUST_CHECK int kinlock_counter_create(const kinlock_ids_t *ids, kinlock_counter_t **result)
    KINLOCK_NOEXCEPT;
void kinlock_counter_destroy(kinlock_counter_t *counter) KINLOCK_NOEXCEPT;

/* Adds `n`. O(1): a restartable sequence, or entering, a load, a store and leaving. On x86-64 this
   is also an inline function, which calls the library only if there is no sequence. Define
   KINLOCK_NO_INLINE before the header is included to always call the library: with the option
   -masm=intel, which the sequence is not written for, or to step through with a debugger, since a
   single step inside a sequence makes it start again, forever. With clang before version 9, which
   lacks `asm goto`, the library is always called, too. */
void kinlock_counter_add(kinlock_counter_t *counter, uint64_t n) KINLOCK_NOEXCEPT;

/* The first fields of a counter. They never change within one ABI. */
struct kinlock_counter_parts {
    /* The distance from the thread pointer to the memory that the kernel shares with the thread
       (struct rseq); 0: there is no sequence. */
    intptr_t area;
    /* The word of ID 0. Words of neighbouring IDs are 1 << 17 bytes apart. */
    unsigned char *base;
    uint32_t limit;
    uint32_t shift;
};

#if defined(__clang__) && __clang_major__ < 9 && !defined(KINLOCK_NO_INLINE)
#define KINLOCK_NO_INLINE
#endif

#if defined(__x86_64__) && defined(__LP64__) && defined(__linux__) && defined(__GNUC__) && \
    !defined(KINLOCK_NO_INLINE)
/* Restartable: if the thread is preempted, migrated or signalled between 22 and 33, the kernel
   makes it go on at 44. The last instruction adds, so a plain addition suffices. The area has at
   offset 4 the CPU, negative if the thread is not registered; at 8 the sequence that is under way;
   at 24 the ID. The flag `?` makes the sections members of the function's group, so that a linker
   drops them together. Every way out clears the pointer to the sequence. Otherwise the kernel would
   read through it later, when the object that contains the sequence may have been unloaded. */
__attribute__((unused, always_inline)) static inline void
kinlock_counter_add_inline(kinlock_counter_t *counter, uint64_t n) KINLOCK_NOEXCEPT
{
    const struct kinlock_counter_parts *parts = (const struct kinlock_counter_parts *)counter;
    const intptr_t area = parts->area;
    if (__builtin_expect(area != 0, 1)) {
        __asm__ __volatile__ goto(
            ".pushsection __rseq_cs, \"aw?\", @progbits\n\t"
            ".balign 32\n"
            "77:\n\t"
            ".long 0, 0\n\t"
            ".quad 22f, 33f - 22f, 44f\n\t"
            ".popsection\n\t"
            ".pushsection __rseq_cs_ptr_array, \"aw?\", @progbits\n\t"
            ".quad 77b\n\t"
            ".popsection\n\t"
            ".pushsection __rseq_exit_point_array, \"aw?\", @progbits\n\t"
            ".quad 22f, 33f\n\t"
            ".popsection\n"
            "55:\n\t"
            "leaq 77b(%%rip), %%rax\n\t"
            "movq %%rax, %%fs:8(%[area])\n"
            "22:\n\t"
            "cmpl $0, %%fs:4(%[area])\n\t"
            "jl %l[otherwise]\n\t"
            "movl %%fs:24(%[area]), %%eax\n\t"
            "cmpl 16(%[parts]), %%eax\n\t"
            "jae %l[otherwise]\n\t"
            "shlq $17, %%rax\n\t"
            "addq 8(%[parts]), %%rax\n\t"
            "addq %[n], (%%rax)\n"
            "33:\n\t"
            "movq $0, %%fs:8(%[area])\n\t"
            ".pushsection __rseq_failure, \"ax?\", @progbits\n\t"
            ".byte 0x0f, 0xb9, 0x3d\n\t"
            ".long 0x53053053\n"
            "44:\n\t"
            "jmp 55b\n\t"
            ".popsection"
            :
            : [area] "r"(area), [parts] "r"(parts), [n] "r"(n)
            : "rax", "cc", "memory"
            : otherwise);
        return;
    otherwise:
        __asm__ __volatile__("movq $0, %%fs:8(%[area])" : : [area] "r"(area) : "memory");
    }
    kinlock_counter_add(counter, n);
}

#define kinlock_counter_add(counter, n) kinlock_counter_add_inline(counter, n)
#endif

/* Adds under a lease that the calling thread holds: a load and a store. With a lease of another
   domain it does what kinlock_counter_add does. */
void kinlock_counter_add_with(kinlock_counter_t *counter, const kinlock_lease_t *lease, uint64_t n)
    KINLOCK_NOEXCEPT;

/* The sum of all additions that happened before, and of some that happen at the same time.
   O(kinlock_ids_max). Signal handlers: yes. */
uint64_t kinlock_counter_sum(const kinlock_counter_t *counter) KINLOCK_NOEXCEPT;

/* Several counters side by side: each takes eight bytes per ID, where a single counter takes 128.
   kinlock_counters_add and kinlock_counters_sum return EINVAL if there is no counter `index`. */
typedef struct kinlock_counters kinlock_counters_t;

KINLOCK_MUST_CHECK int kinlock_counters_create(const kinlock_ids_t *ids, size_t count,
                                               kinlock_counters_t **result) KINLOCK_NOEXCEPT;
void kinlock_counters_destroy(kinlock_counters_t *counters) KINLOCK_NOEXCEPT;
int kinlock_counters_add(kinlock_counters_t *counters, size_t index, uint64_t n) KINLOCK_NOEXCEPT;
int kinlock_counters_sum(const kinlock_counters_t *counters, size_t index, uint64_t *sum)
    KINLOCK_NOEXCEPT;

/* `size` bytes of zeros for each ID, aligned to 128 bytes, made at the ID's first use. EINVAL: the
   size is 0. */
typedef struct kinlock_area kinlock_area_t;

KINLOCK_MUST_CHECK int kinlock_area_create(const kinlock_ids_t *ids, size_t size,
                                           kinlock_area_t **result) KINLOCK_NOEXCEPT;
void kinlock_area_destroy(kinlock_area_t *area) KINLOCK_NOEXCEPT;

/* Calls function(memory, argument) with the memory of the calling thread's ID, or with spare memory
   if that is in use. A single memory means nothing, only all of them together. While the function
   runs, no other thread gets that memory; the next thread sees what the function did. Allocates at
   the first use of the memory, and ends the process if there is no memory. O(1). Signal handlers:
   no. */
void kinlock_area_with(kinlock_area_t *area, void (*function)(void *memory, void *argument),
                       void *argument);

/* Calls function(memory, argument) with each memory that was made. Threads may be using it at the
   same time: then both sides have to use atomic accesses, or a lock. O(kinlock_ids_max). */
void kinlock_area_each(kinlock_area_t *area, void (*function)(void *memory, void *argument),
                       void *argument);

/* A stack of pointers: last in, first out for each ID. A thread whose list is empty takes over the
   list of another ID. A popped null pointer cannot be told from an empty stack. Signal handlers:
   no. */
typedef struct kinlock_stack kinlock_stack_t;

KINLOCK_MUST_CHECK int kinlock_stack_create(const kinlock_ids_t *ids, kinlock_stack_t **result)
    KINLOCK_NOEXCEPT;
/* Forgets the pointers on the stack. */
void kinlock_stack_destroy(kinlock_stack_t *stack) KINLOCK_NOEXCEPT;
/* Allocates a node, and ends the process if there is no memory. O(1). */
void kinlock_stack_push(kinlock_stack_t *stack, void *pointer) KINLOCK_NOEXCEPT;
/* NULL: each list was, at some moment of the call, empty or being taken over. O(1), or
   O(kinlock_ids_max) and a membarrier if it takes over a list. */
void *kinlock_stack_pop(kinlock_stack_t *stack) KINLOCK_NOEXCEPT;

/* ---- delayed invalidation -------------------------------------------------------------------- */

/* Removing many things now, one by one, and invalidating all of them later in one batch. A thread
   that removes opens a section, tags what it removes, invalidates the batch and ends the section. A
   thread that wants to reuse a thing waits until its tag has passed: until all sections that may
   cover it have ended, and not for later ones. docs/guide/invalidation.md explains more.

   In the child of a fork only the calling thread's sections are open. Signal handlers: no, except
   for kinlock_invalidation_passed. */
typedef struct kinlock_invalidation kinlock_invalidation_t;

/* Stored with each thing. A tag of zeros has passed. A tag belongs to one domain. */
typedef struct {
    uint64_t kinlock_private;
} kinlock_tag_t;

#define KINLOCK_TAG_INIT {0}

/* An open section, in memory of the thread that has opened it. Read `generation`; the rest is the
   library's. It must not be copied or moved. */
typedef struct {
    uint64_t kinlock_private[3];
    uint64_t generation;
} kinlock_section_t;

KINLOCK_ASSERT(tag, sizeof(kinlock_tag_t) == 8);
KINLOCK_ASSERT(section, sizeof(kinlock_section_t) == 32);

/* Makes a domain: a group of related sections. Returns 0. Ends the process if there is no memory.
   */
KINLOCK_MUST_CHECK int kinlock_invalidation_create(kinlock_invalidation_t **result)
    KINLOCK_NOEXCEPT;
/* Destroys the domain. No section may be open in it, and no thread may wait. Accepts a null
   pointer. */
void kinlock_invalidation_destroy(kinlock_invalidation_t *domain) KINLOCK_NOEXCEPT;

/* Opens a section. Sections of one thread in one domain may nest; they count as one, which ends
   with the outermost. A thread that ends with a section open ends the process with a message.

   EAGAIN: 8191 living threads have opened sections, or no pthread key is left. EOVERFLOW: the
   domain's generations are used up. ESRCH: the thread is in its last destructors. EPERM: another
   copy of the library has made the domain. */
KINLOCK_MUST_CHECK int kinlock_invalidation_begin(kinlock_invalidation_t *domain,
                                                  kinlock_section_t *section) KINLOCK_NOEXCEPT;

/* Ends the section, on the thread that opened it. Wakes the threads that waited only for this
   section. */
void kinlock_invalidation_end(kinlock_section_t *section) KINLOCK_NOEXCEPT;

/* Stamps the tag: it passes when this section and all older ones have ended. Must be called under
   the lock under which the thing becomes free. O(1). */
void kinlock_invalidation_tag(const kinlock_section_t *section, kinlock_tag_t *tag)
    KINLOCK_NOEXCEPT;

/* Whether the tag has passed: 1 or 0. If so, the caller sees what the sections did. O(1). */
int kinlock_invalidation_passed(const kinlock_invalidation_t *domain, const kinlock_tag_t *tag)
    KINLOCK_NOEXCEPT;

/* Waits until the tag has passed. The thread must hold no lock that a section takes.

   EDEADLK: the calling thread has a section of the domain open. EINVAL: the tag belongs to another
   domain, if that is noticed. EPERM: as above. The second function also ETIMEDOUT. */
KINLOCK_MUST_CHECK int kinlock_invalidation_wait(const kinlock_invalidation_t *domain,
                                                 const kinlock_tag_t *tag) KINLOCK_NOEXCEPT;
KINLOCK_MUST_CHECK int kinlock_invalidation_wait_for(const kinlock_invalidation_t *domain,
                                                     const kinlock_tag_t *tag, uint64_t nanos)
    KINLOCK_NOEXCEPT;

/* Waits until all sections that are open now have ended. Errors as above. */
KINLOCK_MUST_CHECK int kinlock_invalidation_wait_all(const kinlock_invalidation_t *domain)
    KINLOCK_NOEXCEPT;

/* What kinlock_invalidation_dump says about an open section. */
typedef struct {
    /* The generation with which the section began; 0 while it begins. */
    uint64_t generation;
    /* The generation that passes with the section: later sections that have ended have donated
       theirs. */
    uint64_t current;
    /* For how long the section has been open, in nanoseconds, accurate to some milliseconds. */
    uint64_t age;
    /* The kernel's number of its thread. */
    uint32_t thread;
} kinlock_open_section_t;

KINLOCK_ASSERT(open_section, sizeof(kinlock_open_section_t) == 32);

/* Calls function(argument, open) for each open section, the oldest first. The sections may be seen
   at different moments. Allocates. O(threads that have opened sections). */
void kinlock_invalidation_dump(const kinlock_invalidation_t *domain,
                               void (*function)(void *argument, const kinlock_open_section_t *open),
                               void *argument);

#ifdef __cplusplus
}
#endif

/* ---- ThreadSanitizer ------------------------------------------------------------------------- */

/* ThreadSanitizer does not see into the library. This header tells it what the functions do. */
#if defined(__SANITIZE_THREAD__)
#define KINLOCK_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KINLOCK_TSAN 1
#endif
#endif
#ifdef KINLOCK_TSAN
#include "kinlock_tsan.h"
#endif

#endif
