// Products of bf16 or f16 matrices in f32, which only devices have.
#include "device.h"

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)

namespace strict {
namespace {

using at::Tensor;

Tensor product(const Tensor &a, const Tensor &b, at::ScalarType type) {
  count_launch("aten::mm.dtype");
  OpenTensors open{a, b};
  return moved(at::mm(host(a).to(type), host(b).to(type)), a.device());
}

Tensor &add_product(const Tensor &sum, const Tensor &a, const Tensor &b, at::ScalarType type, const at::Scalar &beta, const at::Scalar &alpha,
                    Tensor &out) {
  count_launch("aten::addmm.dtype_out");
  if (!out.is_same(sum)) count_launch("copy for aten::addmm.dtype_out");
  OpenTensors open{sum, a, b, out};
  host(out).copy_(at::addmm(host(sum), host(a).to(type), host(b).to(type), beta, alpha));
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mm.dtype", TORCH_FN(product));
  m.impl("addmm.dtype_out", TORCH_FN(add_product));
}

} // namespace
} // namespace strict

#endif
