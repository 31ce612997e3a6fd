#include "runtime/threads.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace regmax {
namespace {

// One call's work: threads take the next index until none is left.
struct Work {
  void (*job)(void*, int64_t);
  void* context;
  int64_t jobs;
  std::atomic<int64_t> next{0};

  void take_part() {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < jobs;) job(context, i);
  }
};

// The host program's threads, lent by its OpenMP runtime, or nullptr. Two pools in one process compete:
// OpenMP's threads spin for a while after their work, on the cores that ours would need.
std::atomic<ForkJoin> lender{nullptr};

// The same for one thread's calls: a handler computes on the threads of the runtime that called it.
struct Host {
  HostForkJoin fork_join = nullptr;
  void* host = nullptr;
};
thread_local Host host_here;

void take_part(void* work) { static_cast<Work*>(work)->take_part(); }

// Workers sleep until there is work. They are detached and the pool is never destroyed, so that the end of
// the process needs no order even if other threads are still calling.
class Pool {
 public:
  // One call at a time has the workers; a concurrent one runs on its own thread only.
  bool try_run(Work& work, int32_t helpers) {
    std::unique_lock<std::mutex> owner(owner_, std::try_to_lock);
    if (!owner.owns_lock()) return false;
    start_workers(helpers);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      work_ = &work;
      seats_ = helpers < workers_ ? helpers : workers_;
      busy_ = 0;
    }
    wake_.notify_all();
    work.take_part();
    std::unique_lock<std::mutex> lock(mutex_);
    seats_ = 0;  // late wakers find no work
    idle_.wait(lock, [this] { return busy_ == 0; });
    work_ = nullptr;
    return true;
  }

 private:
  void start_workers(int32_t wanted) {
    try {
      for (; workers_ < wanted; ++workers_) std::thread(&Pool::serve, this).detach();
    } catch (const std::system_error&) {
      // Fewer threads than requested still do all the work.
    }
  }

  void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return seats_ > 0; });
      --seats_;
      ++busy_;
      Work* work = work_;
      lock.unlock();
      work->take_part();
      lock.lock();
      if (--busy_ == 0) idle_.notify_one();
    }
  }

  std::mutex owner_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  Work* work_ = nullptr;
  int32_t workers_ = 0;  // read and written by the owner only
  int32_t seats_ = 0;
  int32_t busy_ = 0;
};

std::atomic<Pool*> pool{nullptr};

// A forked child has no workers, and the locks may be in any state: it starts a new pool.
void forget_threads() {
  lender.store(nullptr, std::memory_order_relaxed);
  pool.store(nullptr, std::memory_order_relaxed);
}

void watch_forks() {
#if defined(__unix__) || defined(__APPLE__)
  static const int registered = pthread_atfork(nullptr, nullptr, forget_threads);
  (void)registered;
#endif
}

Pool* the_pool() {
  Pool* found = pool.load(std::memory_order_acquire);
  if (found) return found;
  watch_forks();
  Pool* fresh = new (std::nothrow) Pool;
  if (fresh && !pool.compare_exchange_strong(found, fresh)) {
    delete fresh;
    return found;
  }
  return fresh;
}

// Not aligned_alloc, which Windows does not have.
constexpr std::align_val_t kAlignment{64};

struct Scratch {
  void* memory = nullptr;
  std::size_t bytes = 0;
  ~Scratch() { release(); }
  void release() { ::operator delete(memory, kAlignment); }
};

thread_local Scratch scratch;

}  // namespace

void run_jobs(int64_t jobs, int32_t threads, void (*job)(void*, int64_t), void* context) {
  Work work{job, context, jobs};
  const int64_t useful = jobs < threads ? jobs : threads;
  if (useful > 1 && host_here.fork_join)
    return host_here.fork_join(host_here.host, take_part, &work, static_cast<int32_t>(useful));
  const ForkJoin lent = lender.load(std::memory_order_relaxed);
  if (lent && useful > 1) return lent(take_part, &work, static_cast<unsigned>(useful), 0);
  Pool* workers = useful > 1 ? the_pool() : nullptr;
  if (!workers || !workers->try_run(work, static_cast<int32_t>(useful - 1))) work.take_part();
}

void run_once(std::atomic<int32_t>& state, void (*work)(void*), void* context) {
  constexpr int32_t begun = 1, done = 2;
  if (state.load(std::memory_order_acquire) == done) return;
  int32_t expected = 0;
  if (state.compare_exchange_strong(expected, begun)) {
    work(context);
    state.store(done, std::memory_order_release);
  }
  while (state.load(std::memory_order_acquire) != done) std::this_thread::yield();
}

void borrow_threads(ForkJoin from) {
  watch_forks();
  lender.store(from, std::memory_order_relaxed);
}

void borrow_threads_here(HostForkJoin from, void* host) { host_here = {from, host}; }

void* thread_scratch(std::size_t bytes) {
  if (bytes > scratch.bytes) {
    scratch.release();
    scratch.bytes = (bytes + 63) / 64 * 64;
    scratch.memory = ::operator new(scratch.bytes, kAlignment, std::nothrow);
    if (!scratch.memory) scratch.bytes = 0;
  }
  return scratch.memory;
}

}  // namespace regmax
