// The exported table, and functions for the whole process.
#include "shim.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
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

// By default glibc returns large freed blocks to the kernel. A training step frees and allocates
// hundreds of megabytes, and the page faults cost up to half its time.
void tune_allocator() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 0x7fffffff);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);
}

char *set_threads(int threads) {
  return status([&] {
    // The first loop of a thread applies the last number set by any thread. So run it before
    // setting the number here.
    at::get_num_threads();
    at::set_num_threads(threads);
    // libtorch refuses this once the pool runs. The pool then already has one thread.
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

c10::DeviceType accelerator() {
  return c10::impl::hasDeviceGuardImpl(c10::DeviceType::PrivateUse1) ? c10::DeviceType::PrivateUse1 : at::kCUDA;
}

int cuda_devices() {
  try {
    if (accelerator() != at::kCUDA) return c10::impl::getDeviceGuardImpl(accelerator())->deviceCount();
    return static_cast<int>(torch::cuda::device_count());
  } catch (...) {
    return 0;
  }
}

// Returns the number of threads that take part in a loop of at::parallel_for. The body of the loop
// is in libtorch's headers, so the number depends on how this library was compiled.
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
