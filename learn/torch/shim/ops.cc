// The plain operations: one libtorch call for each.
#include "shim.h"

#include <vector>

namespace psyche {

at::ScalarType scalar_type(int dtype) {
  switch (dtype) {
  case PT_F32: return at::kFloat;
  case PT_BF16: return at::kBFloat16;
  case PT_F16: return at::kHalf;
  case PT_F64: return at::kDouble;
  case PT_I64: return at::kLong;
  case PT_I32: return at::kInt;
  case PT_U8: return at::kByte;
  case PT_BOOL: return at::kBool;
  }
  TORCH_CHECK(false, "unknown element type ", dtype);
}

static at::Device on(int device) {
  if (device < 0) return at::Device(at::kCPU);
  return at::Device(accelerator(), static_cast<c10::DeviceIndex>(device));
}

static at::TensorOptions options(int dtype, int device) {
  return at::TensorOptions().dtype(scalar_type(dtype)).device(on(device));
}

static std::vector<at::Tensor> list(pt_tensor *tensors, int count) {
  std::vector<at::Tensor> all;
  all.reserve(count);
  for (int i = 0; i < count; i++) all.push_back(T(tensors[i]));
  return all;
}

// ---- creation ----

pt_result from_bytes(const void *data, size_t bytes, const int64_t *shape, int dims, int dtype, int device) {
  return tensor([&] {
    if (device >= 0 || generic()) { // copies directly from the source
      at::Tensor there = at::from_blob(const_cast<void *>(data), sizes(shape, dims), options(dtype, -1));
      TORCH_CHECK(there.nbytes() == bytes, "got ", bytes, " bytes, want ", there.nbytes());
      return there.to(options(dtype, device), /*non_blocking=*/false, /*copy=*/true);
    }
    at::Tensor t = at::empty(sizes(shape, dims), options(dtype, -1));
    TORCH_CHECK(t.nbytes() == bytes, "got ", bytes, " bytes, want ", t.nbytes());
    if (bytes) std::memcpy(t.data_ptr(), data, bytes);
    return t;
  });
}

pt_result full(const int64_t *shape, int dims, double value, int dtype, int device) {
  return tensor([&] { return at::full(sizes(shape, dims), value, options(dtype, device)); });
}


pt_result cat(pt_tensor *tensors, int count, int64_t dim) {
  return tensor([&] { return at::cat(list(tensors, count), dim); });
}

// ---- inspection ----

int dims(pt_tensor t) { return static_cast<int>(T(t).dim()); }

void shape(pt_tensor t, int64_t *out) {
  for (int64_t size : T(t).sizes()) *out++ = size;
}

int dtype(pt_tensor t) {
  switch (T(t).scalar_type()) {
  case at::kFloat: return PT_F32;
  case at::kBFloat16: return PT_BF16;
  case at::kHalf: return PT_F16;
  case at::kDouble: return PT_F64;
  case at::kLong: return PT_I64;
  case at::kInt: return PT_I32;
  case at::kByte: return PT_U8;
  case at::kBool: return PT_BOOL;
  default: return -1;
  }
}

int device(pt_tensor t) { return T(t).device().is_cpu() ? -1 : static_cast<int>(T(t).get_device()); }
int64_t numel(pt_tensor t) { return T(t).numel(); }

pt_number item(pt_tensor t) {
  return number([&] { return T(t).item().toDouble(); });
}

char *to_bytes(pt_tensor t, void *data, size_t bytes) {
  return status([&] {
    at::Tensor source = T(t).detach().contiguous();
    TORCH_CHECK(source.nbytes() == bytes, "got ", bytes, " bytes, want ", source.nbytes());
    if (!bytes) return;
    if (on_cpu(source)) {
      std::memcpy(data, source.data_ptr(), bytes);
    } else {
      at::from_blob(data, source.sizes(), at::TensorOptions().dtype(source.scalar_type())).copy_(source);
    }
  });
}

// Returns the tensor's own memory, or NULL if it is not one contiguous block that the CPU can read.
void *cpu_data(pt_tensor t) {
  const at::Tensor &a = T(t);
  return a.device().is_cpu() && a.is_contiguous() ? a.data_ptr() : nullptr;
}

// Returns the address of the elements in the memory of the tensor's device, or NULL if they are not
// one contiguous block.
void *address(pt_tensor t) {
  const at::Tensor &a = T(t);
  return a.is_contiguous() ? a.data_ptr() : nullptr;
}

// ---- shape ----

pt_result to(pt_tensor t, int dtype, int device) {
  return tensor([&] { return T(t).to(on(device), scalar_type(dtype)); });
}
pt_result reshape(pt_tensor t, const int64_t *shape, int dims) {
  return tensor([&] { return T(t).reshape(sizes(shape, dims)); });
}
pt_result expand(pt_tensor t, const int64_t *shape, int dims) {
  return tensor([&] { return T(t).expand(sizes(shape, dims)); });
}
pt_result permute(pt_tensor t, const int64_t *order, int dims) {
  return tensor([&] { return T(t).permute(sizes(order, dims)); });
}
pt_result transpose(pt_tensor t, int64_t a, int64_t b) {
  return tensor([&] { return T(t).transpose(a, b); });
}
pt_result unsqueeze(pt_tensor t, int64_t dim) {
  return tensor([&] { return T(t).unsqueeze(dim); });
}
pt_result squeeze(pt_tensor t, int64_t dim) {
  return tensor([&] { return T(t).squeeze(dim); });
}
pt_result narrow(pt_tensor t, int64_t dim, int64_t start, int64_t length) {
  return tensor([&] { return T(t).narrow(dim, start, length); });
}
pt_result contiguous(pt_tensor t) {
  return tensor([&] { return T(t).contiguous(); });
}
pt_result clone(pt_tensor t) {
  return tensor([&] { return T(t).clone(); });
}
pt_result gather(pt_tensor t, int64_t dim, pt_tensor index) {
  return tensor([&] { return at::gather(T(t), dim, T(index)); });
}
pt_result index_select(pt_tensor t, int64_t dim, pt_tensor index) {
  return tensor([&] { return at::index_select(T(t), dim, T(index)); });
}
pt_result masked_fill(pt_tensor t, pt_tensor mask, double value) {
  return tensor([&] { return at::masked_fill(T(t), T(mask), value); });
}
pt_result triu(pt_tensor t, int64_t diagonal) {
  return tensor([&] { return at::triu(T(t), diagonal); });
}

// ---- arithmetic ----

pt_result add(pt_tensor a, pt_tensor b, double alpha) {
  return tensor([&] { return at::add(T(a), T(b), alpha); });
}
pt_result mul(pt_tensor a, pt_tensor b) {
  return tensor([&] { return at::mul(T(a), T(b)); });
}
pt_result div(pt_tensor a, pt_tensor b) {
  return tensor([&] { return at::div(T(a), T(b)); });
}
pt_result add_scalar(pt_tensor t, double value) {
  return tensor([&] { return at::add(T(t), value); });
}
pt_result mul_scalar(pt_tensor t, double value) {
  return tensor([&] { return at::mul(T(t), value); });
}
pt_result eq_scalar(pt_tensor t, double value) {
  return tensor([&] { return at::eq(T(t), value); });
}

#define PT_UNARY(name)                                     \
  pt_result name(pt_tensor t) {                            \
    return tensor([&] { return at::name(T(t)); });         \
  }
PT_UNARY(neg)
PT_UNARY(sign)
PT_UNARY(log)
PT_UNARY(sqrt)
PT_UNARY(sin)
PT_UNARY(cos)
PT_UNARY(sigmoid)
PT_UNARY(sum)
PT_UNARY(mean)
#undef PT_UNARY

pt_result matmul(pt_tensor a, pt_tensor b) {
  return tensor([&] { return at::matmul(T(a), T(b)); });
}
pt_result linear(pt_tensor x, pt_tensor weight) {
  return tensor([&] { return at::linear(T(x), T(weight)); });
}
pt_result embedding(pt_tensor weight, pt_tensor ids) {
  return tensor([&] { return at::embedding(T(weight), T(ids)); });
}

// ---- reductions ----

pt_result sum_dim(pt_tensor t, int64_t dim, int keep) {
  return tensor([&] { return at::sum(T(t), at::IntArrayRef(dim), keep != 0); });
}
pt_result mean_dim(pt_tensor t, int64_t dim, int keep) {
  return tensor([&] { return at::mean(T(t), at::IntArrayRef(dim), keep != 0); });
}
pt_result softmax(pt_tensor t, int64_t dim) {
  return tensor([&] { return at::softmax(T(t), dim); });
}
pt_result cross_entropy(pt_tensor logits, pt_tensor targets) {
  return tensor([&] { return at::cross_entropy_loss(T(logits), T(targets)); });
}

pt_number norm(pt_tensor *tensors, int count) {
  return number([&] {
    double squares = 0;
    for (int i = 0; i < count; i++) {
      double n = at::norm(T(tensors[i]).detach(), 2).item().toDouble();
      squares += n * n;
    }
    return std::sqrt(squares);
  });
}

pt_number all_finite(pt_tensor *tensors, int count) {
  return number([&] {
    for (int i = 0; i < count; i++) {
      if (!at::isfinite(T(tensors[i]).detach()).all().item().toBool()) return 0.0;
    }
    return 1.0;
  });
}

// ---- in place ----

char *add_in_place(pt_tensor t, pt_tensor other, double alpha) {
  return status([&] { T(t).add_(T(other), alpha); });
}
char *mul_scalar_in_place(pt_tensor t, double value) {
  return status([&] { T(t).mul_(value); });
}
char *lerp_in_place(pt_tensor t, pt_tensor end, double weight) {
  return status([&] { T(t).lerp_(T(end), weight); });
}
char *copy(pt_tensor t, pt_tensor source) {
  return status([&] { T(t).copy_(T(source)); });
}

// ---- autograd ----

char *backward(pt_tensor t) {
  return status([&] { T(t).backward(); });
}

// Returns neither a tensor nor an error if there is no gradient.
pt_result grad(pt_tensor t) {
  at::Tensor g = T(t).grad();
  return g.defined() ? own(std::move(g)) : pt_result{nullptr, nullptr};
}

char *clear_grad(pt_tensor t) {
  return status([&] { T(t).mutable_grad().reset(); });
}
char *set_requires_grad(pt_tensor t, int on) {
  return status([&] { T(t).set_requires_grad(on != 0); });
}
int requires_grad(pt_tensor t) { return T(t).requires_grad(); }
pt_result detach(pt_tensor t) {
  return tensor([&] { return T(t).detach(); });
}

} // namespace psyche
