// The exported table, and what concerns the whole process.
#include "shim.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/GradMode.h>
#include <malloc.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace psyche {

std::atomic<int64_t> live{0};

bool generic() {
  static const bool set = [] {
    const char *value = std::getenv("PSYCHE_TORCH_GENERIC");
    return value && !std::strcmp(value, "1");
  }();
  return set;
}

bool on_cpu(const at::Tensor &t) { return t.device().is_cpu() && !generic(); }

// glibc gives large blocks back to the kernel when they are freed; a training step frees
// and asks again for hundreds of megabytes, and the page faults cost up to half its time.
void tune_allocator() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 0x7fffffff);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);
}

char *set_threads(int threads) {
  return status([&] {
    // A thread's first loop sets the number that was set last, by whichever thread, so let
    // it be over before ours is set.
    at::get_num_threads();
    at::set_num_threads(threads);
    // Refused once the pool runs; it is then already as we want it.
    if (at::get_num_interop_threads() != 1) at::set_num_interop_threads(1);
  });
}

char *library_version() { return strdup(TORCH_VERSION); }
char *parallel_info() {
  std::string text = at::get_parallel_info();
  if (generic()) text += "PSYCHE_TORCH_GENERIC: libtorch's operations in place of our own loops\n";
  return strdup(text.c_str());
}
char *build_config() { return strdup(at::show_config().c_str()); }

int cuda_devices() {
  try {
    return static_cast<int>(torch::cuda::device_count());
  } catch (...) {
    return 0;
  }
}

// How many threads take part in a loop of at::parallel_for. Its body is in libtorch's
// headers, so that is settled by how this library was compiled.
int loop_threads() {
  std::mutex lock;
  std::set<std::thread::id> seen;
  at::parallel_for(0, 64, 1, [&](int64_t, int64_t) {
    std::lock_guard<std::mutex> hold(lock);
    seen.insert(std::this_thread::get_id());
  });
  return static_cast<int>(seen.size());
}

int64_t live_tensors() { return live.load(); }

int grad_mode(int enabled) {
  int before = c10::GradMode::is_enabled();
  c10::GradMode::set_enabled(enabled != 0);
  return before;
}

void free_tensors(pt_tensor *tensors, int count) {
  for (int i = count - 1; i >= 0; i--) {
    if (!tensors[i]) continue;
    delete static_cast<at::Tensor *>(tensors[i]);
    live.fetch_sub(1, std::memory_order_relaxed);
  }
}

} // namespace psyche

extern "C" __attribute__((visibility("default"))) const pt_table *psyche_torch_table(void) {
  static const pt_table functions = {
      PT_API_VERSION,
      PT_SIGNATURE,
#define PT_ENTRY(ret, name, params, args) psyche::name,
      PT_FUNCTIONS(PT_ENTRY)
#undef PT_ENTRY
  };
  return &functions;
}
