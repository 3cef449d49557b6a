// Declarations of all table functions, shared by the shim's files, and the guards that keep C++
// exceptions from crossing into Go.
//
// The shim uses only calls that both libtorch 1.13 and 2.x have, without autocast and without CUDA
// headers. So the same sources compile against both.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <utility>

#include "abi.h"

namespace psyche {

#define PT_DECLARE(ret, name, params, args) ret name params;
PT_FUNCTIONS(PT_DECLARE)
#undef PT_DECLARE

// The number of handles returned and not yet freed.
extern std::atomic<int64_t> live;

at::ScalarType scalar_type(int dtype);

// Reports whether our own loops over memory may run on t, which must be on the CPU. With
// PSYCHE_TORCH_GENERIC=1 in the environment it is always false, so that tests on the CPU run the
// code for other devices.
bool on_cpu(const at::Tensor &t);
// The type of the devices with numbers from 0: CUDA, or the type of a device that a library registered
// with libtorch as its device for private use.
c10::DeviceType accelerator();
// Reports whether PSYCHE_TORCH_GENERIC is set.
bool generic();

inline at::Tensor &T(pt_tensor t) { return *static_cast<at::Tensor *>(t); }

template <class E> E *data(const at::Tensor &t) { return static_cast<E *>(t.data_ptr()); }

inline at::IntArrayRef sizes(const int64_t *shape, int dims) {
  return at::IntArrayRef(shape, static_cast<size_t>(dims));
}

// Returns the message of the exception in flight, without the C++ backtrace, malloc'ed.
inline char *message() {
  try {
    throw;
  } catch (const c10::Error &e) {
    return strdup(e.what_without_backtrace());
  } catch (const std::exception &e) {
    return strdup(e.what());
  } catch (...) {
    return strdup("unknown C++ exception");
  }
}

inline pt_result own(at::Tensor &&t) {
  pt_tensor handle = new at::Tensor(std::move(t));
  live.fetch_add(1, std::memory_order_relaxed);
  return pt_result{handle, nullptr};
}

template <class F> pt_result tensor(F &&compute) {
  try {
    return own(compute());
  } catch (...) {
    return pt_result{nullptr, message()};
  }
}

template <class F> pt_number number(F &&compute) {
  try {
    return pt_number{compute(), nullptr};
  } catch (...) {
    return pt_number{0, message()};
  }
}

template <class F> char *status(F &&act) {
  try {
    act();
    return nullptr;
  } catch (...) {
    return message();
  }
}

} // namespace psyche
