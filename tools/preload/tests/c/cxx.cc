// What the C++ library makes of pthreads.
#include <atomic>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

struct Queue {
    std::mutex mutex;
    std::condition_variable more, fewer;
    std::deque<int> items;

    void put(int item)
    {
        std::unique_lock lock(mutex);
        fewer.wait(lock, [this] { return items.size() < 8; });
        items.push_back(item);
        more.notify_one();
    }

    int take()
    {
        std::unique_lock lock(mutex);
        while (!more.wait_for(lock, 100ms, [this] { return !items.empty(); }))
            ;
        int item = items.front();
        items.pop_front();
        fewer.notify_one();
        return item;
    }
};

static void queues()
{
    Queue queue;
    std::atomic<long> sum = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&] {
            for (int i = 0; i < 20000; i++)
                queue.put(i);
        });
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&] {
            for (int i = 0; i < 20000; i++)
                sum += queue.take();
        });
    for (auto &thread : threads)
        thread.join();
    std::printf("sum %ld\n", sum.load());
}

template <class Mutex> static void timed(const char *name)
{
    Mutex mutex;
    std::unique_lock lock(mutex);
    bool got[4];
    std::thread([&] {
        got[0] = mutex.try_lock();
        got[1] = mutex.try_lock_for(10ms);
        got[2] = mutex.try_lock_until(std::chrono::system_clock::now() + 10ms);
        got[3] = mutex.try_lock_until(std::chrono::steady_clock::now() + 10ms);
    }).join();
    std::printf("%s: %d %d %d %d\n", name, got[0], got[1], got[2], got[3]);
    lock.unlock();
    bool after = std::async(std::launch::async, [&] {
                     bool taken = mutex.try_lock_for(1s);
                     if (taken)
                         mutex.unlock();
                     return taken;
                 }).get();
    std::printf("%s: %d\n", name, after);
}

static void shared()
{
    std::shared_mutex mutex;
    std::atomic<int> inside = 0, most = 0;
    std::vector<std::thread> readers;
    for (int t = 0; t < 4; t++)
        readers.emplace_back([&] {
            std::shared_lock lock(mutex);
            inside++;
            for (int tries = 0; inside < 4 && tries < 300000; tries++)
                std::this_thread::sleep_for(1ms);
            most = inside.load();
        });
    for (auto &reader : readers)
        reader.join();
    // Readers share the lock: they stay that.
    std::printf("readers at once: %d\n", most.load());
}

// Destructors of thread-locals lock.
static std::mutex of_locals;
static long destroyed;

struct Local {
    ~Local()
    {
        std::lock_guard lock(of_locals);
        destroyed++;
    }
    int value = 0;
};

static thread_local Local local;

static void thread_locals()
{
    for (int round = 0; round < 50; round++) {
        std::vector<std::thread> threads;
        for (int t = 0; t < 8; t++)
            threads.emplace_back([] { local.value++; });
        for (auto &thread : threads)
            thread.join();
    }
    std::printf("destroyed %ld\n", destroyed);
}

static void any()
{
    std::condition_variable_any condvar;
    std::recursive_timed_mutex mutex;
    bool done = false;
    std::thread other([&] {
        std::lock_guard lock(mutex);
        done = true;
        condvar.notify_one();
    });
    std::unique_lock lock(mutex);
    condvar.wait(lock, [&] { return done; });
    std::printf("wait until: %d\n", condvar.wait_until(lock, std::chrono::system_clock::now() + 10ms) ==
                                        std::cv_status::timeout);
    lock.unlock();
    other.join();
}

int main()
{
    queues();
    timed<std::timed_mutex>("timed");
    timed<std::recursive_timed_mutex>("recursive timed");
    timed<std::shared_timed_mutex>("shared timed");
    shared();
    thread_locals();
    any();
    std::once_flag once;
    int calls = 0;
    std::call_once(once, [&] { calls++; });
    std::call_once(once, [&] { calls++; });
    std::printf("once %d\n", calls);
}
