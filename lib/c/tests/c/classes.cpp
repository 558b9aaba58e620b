// kinlock.hpp: the classes do with the standard library's guards what std's own classes do.

#include "test.h"
#include <kinlock.hpp>

#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>
#if __cplusplus >= 201402L
#include <shared_mutex>
#endif

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Static objects need no code to run.
static kinlock::mutex mutex;
static kinlock::spinlock spinlock;
static kinlock::shared_mutex shared;
static kinlock::condition_variable changed;
static kinlock::once_flag once;

static_assert(!std::is_copy_constructible<kinlock::mutex>::value, "a copy would be another lock");
static_assert(!std::is_move_constructible<kinlock::shared_mutex>::value, "as above");
static_assert(std::is_standard_layout<kinlock::mutex>::value, "a C struct may contain it");

template <class Lock> static void excludes(Lock &lock)
{
    long count = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            for (int turn = 0; turn < 5000; turn++) {
                std::lock_guard<Lock> guard(lock);
                count++;
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    CHECK(count == 20000);
}

template <class Lock> static void gives_up(Lock &lock)
{
    std::unique_lock<Lock> held(lock);
    std::thread([&] {
        CHECK(!lock.try_lock());
        const auto begin = Clock::now();
        CHECK(!lock.try_lock_for(milliseconds(3)));
        CHECK(Clock::now() - begin >= milliseconds(3));
        CHECK(!lock.try_lock_until(Clock::now() + milliseconds(3)));
        CHECK(Clock::now() - begin >= milliseconds(6));
        CHECK(!lock.try_lock_until(std::chrono::system_clock::now() + milliseconds(1)));
        CHECK(!lock.try_lock_for(milliseconds(-1)));
        CHECK(!lock.try_lock_for(std::chrono::hours::min()));
        CHECK(!lock.try_lock_for(std::chrono::duration<double>(-1e300)));
        CHECK(!lock.try_lock_until(Clock::time_point::min()));
        CHECK(!lock.try_lock_until(std::chrono::system_clock::time_point::min()));
        CHECK(!lock.try_lock_until(Clock::time_point::min() + std::chrono::hours(1000000)));
        CHECK(!lock.try_lock_until(std::chrono::time_point<Clock, std::chrono::hours>::min()));
        std::unique_lock<Lock> own(lock, std::try_to_lock);
        CHECK(!own.owns_lock());
    }).join();
    held.unlock();
    CHECK(lock.try_lock_for(std::chrono::hours::max()));
    lock.unlock();
    std::unique_lock<Lock> later(lock, std::defer_lock);
    CHECK(later.try_lock_until(Clock::now()));
    later.unlock();
    // With a thread that has to wait for it: a limit that wrapped would be over at once.
    int stage = 0;
    std::thread waiter([&] {
        lock.lock();
        STORE(stage, 1);
        while (LOAD(stage) == 1) {
            std::this_thread::yield();
        }
        std::this_thread::sleep_for(milliseconds(2));
        lock.unlock();
    });
    while (LOAD(stage) == 0) {
        std::this_thread::yield();
    }
    STORE(stage, 2);
    CHECK(later.try_lock_until(Clock::time_point::max()));
    waiter.join();
    later.unlock();
    CHECK(later.try_lock_until(std::chrono::time_point<Clock, std::chrono::hours>::max()));
}

static void readers_share()
{
    shared.lock_shared();
    std::thread([] {
        CHECK(shared.try_lock_shared());
        shared.unlock_shared();
        CHECK(!shared.try_lock());
        CHECK(!shared.try_lock_for(milliseconds(1)));
    }).join();
    shared.unlock_shared();
    std::unique_lock<kinlock::shared_mutex> writes(shared);
    std::thread([] {
        CHECK(!shared.try_lock_shared());
        CHECK(!shared.try_lock_shared_for(milliseconds(1)));
        CHECK(!shared.try_lock_shared_until(Clock::now() + milliseconds(1)));
    }).join();
    writes.unlock();
#if __cplusplus >= 201402L
    std::shared_lock<kinlock::shared_mutex> one(shared), other(shared);
    CHECK(one.owns_lock() && other.owns_lock());
#endif
}

#ifndef KINLOCK_FALLBACK
static void a_reader_that_cannot_be_counted_does_not_wait()
{
    static kinlock::shared_mutex full;
    int readers = 0;
    while (full.try_lock_shared()) {
        readers++;
    }
    CHECK(!full.try_lock_shared_for(std::chrono::hours(10)));
    CHECK(!full.try_lock_shared_until(Clock::now() + std::chrono::hours(10)));
    while (readers-- > 0) {
        full.unlock_shared();
    }
    CHECK(full.try_lock());
    full.unlock();
}
#endif

static void waiters_are_notified()
{
    int stage = 0;
    std::thread thread([&] {
        std::unique_lock<kinlock::mutex> lock(mutex);
        changed.wait(lock, [&] { return stage == 1; });
        stage = 2;
        changed.notify_all();
        CHECK(changed.wait_for(lock, std::chrono::hours(1), [&] { return stage == 3; }));
        stage = 4;
        changed.notify_one();
    });
    std::unique_lock<kinlock::mutex> lock(mutex);
    stage = 1;
    changed.notify_one();
    while (stage != 2) {
        changed.wait(lock);
    }
    stage = 3;
    changed.notify_one();
    CHECK(changed.wait_until(lock, Clock::now() + std::chrono::hours(1),
                             [&] { return stage == 4; }));
    lock.unlock();
    thread.join();

    lock.lock();
    const auto begin = Clock::now();
    CHECK(!changed.wait_for(lock, milliseconds(3), [] { return false; }));
    CHECK(Clock::now() - begin >= milliseconds(3));
    CHECK(!changed.wait_until(lock, Clock::now() + milliseconds(3), [] { return false; }));
    CHECK(changed.wait_until(lock, Clock::now()) == std::cv_status::timeout);
    CHECK(changed.wait_for(lock, milliseconds(0)) == std::cv_status::timeout);
    CHECK(changed.wait_for(lock, milliseconds(-1)) == std::cv_status::timeout);
    CHECK(changed.wait_until(lock, Clock::time_point::min()) == std::cv_status::timeout);
    CHECK(!changed.wait_for(lock, std::chrono::hours::min(), [] { return false; }));
    CHECK(lock.owns_lock());
}

static kinlock::once_flag of_function, of_temporary;
static int function_calls;

static void function()
{
    function_calls++;
}

struct Temporary {
    int *calls;
    void operator()() && { ++*calls; }
};

static void one_call_is_made()
{
    int calls = 0;
    CHECK(!once.is_done());
    const auto call = [&] { calls++; };
    std::thread([&] { kinlock::call_once(once, call); }).join();
    kinlock::call_once(once, [&] { calls++; });
    CHECK(calls == 1 && once.is_done());
    kinlock::call_once(of_function, function);
    kinlock::call_once(of_function, &function);
    CHECK(function_calls == 1 && of_function.is_done());
    kinlock::call_once(of_temporary, Temporary{&calls});
    CHECK(calls == 2);
}

int main()
{
    excludes(mutex);
    excludes(spinlock);
    excludes(shared);
#ifndef KINLOCK_FALLBACK
    a_reader_that_cannot_be_counted_does_not_wait();
#endif
    gives_up(mutex);
    gives_up(spinlock);
    gives_up(shared);
    readers_share();
    waiters_are_notified();
    one_call_is_made();
    return 0;
}
