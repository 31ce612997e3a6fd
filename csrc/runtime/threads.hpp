// Worker threads and their scratch memory. Built once, for the baseline instruction set.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace regmax {

// Calls job(context, i) for every i in [0, jobs), on at most `threads` threads, the caller among them.
// A job must not depend on which thread runs it, and must not throw.
void run_jobs(int64_t jobs, int32_t threads, void (*job)(void* context, int64_t i), void* context);

// Calls work(context) unless a call with this state, which is 0 at first, has done so; returns when it is done.
void run_once(std::atomic<int32_t>& state, void (*work)(void*), void* context);

// Runs work(context) on `threads` threads, the caller among them, and returns when all are done: the
// signature of GOMP_parallel in GNU's and LLVM's OpenMP. `flags` is 0.
using ForkJoin = void (*)(void (*work)(void*), void* context, unsigned threads, unsigned flags);

// Makes run_jobs use these threads; nullptr: its own pool.
void borrow_threads(ForkJoin from);

// The same for the calling thread's own calls, which it precedes; `host` is passed on.
using HostForkJoin = void (*)(void* host, void (*work)(void*), void* context, int32_t threads);
void borrow_threads_here(HostForkJoin from, void* host);

// The calling thread's scratch: at least `bytes` bytes, aligned to 64, uninitialised; nullptr if memory is
// exhausted. The next call on this thread reuses it.
void* thread_scratch(std::size_t bytes);

}  // namespace regmax
