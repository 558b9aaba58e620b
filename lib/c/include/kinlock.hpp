/* SPDX-License-Identifier: MIT OR Apache-2.0

   kinlock for C++11 and later: classes for std::lock_guard, std::unique_lock and, from C++14 on,
   std::shared_lock. kinlock.h is the reference; each class has what it says of the C type.

   All classes are standard-layout, as large as the C type, and have constexpr constructors, so that
   static objects are ready before any code runs. They can be neither copied nor moved. Nothing
   throws, but for what functions of the program throw that are called here. */

#ifndef KINLOCK_HPP
#define KINLOCK_HPP

#include "kinlock.h"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <type_traits>
#include <utility>

namespace kinlock {

namespace detail {

using approximate = std::chrono::duration<double, std::nano>;

/* A duration as a time limit: at least as long, and 0 if it is negative. Compared as floating-point
   numbers first, since a conversion of a long one to nanoseconds would overflow. */
template <class Rep, class Period>
std::uint64_t nanos(const std::chrono::duration<Rep, Period> &limit)
{
    const double about = std::chrono::duration_cast<approximate>(limit).count();
    /* Centuries. */
    if (about >= 9.0e18) {
        return KINLOCK_FOREVER;
    }
    /* Also if it is not a number. */
    if (!(about > 0)) {
        return 0;
    }
    auto whole = std::chrono::duration_cast<std::chrono::nanoseconds>(limit);
    if (whole < limit) {
        whole += std::chrono::nanoseconds(1);
    }
    return static_cast<std::uint64_t>(whole.count());
}

/* How long until a moment. For clocks other than steady_clock, as that clock stands now. The
   difference of two moments may overflow, too, and so may a comparison. */
template <class Clock, class Duration>
std::uint64_t until(const std::chrono::time_point<Clock, Duration> &moment)
{
    const auto now = Clock::now();
    const double about =
        (std::chrono::duration_cast<approximate>(moment.time_since_epoch()) -
         std::chrono::duration_cast<approximate>(now.time_since_epoch()))
            .count();
    if (about >= 9.0e18) {
        return KINLOCK_FOREVER;
    }
    /* Rounded; the difference of close moments is exact below. */
    if (!(about > -1.0e9)) {
        return 0;
    }
    return nanos(moment - now);
}

/* Calls `attempt` with what is left until `moment`, for as long as it says that the time is up and
   the clock says that it is not: a clock that is set makes the two differ. */
template <class Clock, class Duration, class Attempt>
bool before(const std::chrono::time_point<Clock, Duration> &moment, Attempt attempt)
{
    int result;
    do {
        result = attempt(until(moment));
    } while (result == ETIMEDOUT && until(moment) > 0);
    return result == 0;
}

} // namespace detail

/* TimedLockable. */
class KINLOCK_ANALYSIS(capability("mutex")) mutex {
public:
    using native_handle_type = kinlock_mutex_t *;

    constexpr mutex() noexcept : lock_ KINLOCK_MUTEX_INIT {}
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    void lock() noexcept KINLOCK_ANALYSIS(acquire_capability())
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        kinlock_mutex_lock(&lock_);
    }

    bool try_lock() noexcept KINLOCK_ANALYSIS(try_acquire_capability(true))
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        return kinlock_mutex_trylock(&lock_) == 0;
    }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &limit)
        KINLOCK_ANALYSIS(try_acquire_capability(true)) KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        return kinlock_mutex_lock_for(&lock_, detail::nanos(limit)) == 0;
    }

    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &moment)
        KINLOCK_ANALYSIS(try_acquire_capability(true)) KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        return detail::before(moment, [this](std::uint64_t left) {
            return kinlock_mutex_lock_for(&lock_, left);
        });
    }

    void unlock() noexcept KINLOCK_ANALYSIS(release_capability())
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        kinlock_mutex_unlock(&lock_);
    }

    /* See kinlock_mutex_unlock_fair. */
    void unlock_fair() noexcept KINLOCK_ANALYSIS(release_capability())
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        kinlock_mutex_unlock_fair(&lock_);
    }

    native_handle_type native_handle() noexcept { return &lock_; }

private:
    kinlock_mutex_t lock_;
};

/* TimedLockable. Its memory must outlive every unlock: see kinlock_spin_t. */
class KINLOCK_ANALYSIS(capability("spinlock")) spinlock {
public:
    using native_handle_type = kinlock_spin_t *;

    constexpr spinlock() noexcept : lock_ KINLOCK_SPIN_INIT {}
    spinlock(const spinlock &) = delete;
    spinlock &operator=(const spinlock &) = delete;

    void lock() noexcept KINLOCK_ANALYSIS(acquire_capability())
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        kinlock_spin_lock(&lock_);
    }

    bool try_lock() noexcept KINLOCK_ANALYSIS(try_acquire_capability(true))
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        return kinlock_spin_trylock(&lock_) == 0;
    }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &limit)
        KINLOCK_ANALYSIS(try_acquire_capability(true)) KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        return kinlock_spin_lock_for(&lock_, detail::nanos(limit)) == 0;
    }

    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &moment)
        KINLOCK_ANALYSIS(try_acquire_capability(true)) KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        return detail::before(moment, [this](std::uint64_t left) {
            return kinlock_spin_lock_for(&lock_, left);
        });
    }

    void unlock() noexcept KINLOCK_ANALYSIS(release_capability())
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        kinlock_spin_unlock(&lock_);
    }

    native_handle_type native_handle() noexcept { return &lock_; }

private:
    kinlock_spin_t lock_;
};

/* SharedTimedMutex. Upgradable reading is in kinlock.h, by native_handle. A reader beyond the limit
   of kinlock_rwlock_t ends the program. */
class KINLOCK_ANALYSIS(capability("mutex")) shared_mutex {
public:
    using native_handle_type = kinlock_rwlock_t *;

    constexpr shared_mutex() noexcept : lock_ KINLOCK_RWLOCK_INIT {}
    shared_mutex(const shared_mutex &) = delete;
    shared_mutex &operator=(const shared_mutex &) = delete;

    void lock() noexcept KINLOCK_ANALYSIS(acquire_capability())
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        kinlock_rwlock_write_lock(&lock_);
    }

    bool try_lock() noexcept KINLOCK_ANALYSIS(try_acquire_capability(true))
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        return kinlock_rwlock_write_trylock(&lock_) == 0;
    }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &limit)
        KINLOCK_ANALYSIS(try_acquire_capability(true)) KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        return kinlock_rwlock_write_lock_for(&lock_, detail::nanos(limit)) == 0;
    }

    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &moment)
        KINLOCK_ANALYSIS(try_acquire_capability(true)) KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        return detail::before(moment, [this](std::uint64_t left) {
            return kinlock_rwlock_write_lock_for(&lock_, left);
        });
    }

    void unlock() noexcept KINLOCK_ANALYSIS(release_capability())
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        kinlock_rwlock_write_unlock(&lock_);
    }

    void lock_shared() noexcept KINLOCK_ANALYSIS(acquire_shared_capability())
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        if (kinlock_rwlock_read_lock(&lock_) != 0) {
            std::terminate();
        }
    }

    bool try_lock_shared() noexcept KINLOCK_ANALYSIS(try_acquire_shared_capability(true))
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        return kinlock_rwlock_read_trylock(&lock_) == 0;
    }

    template <class Rep, class Period>
    bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &limit)
        KINLOCK_ANALYSIS(try_acquire_shared_capability(true))
            KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        return kinlock_rwlock_read_lock_for(&lock_, detail::nanos(limit)) == 0;
    }

    template <class Clock, class Duration>
    bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &moment)
        KINLOCK_ANALYSIS(try_acquire_shared_capability(true))
            KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        return detail::before(moment, [this](std::uint64_t left) {
            return kinlock_rwlock_read_lock_for(&lock_, left);
        });
    }

    void unlock_shared() noexcept KINLOCK_ANALYSIS(release_shared_capability())
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        kinlock_rwlock_read_unlock(&lock_);
    }

    native_handle_type native_handle() noexcept { return &lock_; }

private:
    kinlock_rwlock_t lock_;
};

/* As std::condition_variable, for std::unique_lock<kinlock::mutex>. */
class condition_variable {
public:
    using native_handle_type = kinlock_cond_t *;

    constexpr condition_variable() noexcept : cond_ KINLOCK_COND_INIT {}
    condition_variable(const condition_variable &) = delete;
    condition_variable &operator=(const condition_variable &) = delete;

    void notify_one() noexcept { kinlock_cond_signal(&cond_); }
    void notify_all() noexcept { kinlock_cond_broadcast(&cond_); }

    void wait(std::unique_lock<mutex> &lock) noexcept
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        kinlock_cond_wait(&cond_, lock.mutex()->native_handle());
    }

    template <class Predicate>
    void wait(std::unique_lock<mutex> &lock, Predicate condition)
    {
        while (!condition()) {
            wait(lock);
        }
    }

    template <class Rep, class Period>
    std::cv_status wait_for(std::unique_lock<mutex> &lock,
                            const std::chrono::duration<Rep, Period> &limit)
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        const int result =
            kinlock_cond_wait_for(&cond_, lock.mutex()->native_handle(), detail::nanos(limit));
        return result == 0 ? std::cv_status::no_timeout : std::cv_status::timeout;
    }

    template <class Rep, class Period, class Predicate>
    bool wait_for(std::unique_lock<mutex> &lock, const std::chrono::duration<Rep, Period> &limit,
                  Predicate condition)
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        const std::uint64_t nanos = detail::nanos(limit);
        const std::uint64_t now = kinlock_now();
        const std::uint64_t deadline =
            nanos > KINLOCK_FOREVER - now ? KINLOCK_FOREVER : now + nanos;
        while (!condition()) {
            if (kinlock_cond_wait_until(&cond_, lock.mutex()->native_handle(), deadline) != 0) {
                return condition();
            }
        }
        return true;
    }

    template <class Clock, class Duration>
    std::cv_status wait_until(std::unique_lock<mutex> &lock,
                              const std::chrono::time_point<Clock, Duration> &moment)
        KINLOCK_ANALYSIS(no_thread_safety_analysis)
    {
        const bool timed_out =
            kinlock_cond_wait_for(&cond_, lock.mutex()->native_handle(), detail::until(moment)) !=
            0;
        /* If the clock was set meanwhile, this is one of the wake-ups without a notification. */
        return timed_out && detail::until(moment) == 0 ? std::cv_status::timeout
                                                       : std::cv_status::no_timeout;
    }

    template <class Clock, class Duration, class Predicate>
    bool wait_until(std::unique_lock<mutex> &lock,
                    const std::chrono::time_point<Clock, Duration> &moment, Predicate condition)
    {
        while (!condition()) {
            if (wait_until(lock, moment) == std::cv_status::timeout) {
                return condition();
            }
        }
        return true;
    }

    native_handle_type native_handle() noexcept { return &cond_; }

private:
    kinlock_cond_t cond_;
};

/* As std::once_flag. */
class once_flag {
public:
    constexpr once_flag() noexcept : once_ KINLOCK_ONCE_INIT {}
    once_flag(const once_flag &) = delete;
    once_flag &operator=(const once_flag &) = delete;

    bool is_done() const noexcept { return kinlock_once_is_done(&once_) != 0; }

private:
    template <class Function> friend void call_once(once_flag &, Function &&) noexcept;

    kinlock_once_t once_;
};

/* As std::call_once, but the function gets no arguments, and if it throws, that ends the process by
   std::terminate. */
template <class Function> void call_once(once_flag &flag, Function &&function) noexcept
{
    auto call = [&] { std::forward<Function>(function)(); };
    struct Call {
        static void run(void *argument) noexcept { (*static_cast<decltype(call) *>(argument))(); }
    };
    kinlock_once(&flag.once_, Call::run, &call);
}

static_assert(sizeof(mutex) == sizeof(kinlock_mutex_t), "no larger than the C type");
static_assert(sizeof(spinlock) == sizeof(kinlock_spin_t), "no larger than the C type");
static_assert(sizeof(shared_mutex) == sizeof(kinlock_rwlock_t), "no larger than the C type");
static_assert(sizeof(condition_variable) == sizeof(kinlock_cond_t), "no larger than the C type");

} // namespace kinlock

#endif
