// Attention with libtorch's own kernels, for devices without our own loops.
#include "pieces.h"

#include <torch/version.h>

#include <cmath>

namespace psyche {

#if TORCH_VERSION_MAJOR >= 2

bool has_sdpa(const Tensor &q) { return !on_cpu(q); }

// Returns the heads of [B,S,KV,D] as [B,H,S,D], each repeated for the queries that share it. Not
// all versions and types have kernels that accept fewer key heads than query heads.
static Tensor shared(const Tensor &t, int64_t heads) {
  int64_t B = t.size(0), S = t.size(1), KV = t.size(2), D = t.size(3);
  if (KV == heads) return t.transpose(1, 2);
  return t.unsqueeze(3).expand({B, S, KV, heads / KV, D}).reshape({B, S, heads, D}).transpose(1, 2);
}

Tensor sdpa(const Tensor &q, const Tensor &k, const Tensor &v, double scale) {
  int64_t T = q.size(1), H = q.size(2), D = q.size(3), E = v.size(3);
  TORCH_CHECK(T == 1 || T == k.size(1), "got ", T, " queries for ", k.size(1), " keys, want 1 or as many queries as keys");
  // The kernels require values as wide as keys.
  Tensor values = E < D ? at::constant_pad_nd(v, {0, D - E}) : v, y;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 5
  if (q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf) { // flash attention reads shared heads without copies
    y = at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), values.transpose(1, 2), {}, 0.0, T > 1, scale,
                                         k.size(2) != H);
  } else {
    y = at::scaled_dot_product_attention(q.transpose(1, 2), shared(k, H), shared(values, H), {}, 0.0, T > 1, scale);
  }
#elif TORCH_VERSION_MINOR >= 1
  y = at::scaled_dot_product_attention(q.transpose(1, 2), shared(k, H), shared(values, H), {}, 0.0, T > 1, scale);
#else // always divides by the root of the width
  Tensor scaled = q * (scale * std::sqrt(static_cast<double>(D)));
  y = at::scaled_dot_product_attention(scaled.transpose(1, 2), shared(k, H), shared(values, H), {}, 0.0, T > 1);
#endif
  y = y.transpose(1, 2);
  return E < D ? y.narrow(3, 0, E) : y;
}

#else

bool has_sdpa(const Tensor &) { return false; }

Tensor sdpa(const Tensor &, const Tensor &, const Tensor &, double) { TORCH_CHECK(false, "libtorch ", TORCH_VERSION, " has no attention kernel"); }

#endif

} // namespace psyche
