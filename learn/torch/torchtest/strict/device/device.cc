// A device for tests: libtorch's operations compute on the CPU, but the tensors are in memory that
// only these operations and copies can access. Code of the host that reads a tensor's memory faults.
// It also counts the kernels that a CUDA device would launch, and the bytes on its bus.
#include "device.h"
#include "late.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstring>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
#include <ATen/detail/PrivateUse1HooksInterface.h>
#define STRICT_HOOKS
#endif

namespace strict {

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

thread_local c10::DeviceIndex current = 0;

// Above 0 while an operation runs, whose own copies are not copies of the program.
thread_local int inside = 0;

struct Inside {
  Inside() { inside++; }
  ~Inside() { inside--; }
};

// ---- memory ----

struct Allocator final : c10::Allocator {
  static c10::DataPtr take(size_t bytes) {
    void *memory = strict::allocate(current, bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, memory || bytes == 0, "out of memory on device ", static_cast<int>(current), ". Tried to allocate ",
                     bytes, " bytes; its limit is ", limit(current), " bytes");
    return {memory, memory, &release, c10::Device(kType, current)};
  }
  // libtorch 2.3 dropped const. One of the two functions overrides the virtual one.
  c10::DataPtr allocate(size_t bytes) const { return take(bytes); }
  c10::DataPtr allocate(size_t bytes) { return take(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void *to, const void *from, size_t bytes) const {
    Open a(to), b(from);
    std::memcpy(to, from, bytes);
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(kType, &allocator);

c10::DeviceIndex index_of(const optional<at::Device> &device) { return device && device->has_index() ? device->index() : current; }

at::Tensor empty(at::IntArrayRef size, optional<at::ScalarType> type, optional<at::Layout>, optional<at::Device> device, optional<bool>,
                 optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(c10::Device(kType, index_of(device)));
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, optional<at::ScalarType> type, optional<at::Layout>,
                         optional<at::Device> device, optional<bool>) {
  c10::DeviceGuard guard(c10::Device(kType, index_of(device)));
  return at::detail::empty_strided_generic(size, stride, &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(type));
}

const at::Tensor &resize(const at::Tensor &t, at::IntArrayRef size, optional<at::MemoryFormat>) {
  auto *impl = t.unsafeGetTensorImpl();
  size_t bytes = t.itemsize();
  for (int64_t n : size) bytes *= static_cast<size_t>(n);
  auto &storage = const_cast<c10::Storage &>(impl->storage());
  if (bytes > storage.nbytes()) {
    c10::DeviceGuard guard(t.device());
    storage.set_data_ptr(Allocator::take(bytes));
    storage.set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(size);
  return t;
}

// ---- copies ----

int64_t bytes_of(const at::Tensor &t) { return t.numel() * static_cast<int64_t>(t.element_size()); }

at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool later) {
  if (inside == 0) {
    if (from.is_cpu()) {
      count_up(bytes_of(from));
    } else if (to.is_cpu()) {
      count_down(bytes_of(from));
    } else {
      count_launch(from.scalar_type() == to.scalar_type() ? "copy" : "cast");
    }
  }
  if (later && from.is_cpu() != to.is_cpu()) {
    copy_later(from, to);
    return to;
  }
  OpenTensors open{from, to};
  host(to).copy_(host(from));
  if (inside == 0 && to.is_cpu()) waited(from.device().index());
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor &from, const at::Tensor &to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor &t) {
  count_wait();
  count_down(bytes_of(t));
  OpenTensors open{t};
  waited(t.device().index());
  return at::_local_scalar_dense(host(t));
}

// ---- all other operations ----

// Refuses the combinations of devices that CUDA refuses: kernels see the memory of one ordinal, and
// not the host's. It returns the ordinal, or -1 if no tensor has one.
int check_devices(const std::string &name, const torch::jit::Stack &stack, size_t arguments) {
  int found = -1;
  auto check = [&](const at::Tensor &t) {
    if (!t.defined() || (t.is_cpu() && t.dim() == 0)) return;
    TORCH_CHECK(t.device().type() == kType, name, ": a tensor is on ", t.device(), ", and another one on a device");
    TORCH_CHECK(found < 0 || found == t.device().index(), name, ": tensors are on the devices ", found, " and ",
                static_cast<int>(t.device().index()));
    found = t.device().index();
  };
  for (size_t i = stack.size() - arguments; i < stack.size(); i++) {
    if (stack[i].isTensor()) {
      check(stack[i].toTensor());
    } else if (stack[i].isTensorList()) {
      for (const at::Tensor &t : stack[i].toTensorVector()) check(t);
    }
  }
  return found;
}

void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const auto &id = op.operator_name();
  std::string name = id.overload_name.empty() ? id.name : id.name + "." + id.overload_name;
  int device = check_devices(name, *stack, op.schema().arguments().size());
  if (device >= 0) follow(device);
  count_launch(name);
  // Before CUDA adds a product to a matrix in another place, it copies the matrix there.
  if (name == "aten::addmm.out" || name == "aten::baddbmm.out") {
    const at::Tensor &sum = stack->back().toTensor(), &matrix = (*stack)[stack->size() - op.schema().arguments().size()].toTensor();
    if (!sum.is_same(matrix)) count_launch("copy for " + name);
  }
  Inside running;
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("resize_", TORCH_FN(resize));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

// ---- the device as libtorch's autograd sees it ----

// Some functions are virtual only in some versions of libtorch, hence without override.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device d) const override { uncheckedSetDevice(d); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { current = d.has_index() ? d.index() : current; }
  c10::Device exchangeDevice(c10::Device d) const override {
    c10::Device before = getDevice();
    uncheckedSetDevice(d);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device d) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, d.has_index() ? d : getDevice()); }
  c10::Stream getDefaultStream(c10::Device d) const override { return getStream(d); }
  c10::Stream exchangeStream(c10::Stream s) const noexcept override { return s; }
  bool queryStream(const c10::Stream &) const override { return true; }
  void synchronizeStream(const c10::Stream &s) const override { synchronizeDevice(s.device_index()); }
  void synchronizeDevice(const c10::DeviceIndex d) const {
    count_wait();
    follow(d);
    waited(d);
  }
  void recordDataPtrOnStream(const c10::DataPtr &, const c10::Stream &) const override {}

  void record(void **event, const c10::Stream &, const c10::DeviceIndex, const c10::EventFlag) const override { *event = nullptr; }
  void block(void *, const c10::Stream &) const override {}
  bool queryEvent(void *) const override { return true; }
  void synchronizeEvent(void *) const {
    for (c10::DeviceIndex d = 0; d < kDevices; d++) synchronizeDevice(d); // an event has no ordinal here
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

#ifdef STRICT_HOOKS
struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isAvailable() const { return true; }
  bool isBuilt() const { return true; }
  at::Device getDeviceFromPtr(void *data) const override {
    int found = owner(data);
    TORCH_CHECK(found >= 0, "an address is not memory of the device");
    return {kType, static_cast<c10::DeviceIndex>(found)};
  }
};

struct Register {
  Register() {
    c10::register_privateuse1_backend("strict");
    at::RegisterPrivateUse1HooksInterface(new Hooks);
  }
} registered;
#endif

} // namespace

OpenTensors::OpenTensors(std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor &t : tensors) {
    if (!t.defined() || t.is_cpu() || t.numel() == 0) continue;
    follow(t.device().index());
    blocks.emplace_back(t.data_ptr());
  }
}

at::Tensor host(const at::Tensor &t) {
  return t.is_cpu() ? t : at::from_blob(t.data_ptr(), t.sizes(), t.strides(), t.options().device(at::kCPU));
}

at::Tensor moved(const at::Tensor &result, at::Device to) {
  at::Tensor out = at::empty_strided(result.sizes(), result.strides(), result.options().device(to));
  Inside running;
  out.copy_(result);
  return out;
}

} // namespace strict
