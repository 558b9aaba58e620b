// A cache that many threads read and few change: a reader-writer lock and the standard library's
// guards, a value that is made once, and a condition variable. Prints how often it was hit.
//
// c++ -O2 cache.cpp $(pkg-config --cflags --libs kinlock) -pthread -o cache

#include <kinlock.hpp>

#include <cstdio>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

class Cache {
public:
    // The value of `key`, which is made if it is missing.
    std::string get(int key)
    {
        {
            std::shared_lock<kinlock::shared_mutex> reading(lock_);
            const auto found = values_.find(key);
            if (found != values_.end()) {
                return found->second;
            }
        }
        std::lock_guard<kinlock::shared_mutex> writing(lock_);
        // Another thread may have made it in between.
        const auto made = values_.emplace(key, std::to_string(key * key));
        misses_ += made.second ? 1 : 0;
        return made.first->second;
    }

    int misses()
    {
        std::shared_lock<kinlock::shared_mutex> reading(lock_);
        return misses_;
    }

private:
    kinlock::shared_mutex lock_;
    std::map<int, std::string> values_;
    int misses_ = 0;
};

static kinlock::once_flag made;
static Cache *cache;

static Cache &the_cache()
{
    kinlock::call_once(made, [] { cache = new Cache; });
    return *cache;
}

// A gate that opens for all at once.
class Gate {
public:
    void open()
    {
        {
            std::lock_guard<kinlock::mutex> guard(lock_);
            open_ = true;
        }
        changed_.notify_all();
    }

    void wait()
    {
        std::unique_lock<kinlock::mutex> guard(lock_);
        changed_.wait(guard, [this] { return open_; });
    }

private:
    kinlock::mutex lock_;
    kinlock::condition_variable changed_;
    bool open_ = false;
};

int main()
{
    constexpr int threads = 4, rounds = 5000, keys = 100;
    Gate gate;
    kinlock::mutex lock;
    int wrong = 0;
    std::vector<std::thread> team;
    for (int t = 0; t < threads; t++) {
        team.emplace_back([&] {
            int bad = 0;
            gate.wait();
            for (int i = 0; i < rounds; i++) {
                bad += the_cache().get(i % keys) != std::to_string((i % keys) * (i % keys));
            }
            std::lock_guard<kinlock::mutex> guard(lock);
            wrong += bad;
        });
    }
    gate.open();
    for (auto &thread : team) {
        thread.join();
    }
    std::printf("%d of %d look-ups missed\n", the_cache().misses(), threads * rounds);
    return wrong == 0 && the_cache().misses() == keys ? 0 : 1;
}
