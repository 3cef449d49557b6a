// The pieces of a transformer that pay when done as one: what a composition of single
// operations would keep in memory for the backward pass is recomputed or never made.
#include "kernels.h"
#include "shim.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace psyche {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Whether the loops of kernels.h can run on these tensors.
template <class... Tensors> static bool plain_f32(const Tensors &...t) {
  return ((t.device().is_cpu() && t.scalar_type() == at::kFloat) && ...);
}

// ---- RMSNorm ----

static Tensor rms_norm_composed(const Tensor &x, const Tensor &weight, double epsilon) {
  Tensor wide = x.to(at::kFloat);
  Tensor normal = wide * at::rsqrt(at::mean(wide * wide, {-1}, true) + epsilon);
  return weight * normal.to(x.scalar_type());
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  // Parts the gradient of the weight is summed in, fixed so that its bits do not depend on
  // the number of threads.
  static constexpr int64_t kParts = 16;

  static Tensor forward(AutogradContext *ctx, const Tensor &input, const Tensor &weight, double epsilon) {
    Tensor x = input.contiguous(), w = weight.contiguous();
    int64_t n = x.size(-1), rows = n ? x.numel() / n : 0;
    Tensor y = at::empty_like(x), inverse = at::empty({rows}, x.options());
    const float *from = x.data_ptr<float>();
    float *to = y.data_ptr<float>(), *inv = inverse.data_ptr<float>();
    at::parallel_for(0, rows, 64, [&](int64_t begin, int64_t end) {
      kernels::rms_norm(from + begin * n, w.data_ptr<float>(), to + begin * n, inv + begin, end - begin, n,
                        static_cast<float>(epsilon));
    });
    ctx->save_for_backward({x, w, inverse});
    return y;
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &w = saved[1], &inverse = saved[2];
    Tensor g = grads[0].contiguous(), dx = at::empty_like(x);
    int64_t n = w.numel(), rows = inverse.numel();
    Tensor parts = at::zeros({kParts, n}, w.options());
    at::parallel_for(0, kParts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; part++) {
        int64_t begin = rows * part / kParts, end = rows * (part + 1) / kParts;
        kernels::rms_norm_backward(g.data_ptr<float>() + begin * n, x.data_ptr<float>() + begin * n, w.data_ptr<float>(),
                                   inverse.data_ptr<float>() + begin, dx.data_ptr<float>() + begin * n,
                                   parts.data_ptr<float>() + part * n, end - begin, n);
      }
    });
    return {dx, parts.sum(0), Tensor()};
  }
};

pt_result rms_norm(pt_tensor x, pt_tensor weight, double epsilon) {
  return tensor([&] {
    const Tensor &a = T(x), &w = T(weight);
    TORCH_CHECK(a.dim() > 0 && w.dim() == 1 && w.size(0) == a.size(-1), "x [...,n] and weight [n], got ", a.sizes(), w.sizes());
    return plain_f32(a, w) ? RmsNorm::apply(a, w, epsilon) : rms_norm_composed(a, w, epsilon);
  });
}

// ---- rotary positions ----

// Rotates the pairs (i, i+D/2) of each head; x [B,T,H,D], cos and sin [T,D/2].
static Tensor rotated(const Tensor &x, const Tensor &cos, const Tensor &sin, int direction) {
  int64_t half = x.size(-1) / 2;
  if (!plain_f32(x, cos, sin)) {
    Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
    Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1) * direction;
    return at::cat({a * c - b * s, b * c + a * s}, -1);
  }
  Tensor from = x.contiguous(), to = at::empty_like(from);
  int64_t T = x.size(1), H = x.size(2), row = H * 2 * half;
  at::parallel_for(0, x.size(0) * T, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      kernels::rotate(from.data_ptr<float>() + i * row, cos.data_ptr<float>() + i % T * half, sin.data_ptr<float>() + i % T * half,
                      static_cast<float>(direction), to.data_ptr<float>() + i * row, H, half);
    }
  });
  return to;
}

struct Rope : torch::autograd::Function<Rope> {
  static Tensor forward(AutogradContext *ctx, const Tensor &x, const Tensor &cos, const Tensor &sin) {
    Tensor c = cos.contiguous(), s = sin.contiguous();
    ctx->save_for_backward({c, s});
    return rotated(x, c, s, 1);
  }
  // The inverse of a rotation is the rotation by the opposite angle.
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    return {rotated(grads[0], saved[0], saved[1], -1), Tensor(), Tensor()};
  }
};

pt_result rope(pt_tensor x, pt_tensor cos, pt_tensor sin) {
  return tensor([&] {
    const Tensor &a = T(x);
    TORCH_CHECK(a.dim() == 4 && a.size(3) % 2 == 0, "x must be [B,T,H,D] with even D, got ", a.sizes());
    TORCH_CHECK(T(cos).dim() == 2 && T(cos).size(0) == a.size(1) && T(cos).size(1) * 2 == a.size(3),
                "cos must be [T,D/2], got ", T(cos).sizes(), " for x ", a.sizes());
    TORCH_CHECK(T(sin).sizes() == T(cos).sizes(), "sin must have the shape of cos");
    return Rope::apply(a, T(cos), T(sin));
  });
}

pt_result swiglu(pt_tensor gate, pt_tensor up) {
  return tensor([&] { return at::silu(T(gate)) * T(up); });
}

// ---- attention ----

// Grouped-query causal attention, a block of queries at a time over only the keys it may
// see, so that neither direction ever holds a [T,S] matrix of scores. The query heads of
// one group are stacked along the rows, which shares keys and values without copying them.
namespace {

constexpr int64_t kQueryBlock = 64;

struct AttentionShape {
  int64_t B, T, H, D, S, KV, G, past;
  // q [B,T,H,D]; k [B*KV,S,D].
  AttentionShape(const Tensor &q, const Tensor &keys)
      : B(q.size(0)), T(q.size(1)), H(q.size(2)), D(q.size(3)), S(keys.size(1)), KV(keys.size(0) / B), G(H / KV), past(S - T) {}
};

// [B,S,KV,D] -> [B*KV,S,D]
Tensor by_head(const Tensor &t) {
  return t.transpose(1, 2).reshape({t.size(0) * t.size(2), t.size(1), t.size(3)});
}

// [B*KV,S,D] -> [B,S,KV,D]
Tensor from_heads(const Tensor &t, const AttentionShape &a) {
  return t.view({a.B, a.KV, a.S, a.D}).transpose(1, 2);
}

// Rows i..i+n of [B,T,H,D] as [B*KV, G*n, D].
Tensor query_block(const Tensor &t, const AttentionShape &a, int64_t i, int64_t n) {
  return t.narrow(1, i, n).reshape({a.B, n, a.KV, a.G, a.D}).permute({0, 2, 3, 1, 4}).reshape({a.B * a.KV, a.G * n, a.D});
}

// The inverse of query_block, written into rows i..i+n of out.
void put_query_block(Tensor out, const Tensor &block, const AttentionShape &a, int64_t i, int64_t n) {
  out.narrow(1, i, n).view({a.B, n, a.KV, a.G, a.D}).copy_(block.view({a.B, a.KV, a.G, n, a.D}).permute({0, 3, 1, 2, 4}));
}

// Adds -inf where a key lies in the future of its query. scores [B*KV, G*n, past+i+n].
void hide_future(Tensor &scores, const AttentionShape &a, int64_t i, int64_t n) {
  if (n == 1) return;
  Tensor future = at::full({n, n}, -std::numeric_limits<float>::infinity(), scores.options()).triu_(1);
  scores.view({a.B * a.KV, a.G, n, a.past + i + n}).narrow(3, a.past + i, n).add_(future);
}

// Probabilities of the block's queries over the keys they see, [B*KV, G*n, past+i+n].
Tensor probabilities(const Tensor &queries, const Tensor &keys, const AttentionShape &a, int64_t i, int64_t n) {
  Tensor scores = at::bmm(queries, keys.narrow(1, 0, a.past + i + n).transpose(1, 2)).to(at::kFloat);
  hide_future(scores, a, i, n);
  return at::softmax(scores, -1);
}

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static Tensor forward(AutogradContext *ctx, const Tensor &q, const Tensor &k, const Tensor &v, double scale) {
    Tensor scaled = q * scale, keys = by_head(k), values = by_head(v);
    AttentionShape a(q, keys);
    Tensor out = at::empty({a.B, a.T, a.H, a.D}, q.options());
    for (int64_t i = 0; i < a.T; i += kQueryBlock) {
      int64_t n = std::min(kQueryBlock, a.T - i);
      Tensor p = probabilities(query_block(scaled, a, i, n), keys, a, i, n).to(q.scalar_type());
      put_query_block(out, at::bmm(p, values.narrow(1, 0, a.past + i + n)), a, i, n);
    }
    ctx->save_for_backward({scaled, keys, values});
    ctx->saved_data["scale"] = scale;
    return out;
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    const Tensor &scaled = saved[0], &keys = saved[1], &values = saved[2], &g = grads[0];
    AttentionShape a(scaled, keys);
    Tensor dq = at::empty({a.B, a.T, a.H, a.D}, scaled.options());
    Tensor dk = at::zeros_like(keys), dv = at::zeros_like(values);
    for (int64_t i = 0; i < a.T; i += kQueryBlock) {
      int64_t n = std::min(kQueryBlock, a.T - i), seen = a.past + i + n;
      Tensor qb = query_block(scaled, a, i, n), gb = query_block(g, a, i, n);
      Tensor p = probabilities(qb, keys, a, i, n);
      dv.narrow(1, 0, seen).baddbmm_(p.transpose(1, 2).to(g.scalar_type()), gb);
      Tensor dp = at::bmm(gb, values.narrow(1, 0, seen).transpose(1, 2)).to(at::kFloat);
      Tensor ds = at::_softmax_backward_data(dp, p, -1, at::kFloat).to(g.scalar_type());
      dk.narrow(1, 0, seen).baddbmm_(ds.transpose(1, 2), qb);
      put_query_block(dq, at::bmm(ds, keys.narrow(1, 0, seen)), a, i, n);
    }
    dq.mul_(ctx->saved_data["scale"].toDouble());
    return {dq, from_heads(dk, a), from_heads(dv, a), Tensor()};
  }
};

} // namespace

pt_result causal_attention(pt_tensor q, pt_tensor k, pt_tensor v, double scale) {
  return tensor([&] {
    const Tensor &a = T(q), &b = T(k), &c = T(v);
    TORCH_CHECK(a.dim() == 4 && b.dim() == 4 && b.sizes() == c.sizes(), "q [B,T,H,D] and k, v [B,S,KV,D], got ", a.sizes(),
                b.sizes(), c.sizes());
    TORCH_CHECK(a.size(0) == b.size(0) && a.size(3) == b.size(3) && b.size(1) >= a.size(1) && b.size(2) > 0 &&
                    a.size(2) % b.size(2) == 0,
                "heads do not fit: q ", a.sizes(), ", k ", b.sizes());
    return CausalAttention::apply(a, b, c, scale);
  });
}

// ---- linear and cross-entropy ----

// The logits of all rows at once are the largest tensor of a step (rows x vocabulary), so
// they are made some rows at a time, and the gradients with them: x and weight get theirs
// in the forward pass, the backward pass only multiplies by the gradient of the loss.
namespace {

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static Tensor forward(AutogradContext *ctx, const Tensor &x, const Tensor &weight, const Tensor &targets, int64_t ignore,
                        int64_t rows, bool train) {
    int64_t N = x.size(0), V = weight.size(0);
    Tensor counted = targets.ne(ignore);
    Tensor share = counted.to(at::kFloat); // 1/count on counted rows, 0 on the others
    double count = share.sum().item().toDouble();
    if (count > 0) share.div_(count);
    Tensor wanted = targets.masked_fill(counted.logical_not(), 0).unsqueeze(1);
    share = share.unsqueeze(1);
    Tensor loss = at::zeros({}, x.options().dtype(at::kFloat));
    Tensor dx, dw;
    if (train) dx = at::empty_like(x), dw = at::zeros_like(weight);
    if (rows <= 0) rows = std::max<int64_t>(64, (int64_t{8} << 20) / std::max<int64_t>(1, V));
    for (int64_t i = 0; i < N; i += rows) {
      int64_t n = std::min(rows, N - i);
      Tensor xb = x.narrow(0, i, n), tb = wanted.narrow(0, i, n), sb = share.narrow(0, i, n);
      Tensor logits = at::matmul(xb, weight.t()).to(at::kFloat);
      Tensor lse = at::logsumexp(logits, {1}, true);
      loss.add_(((lse - logits.gather(1, tb)).mul_(sb)).sum());
      if (!train) continue;
      Tensor g = logits.sub_(lse).exp_().mul_(sb);
      g.scatter_add_(1, tb, sb.neg());
      g = g.to(weight.scalar_type());
      dx.narrow(0, i, n).copy_(at::matmul(g, weight));
      dw.addmm_(g.t(), xb);
    }
    if (train) ctx->save_for_backward({dx, dw});
    return loss;
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    Tensor dx = saved[0], dw = saved[1], g = grads[0];
    if (!g.device().is_cpu() || g.item().toDouble() != 1) {
      dx = dx * g.to(dx.scalar_type()), dw = dw * g.to(dw.scalar_type());
    }
    return {dx, dw, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

} // namespace

pt_result linear_cross_entropy(pt_tensor x, pt_tensor weight, pt_tensor targets, int64_t ignore, int64_t rows) {
  return tensor([&] {
    const Tensor &a = T(x), &w = T(weight), &t = T(targets);
    TORCH_CHECK(a.dim() == 2 && w.dim() == 2 && a.size(1) == w.size(1) && t.dim() == 1 && t.size(0) == a.size(0),
                "x [N,H], weight [V,H], targets [N], got ", a.sizes(), w.sizes(), t.sizes());
    bool train = c10::GradMode::is_enabled() && (a.requires_grad() || w.requires_grad());
    return LinearCrossEntropy::apply(a, w, t, ignore, rows, train);
  });
}

// ---- optimizer ----

// One step of AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2) in one pass.
char *adamw_step(pt_tensor parameter, pt_tensor grad, pt_tensor m, pt_tensor v, double rate, double beta1, double beta2,
                 double epsilon, double decay, int64_t step) {
  return status([&] {
    c10::NoGradGuard no_grad;
    Tensor &p = T(parameter), &mean = T(m), &square = T(v);
    const Tensor &g = T(grad);
    mean.mul_(beta1).add_(g, 1 - beta1);
    square.mul_(beta2).addcmul_(g, g, 1 - beta2);
    double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
    double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
    Tensor root = square.sqrt().div_(std::sqrt(correction2)).add_(epsilon);
    if (decay != 0) p.mul_(1 - rate * decay);
    p.addcdiv_(mean, root, -rate / correction1);
  });
}

} // namespace psyche
