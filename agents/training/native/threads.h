// Threads that share the tasks of a loop. The number of threads changes no result: tasks do not depend on one another.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace alma {

class Threads {
 public:
  // Fewer threads if the system refuses to start `count`.
  explicit Threads(int count) {
    threads_.reserve(std::max(count - 1, 0));  // so that only the start of a thread can fail
    try {
      while (count_ < count) {
        threads_.emplace_back([this, number = count_] { work(number); });
        ++count_;
      }
    } catch (const std::system_error&) {
    }
  }
  ~Threads() {
    function_ = nullptr;
    start();
    for (std::thread& thread : threads_) thread.join();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int count() const { return count_; }

  // Calls function(task, thread) for each task from 0 to tasks - 1, in one of the threads 0 .. count() - 1; in this thread
  // alone if all tasks together take less time than others need to begin.
  void run(long tasks, const std::function<void(long, int)>& function, bool worth_it = true) {
    if (count_ == 1 || tasks == 1 || !worth_it) {
      for (long task = 0; task < tasks; ++task) function(task, 0);
      return;
    }
    function_ = &function;
    tasks_ = tasks;
    running_.store(count_ - 1, std::memory_order_relaxed);
    start();
    for (long task = 0; task < tasks; task += count_) function(task, 0);
    for (int spin = 0; running_.load(std::memory_order_acquire) > 0; ++spin)
      if (spin > kSpins / 10) std::this_thread::yield();  // the processor may be needed for what this thread waits for
  }

 private:
  static constexpr int kSpins = 20000;  // looks for work before a thread sleeps: to wake it takes longer than these

  void start() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      round_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
  }

  void work(int number) {
    for (unsigned seen = 0;; ++seen) {
      for (int spin = 0; spin < kSpins && round_.load(std::memory_order_acquire) == seen; ++spin) {
      }
      if (round_.load(std::memory_order_acquire) == seen) {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return round_.load(std::memory_order_acquire) != seen; });
      }
      if (function_ == nullptr) return;
      for (long task = number; task < tasks_; task += count_) (*function_)(task, number);
      running_.fetch_sub(1, std::memory_order_release);
    }
  }

  int count_ = 1;  // does not change after the constructor, before which no thread reads it
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<unsigned> round_{0};
  std::atomic<int> running_{0};
  const std::function<void(long, int)>* function_ = nullptr;
  long tasks_ = 0;
};

}  // namespace alma
