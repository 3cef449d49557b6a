// A GPU does its work after the program has launched it. The device shows this in three ways:
//
// - Our kernels run late: see the emulated driver of package cudatest.
// - A copy down that is asynchronous writes NaNs, and the values when the program waits.
// - A copy up that is asynchronous needs its source until the program waits. A change before is fatal.
//
// An operation of libtorch runs at once, behind the late kernels of its ordinal. No program can find
// the difference: the host cannot read its result without a copy, kernels of the ordinal come behind
// it, and libtorch makes a copy between two ordinals wait for both.
#include "late.h"

#include "device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

namespace strict {
namespace {

// An asynchronous copy between the host and a device. now is in contiguous memory.
struct Copy {
  at::Tensor host;
  at::Tensor now; // the values at the time of the copy
  bool down;
};

struct Copies {
  std::mutex lock;
  std::vector<Copy> of[kDevices];
};

Copies &copies() {
  static Copies *only = new Copies; // destructors of tensors run at any time
  return *only;
}

at::Tensor contiguous_copy(const at::Tensor &t) { return t.clone(at::MemoryFormat::Contiguous); }

} // namespace

void follow(int device) {
  const char *failure = finish(device);
  TORCH_CHECK(!failure, "a kernel on device ", device, " failed: ", failure);
}

void copy_later(const at::Tensor &from, const at::Tensor &to) {
  bool down = to.is_cpu();
  int device = down ? from.device().index() : to.device().index();
  follow(device);
  OpenTensors open{from, to};
  Copy c{down ? to : from, contiguous_copy(host(from)), down};
  if (down) {
    at::Tensor none = at::empty_like(to, at::MemoryFormat::Contiguous);
    std::memset(none.data_ptr(), 0xff, none.nbytes());
    to.copy_(none);
  } else {
    host(to).copy_(from);
  }
  std::lock_guard<std::mutex> hold(copies().lock);
  copies().of[device].push_back(std::move(c));
}

void waited(int device) {
  std::vector<Copy> ended;
  {
    std::lock_guard<std::mutex> hold(copies().lock);
    ended.swap(copies().of[device]);
  }
  for (Copy &c : ended) {
    if (c.down) {
      c.host.copy_(c.now);
    } else if (at::Tensor source = contiguous_copy(c.host); std::memcmp(source.data_ptr(), c.now.data_ptr(), c.now.nbytes()) != 0) {
      std::fprintf(stderr, "strict device: the program changed memory of the host before the end of an asynchronous copy to device %d\n", device);
      std::abort();
    }
  }
}

} // namespace strict

#define STRICT_API extern "C" __attribute__((visibility("default")))

STRICT_API void psyche_strict_waited(int device) { strict::waited(device); }

STRICT_API void psyche_strict_copy_later(void *to, const void *from, size_t bytes) {
  auto tensor = [&](const void *memory) {
    int device = strict::owner(memory);
    at::TensorOptions options(at::kByte);
    if (device < 0) return at::from_blob(const_cast<void *>(memory), {static_cast<int64_t>(bytes)}, options);
    at::Device there(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
    return at::for_blob(const_cast<void *>(memory), {static_cast<int64_t>(bytes)}).options(options.device(there)).target_device(there).make_tensor();
  };
  tensor(to).copy_(tensor(from), /*non_blocking=*/true);
}
