// Attention of the strict device: one kernel in the forward pass, like the kernels of CUDA. If the
// device did not have it, libtorch would compose attention from about 20 operations.
#include "device.h"

#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 5)

#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

#include <array>
#include <tuple>

namespace strict {
namespace {

using at::Tensor;

// The number of kernels that CUDA launches for the backward pass of one attention.
constexpr int kBackward = 4;

// Each head of keys or values, repeated for the query heads that share it.
Tensor repeated(const Tensor &t, int64_t heads) { return t.size(1) == heads ? t : t.repeat_interleave(heads / t.size(1), 1); }

// The gradient of repeated's argument.
Tensor summed(const Tensor &g, int64_t heads) {
  if (g.size(1) == heads) return g;
  return g.view({g.size(0), heads, g.size(1) / heads, g.size(2), g.size(3)}).sum(2);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
forward(const Tensor &q, const Tensor &k, const Tensor &v, const optional<Tensor> &bias, double dropout, bool causal, bool,
        optional<double> scale) {
  TORCH_CHECK(!bias && dropout == 0, "the attention of the strict device has neither a bias nor dropout");
  count_launch("attention");
  OpenTensors open{q, k, v};
  int64_t heads = q.size(1);
  auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(host(q), repeated(host(k), heads), repeated(host(v), heads), 0, causal,
                                                                     {}, scale);
  Tensor none = at::empty({0}, q.options().dtype(at::kLong));
  return {moved(out, q.device()), moved(sums, q.device()), none, none, q.size(2), k.size(2), none, none, none};
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
backward(const Tensor &g, const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &, std::array<bool, 4>, const Tensor &out,
         const Tensor &sums, const Tensor &, const Tensor &, c10::SymInt, c10::SymInt, double, bool causal, const Tensor &, const Tensor &,
         optional<double> scale) {
  for (int i = 0; i < kBackward; i++) count_launch("attention, backward");
  OpenTensors open{g, q, k, v, out, sums};
  int64_t heads = q.size(1), keys = k.size(1);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      host(g), host(q), repeated(host(k), heads), repeated(host(v), heads), host(out), host(sums), 0, causal, {}, scale);
  return {moved(dq, q.device()), moved(summed(dk, keys), q.device()), moved(summed(dv, keys), q.device()), Tensor()};
}

int64_t choice(const Tensor &, const Tensor &, const Tensor &, const optional<Tensor> &, double, bool, optional<double>, bool) {
  return static_cast<int64_t>(at::SDPBackend::overrideable);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(forward));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(backward));
}

} // namespace
} // namespace strict

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &strict::choice);
}

#endif
