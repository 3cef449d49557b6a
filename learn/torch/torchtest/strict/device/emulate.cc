// Runs the kernels of learn/torch/cuda on the memory of the strict device. Each thread of a block is
// a fiber. Barriers and shuffles are the points where fibers change.
#include "memory.h"

#include "cuda/pieces.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace strict {
namespace {

constexpr int kThreads = PIECES_THREADS, kWarp = 32;
constexpr size_t kStack = 64 << 10;

struct Index {
  unsigned x;
};

// ---- fibers ----

enum class At { ready, warp, block, end };

// The block that runs. A lock makes it the only one. Fibers are created once, and change with longjmp:
// swapcontext would take two system calls.
struct {
  std::mutex lock;
  std::vector<std::vector<char>> stacks; // empty before the first block
  jmp_buf main, fibers[kThreads];
  ucontext_t starts[kThreads], creator;
  At at[kThreads];
  float values[kThreads]; // of a shuffle
  int current;
  std::function<void()> body;
} run;

Index threadIdx, blockIdx, gridDim;

void wait_at(At point) {
  int self = run.current;
  run.at[self] = point;
  if (_setjmp(run.fibers[self]) == 0) _longjmp(run.main, 1);
}

// A fiber runs its thread of one block after another.
void fiber() {
  int self = run.current;
  if (_setjmp(run.fibers[self]) == 0) swapcontext(&run.starts[self], &run.creator);
  for (;;) {
    run.body();
    wait_at(At::end);
  }
}

void create_fibers() {
  run.stacks.resize(kThreads, std::vector<char>(kStack));
  for (int i = 0; i < kThreads; i++) {
    getcontext(&run.starts[i]);
    run.starts[i].uc_stack.ss_sp = run.stacks[i].data();
    run.starts[i].uc_stack.ss_size = kStack;
    run.starts[i].uc_link = nullptr;
    makecontext(&run.starts[i], fiber, 0);
    run.current = i;
    swapcontext(&run.creator, &run.starts[i]);
  }
}

// Runs a fiber up to its next point.
void resume(int i) {
  run.current = i, threadIdx.x = static_cast<unsigned>(i);
  if (_setjmp(run.main) == 0) _longjmp(run.fibers[i], 1);
}

// Makes the threads from first to last ready if all threads that have not ended wait at the point.
bool release(int first, int last, At point) {
  bool any = false;
  for (int i = first; i < last; i++) {
    if (run.at[i] == At::end) continue;
    if (run.at[i] != point) return false;
    any = true;
  }
  for (int i = first; i < last; i++) {
    if (run.at[i] != At::end) run.at[i] = At::ready;
  }
  return any;
}

void run_block(const std::string &kernel) {
  if (run.stacks.empty()) create_fibers();
  std::fill(run.at, run.at + kThreads, At::ready);
  for (;;) {
    bool moved = false;
    for (int i = 0; i < kThreads; i++) {
      if (run.at[i] != At::ready) continue;
      resume(i);
      moved = true;
    }
    if (std::all_of(run.at, run.at + kThreads, [](At a) { return a == At::end; })) return;
    for (int w = 0; w < kThreads; w += kWarp) moved |= release(w, w + kWarp, At::warp);
    moved |= release(0, kThreads, At::block);
    if (!moved) {
      std::fprintf(stderr, "strict device: kernel %s: its threads wait for each other at different points\n", kernel.c_str());
      std::abort();
    }
  }
}

// ---- what the text of the kernels uses ----

void __syncthreads() { wait_at(At::block); }

float __shfl_xor_sync(unsigned, float v, int mask) {
  int self = run.current;
  run.values[self] = v;
  wait_at(At::warp);
  float other = run.values[self ^ mask];
  wait_at(At::warp);
  return other;
}

unsigned __float_as_uint(float v) {
  unsigned bits;
  std::memcpy(&bits, &v, sizeof bits);
  return bits;
}

float __uint_as_float(unsigned bits) {
  float v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

#define KERNEL static void
#define INLINE static inline
#define __shared__ static
#include "cuda/pieces.cu"
#undef __shared__
#undef INLINE
#undef KERNEL

// ---- launches ----

using Kernel = std::function<void(const void *argument, size_t size)>;

template <class A> Kernel kernel(void (*f)(A)) {
  return [f](const void *argument, size_t size) {
    if (size != sizeof(A)) {
      std::fprintf(stderr, "strict device: an argument of %zu bytes, want %zu\n", size, sizeof(A));
      std::abort();
    }
    A a;
    std::memcpy(&a, argument, sizeof a);
    f(a);
  };
}

#define BOTH(name) {"psyche_" #name "_f32", kernel(psyche_##name##_f32)}, {"psyche_" #name "_bf16", kernel(psyche_##name##_bf16)}

const std::map<std::string, Kernel> &kernels() {
  static const std::map<std::string, Kernel> all = {
      BOTH(norm_forward), BOTH(norm_backward), BOTH(rotate), BOTH(swiglu), BOTH(swiglu_backward), BOTH(cross_entropy), BOTH(embed),
      BOTH(embed_gradient), {"psyche_sum_parts", kernel(psyche_sum_parts)}, {"psyche_count", kernel(psyche_count)},
  };
  return all;
}

} // namespace
} // namespace strict

extern "C" __attribute__((visibility("default"))) char *psyche_strict_launch(void *, int device, const char *name, int64_t blocks,
                                                                            const void *argument, size_t size) {
  using namespace strict;
  auto found = kernels().find(name);
  if (found == kernels().end()) return strdup("no such kernel");
  count_launch(name);
  psyche_strict_open_device(device);
  {
    std::lock_guard<std::mutex> hold(run.lock);
    gridDim.x = static_cast<unsigned>(blocks);
    run.body = [&] { found->second(argument, size); };
    for (int64_t b = 0; b < blocks; b++) {
      blockIdx.x = static_cast<unsigned>(b);
      run_block(found->first);
    }
  }
  psyche_strict_close_device(device);
  return nullptr;
}
