// SPDX-License-Identifier: Apache-2.0
//
// A program of several libraries, as C++ services are: what the loader, the unwinder, thread-local storage and the
// standard library ask of a kernel. It prints the same lines everywhere; the last one is "cpp: ok".
//   cpp [FOLDER_OF_LIBRARIES]      default: the folder of the program
#include "shapes.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <dlfcn.h>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <iomanip>
#include <iostream>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <shared_mutex>
#include <sstream>
#include <thread>
#include <vector>

namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {

std::mutex reports_mutex;
std::vector<std::string> reports;

void report(const char *line) {
    std::lock_guard lock(reports_mutex);
    reports.emplace_back(line);
}

void print_reports() {
    std::lock_guard lock(reports_mutex);
    for (const auto &line : reports)
        std::cout << "  reported: " << line << '\n';
    reports.clear();
}

// A library loaded as long as this lives.
class Library {
  public:
    explicit Library(const fs::path &path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (!handle_)
            throw std::runtime_error(dlerror());
    }
    Library(const Library &) = delete;
    Library &operator=(const Library &) = delete;
    ~Library() { dlclose(handle_); }

    template <typename Function> Function *find(const char *name) const {
        void *found = dlsym(handle_, name);
        if (!found)
            throw std::runtime_error(dlerror());
        return reinterpret_cast<Function *>(found);
    }

  private:
    void *handle_;
};

bool is_loaded(const fs::path &path) {
    void *handle = dlopen(path.c_str(), RTLD_NOLOAD | RTLD_NOW);
    if (handle)
        dlclose(handle);
    return handle != nullptr;
}

void loading(const fs::path &folder) {
    std::cout << "loading\n";
    std::unique_ptr<Shape> square(make_square(3));
    std::cout << "  linked library: area " << square->area() << '\n';
    {
        Library thrower(folder / "libthrower.so");
        std::cout << "  loaded " << is_loaded(folder / "libthrower.so") << '\n';
        try {
            (void)thrower.find<void()>("not_there");
        } catch (const std::runtime_error &) {
            std::cout << "  a missing name is an error\n";
        }
    }
    std::cout << "  loaded " << is_loaded(folder / "libthrower.so") << '\n';
    try {
        Library none(folder / "libnone.so");
    } catch (const std::runtime_error &error) {
        std::cout << "  a missing library is an error: "
                  << (std::string(error.what()).find("No such file or directory") != std::string::npos) << '\n';
    }
    for (int i = 0; i < 200; i++)
        Library(folder / "libthrower.so").find<decltype(throw_one)>("throw_one");
    std::cout << "  loaded and unloaded 200 times\n";
}

std::string caught(const Library &thrower, const char *kind) {
    try {
        thrower.find<decltype(throw_one)>("throw_one")(kind);
    } catch (const ShapeError &error) {
        return std::string("ShapeError ") + error.what() + ", code " + std::to_string(error.code());
    } catch (const std::out_of_range &) {
        return "std::out_of_range";
    } catch (const std::logic_error &error) {
        try {
            std::rethrow_if_nested(error);
        } catch (const ShapeError &cause) {
            return std::string(error.what()) + ": " + cause.what();
        }
    } catch (const std::exception &error) {
        return std::string("std::exception ") + error.what();
    } catch (int number) {
        return "int " + std::to_string(number);
    }
    return "nothing";
}

void exceptions(const fs::path &folder) {
    std::cout << "exceptions\n";
    Library thrower(folder / "libthrower.so");
    for (const char *kind : {"shape", "range", "own", "int", "nested"})
        std::cout << "  " << kind << ": " << caught(thrower, kind) << '\n';
    try {
        thrower.find<decltype(call_back)>("call_back")([] { throw ShapeError("from the program", 1); }, report);
    } catch (const ShapeError &error) {
        std::cout << "  through the library and back: " << error.what() << '\n';
    }
    print_reports();

    // Eight threads unwind at once, through the same tables.
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&] {
            for (int round = 0; round < 200; round++)
                right += caught(thrower, "shape") == "ShapeError a side of -1.000000, code 22";
        });
    for (auto &thread : threads)
        thread.join();
    std::cout << "  caught by threads " << right << '\n';
    auto future = std::async(std::launch::async, [&] { thrower.find<decltype(throw_one)>("throw_one")("shape"); });
    try {
        future.get();
    } catch (const ShapeError &error) {
        std::cout << "  out of another thread: " << error.code() << '\n';
    }
}

struct Announced {
    std::atomic<int> &alive;
    explicit Announced(std::atomic<int> &count) : alive(count) { alive++; }
    ~Announced() { alive--; }
};

std::atomic<int> alive{0};

int touch() {
    thread_local Announced own(alive);
    return own.alive;
}

void thread_locals(const fs::path &folder) {
    std::cout << "thread_local\n";
    // Waits before the library is there: its part of the thread-local storage comes when first used.
    std::promise<decltype(count) *> loaded;
    auto early = std::async(std::launch::async, [found = loaded.get_future()]() mutable { return found.get()(5); });
    {
        Library counter(folder / "libcounter.so");
        auto add = counter.find<decltype(count)>("count");
        counter.find<decltype(set_report)>("set_report")(report);
        loaded.set_value(add);
        std::cout << "  a thread older than the library " << early.get() << '\n';
        early = {};
        std::vector<std::thread> threads;
        std::vector<long> sums(6);
        for (int i = 0; i < 6; i++)
            threads.emplace_back([&, i] {
                touch();
                for (long by = 1; by <= 1000; by++)
                    sums[i] = add(by);
            });
        for (auto &thread : threads)
            thread.join();
        std::cout << "  sums";
        for (long sum : sums)
            std::cout << ' ' << sum;
        std::cout << "\n  objects of the program left " << alive << '\n';
    }
    print_reports();
    std::cout << "  loaded " << is_loaded(folder / "libcounter.so") << '\n';
}

void threads() {
    std::cout << "threads\n";
    std::mutex mutex;
    std::condition_variable changed;
    int turn = 0;
    std::string order;
    std::vector<std::thread> players;
    for (int me = 0; me < 3; me++)
        players.emplace_back([&, me] {
            for (int round = 0; round < 50; round++) {
                std::unique_lock lock(mutex);
                changed.wait(lock, [&] { return turn % 3 == me; });
                if (round < 4)
                    order += static_cast<char>('a' + me);
                turn++;
                changed.notify_all();
            }
        });
    for (auto &player : players)
        player.join();
    std::cout << "  in turn " << order << ", " << turn << '\n';

    std::vector<std::future<long>> parts;
    for (int i = 0; i < 8; i++)
        parts.push_back(std::async(std::launch::async, [i] {
            std::vector<long> numbers(10000);
            std::iota(numbers.begin(), numbers.end(), i * 10000L);
            return std::accumulate(numbers.begin(), numbers.end(), 0L);
        }));
    long sum = 0;
    for (auto &part : parts)
        sum += part.get();
    std::cout << "  async sum " << sum << '\n';

    std::shared_mutex shared;
    std::map<int, int> table;
    std::vector<std::thread> workers;
    std::atomic<long> read{0};
    for (int i = 0; i < 4; i++)
        workers.emplace_back([&, i] {
            for (int k = 0; k < 500; k++) {
                if (k % 10 == 0) {
                    std::unique_lock lock(shared);
                    table[i * 1000 + k] = k;
                } else {
                    std::shared_lock lock(shared);
                    read += table.count(i * 1000 + k - k % 10);
                }
            }
        });
    for (auto &worker : workers)
        worker.join();
    std::cout << "  shared lock: written " << table.size() << ", read " << read << '\n';

    std::timed_mutex timed;
    std::lock_guard held(timed);
    bool got = std::async(std::launch::async, [&] { return timed.try_lock_for(20ms); }).get();
    auto before = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(20ms);
    std::cout << "  timed lock " << got << ", slept " << (std::chrono::steady_clock::now() - before >= 20ms) << '\n';
    std::once_flag once;
    int calls = 0;
    std::vector<std::thread> callers;
    for (int i = 0; i < 8; i++)
        callers.emplace_back([&] { std::call_once(once, [&] { calls++; }); });
    for (auto &caller : callers)
        caller.join();
    std::cout << "  call_once " << calls << '\n';
}

void files() {
    std::cout << "filesystem\n";
    fs::path base = fs::temp_directory_path() / "cpp-test";
    fs::remove_all(base);
    fs::create_directories(base / "a" / "b");
    std::ofstream(base / "a" / "one.txt") << "first\nsecond\n";
    fs::copy_file(base / "a" / "one.txt", base / "a" / "b" / "two.txt");
    fs::create_symlink("one.txt", base / "a" / "link");
    fs::create_hard_link(base / "a" / "one.txt", base / "a" / "hard");
    fs::rename(base / "a" / "b" / "two.txt", base / "a" / "b" / "three.txt");
    fs::resize_file(base / "a" / "b" / "three.txt", 5);
    fs::permissions(base / "a" / "b" / "three.txt", fs::perms::owner_read | fs::perms::owner_write);
    std::vector<std::string> names;
    for (const auto &entry : fs::recursive_directory_iterator(base))
        names.push_back(fs::relative(entry.path(), base).string() +
                        (entry.is_symlink() ? "@" : entry.is_directory() ? "/" : ""));
    std::sort(names.begin(), names.end());
    std::cout << " ";
    for (const auto &name : names)
        std::cout << ' ' << name;
    std::cout << "\n  size " << fs::file_size(base / "a" / "b" / "three.txt") << ", links "
              << fs::hard_link_count(base / "a" / "one.txt") << ", mode " << std::oct
              << static_cast<int>(fs::status(base / "a" / "b" / "three.txt").permissions()) << std::dec << '\n';
    std::error_code error;
    fs::create_directory(base / "no" / "parent", error);
    std::cout << "  " << error.message() << ", same file "
              << fs::equivalent(base / "a" / "link", base / "a" / "hard") << ", space "
              << (fs::space(base).capacity > 0) << '\n';
    std::ifstream in(base / "a" / "link");
    std::string line;
    int lines = 0;
    while (std::getline(in, line))
        lines++;
    fs::last_write_time(base / "a" / "one.txt", fs::file_time_type::clock::now());
    std::cout << "  lines " << lines << ", removed " << fs::remove_all(base) << '\n';
}

void streams() {
    std::cout << "streams and locale\n";
    std::ostringstream out;
    out << std::hex << std::showbase << 255 << ' ' << std::dec << std::setprecision(4) << std::scientific << 12345.678;
    std::cout << "  " << out.str() << '\n';
    std::cout << "  classic locale " << std::locale().name() << '\n';
    try {
        std::locale::global(std::locale("C.UTF-8"));
        std::cout << "  " << std::locale().name() << '\n';
    } catch (const std::runtime_error &) {
        std::cout << "  C.UTF-8 is not there\n";
    }
    std::locale::global(std::locale::classic());
    std::random_device device;
    std::cout << "  random numbers differ " << (device() != device() || device() != device()) << '\n';
}

} // namespace

int main(int argc, char **argv) {
    std::cout << std::boolalpha;
    try {
        fs::path folder = argc > 1 ? fs::path(argv[1]) : fs::read_symlink("/proc/self/exe").parent_path();
        loading(folder);
        exceptions(folder);
        thread_locals(folder);
        threads();
        files();
        streams();
    } catch (const std::exception &error) {
        std::cerr << "cpp: " << error.what() << '\n';
        return 1;
    }
    std::cout << "cpp: ok" << std::endl;
}
