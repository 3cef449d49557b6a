// The two ends of a language model: the embedding, and the head with its cross-entropy.
#include "pieces.h"

#include <c10/core/GradMode.h>

#include <algorithm>

namespace psyche {

// ---- embedding ----

struct Embed : torch::autograd::Function<Embed> {
  static Tensor forward(AutogradContext *ctx, const Tensor &weight, const Tensor &ids, at::ScalarType type) {
    ctx->save_for_backward({weight, ids});
    auto shape = ids.sizes().vec();
    shape.push_back(weight.size(1));
    return cast(at::index_select(weight.detach(), 0, ids.reshape(-1)), type).view(shape);
  }

  // Changes only the used rows. If the table already has a gradient, such as one from a tied head,
  // no second gradient of the whole table is made.
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    const Tensor &weight = saved[0];
    if (weight.requires_grad()) {
      Tensor &sum = weight.mutable_grad();
      if (!sum.defined()) sum = at::zeros(weight.sizes(), weight.options());
      Tensor g = cast(grads[0].contiguous(), weight.scalar_type());
      sum.index_add_(0, saved[1].reshape(-1), g.view({-1, weight.size(1)}));
    }
    return {Tensor(), Tensor(), Tensor()};
  }
};

pt_result embed(pt_tensor weight, pt_tensor ids, int dtype) {
  return tensor([&] {
    const Tensor &w = T(weight);
    TORCH_CHECK(w.dim() == 2 && w.is_leaf(), "weight must be a leaf [V,N], got ", w.sizes());
    return Embed::apply(w, T(ids), scalar_type(dtype));
  });
}

// ---- linear and cross-entropy ----

// The logits of all rows would be the largest tensor of a step (rows x vocabulary). So the forward
// pass computes them some rows at a time, and with them the gradients of x and weight. The backward
// pass multiplies these gradients by the gradient of the loss, unless that is known to be 1.
namespace {

// Adds share times the cross-entropy of each row to loss. Unless slope is 0, logits [n,V] become
// slope times their gradient.
void cross_entropy_rows(Tensor &logits, const Tensor &targets, const Tensor &share, double slope, Tensor &loss) {
  int64_t n = logits.size(0), V = logits.size(1);
  if (plain(logits)) {
    Tensor losses = at::empty({n}, share.options());
    with_elements(logits, [&](auto *e) {
      using E = std::remove_pointer_t<decltype(e)>;
      at::parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
          data<float>(losses)[i] = kernels::cross_entropy(data<E>(logits) + i * V, V, data<int64_t>(targets)[i], data<float>(share)[i],
                                                          static_cast<float>(slope));
        }
      });
    });
    loss.add_(losses.sum());
    return;
  }
  Tensor wanted = targets.unsqueeze(1), part = share.unsqueeze(1);
  Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  Tensor lse = at::logsumexp(wide, {1}, true);
  loss.add_((lse - wide.gather(1, wanted)).mul_(part).sum());
  if (slope == 0) return;
  if (slope != 1) part = part * slope;
  Tensor g = at::exp(wide - lse).mul_(part);
  logits.copy_(g.scatter_add_(1, wanted, part.neg()));
}

// The size in bytes of the logits computed at once. It fits the caches of a CPU, and is large
// enough to keep other devices busy.
int64_t logits_at_once(const Tensor &x) { return int64_t{on_cpu(x) ? 32 : 256} << 20; }

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static Tensor forward(AutogradContext *ctx, const Tensor &input, const Tensor &weight, const Tensor &targets, int64_t ignore,
                        int64_t rows, double root, bool train) {
    Tensor x = input.contiguous();
    int64_t N = x.size(0), V = weight.size(0);
    auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    Tensor counted = targets.ne(ignore);
    Tensor share = counted.to(wide); // 1/count on counted rows, 0 on the others
    share.div_(share.sum().clamp_min_(1));
    Tensor wanted = targets.masked_fill(counted.logical_not(), 0);
    if (x.device().is_cpu()) { // elsewhere reading would wait for the device
      TORCH_CHECK(N == 0 || (wanted.min().item().toLong() >= 0 && wanted.max().item().toLong() < V), "a target is not in [0,", V, ")");
    }
    double slope = !train ? 0 : root != 0 ? root : 1;
    Tensor loss = at::zeros({}, x.options().dtype(wide)), w = cast(weight.detach().contiguous(), x.scalar_type());
    Tensor dx, dw;
    if (train) dx = at::empty_like(x);
    if (rows <= 0) rows = std::max<int64_t>(64, logits_at_once(x) / std::max<int64_t>(1, V * x.element_size()) / 64 * 64);
    Tensor buffer = at::empty({std::min(rows, N), V}, x.options());
    for (int64_t i = 0; i < N; i += rows) {
      int64_t n = std::min(rows, N - i);
      Tensor xb = x.narrow(0, i, n), logits = buffer.narrow(0, 0, n);
      at::mm_out(logits, xb, w.t());
      cross_entropy_rows(logits, wanted.narrow(0, i, n), share.narrow(0, i, n), slope, loss);
      if (!train) continue;
      Tensor dxb = dx.narrow(0, i, n);
      at::mm_out(dxb, logits, w);
      if (!dw.defined()) {
        dw = cast(at::mm(logits.t(), xb), weight.scalar_type());
      } else if (dw.scalar_type() == x.scalar_type()) {
        dw.addmm_(logits.t(), xb);
      } else {
        dw.add_(at::mm(logits.t(), xb));
      }
    }
    if (train) ctx->save_for_backward({dx, dw, weight});
    ctx->saved_data["root"] = root != 0;
    return loss;
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    Tensor dx = saved[0], dw = saved[1], weight = saved[2], g = grads[0];
    if (ctx->saved_data["root"].toBool()) {
      TORCH_CHECK(!g.device().is_cpu() || g.item().toDouble() == 1, "a loss with a share needs the gradient 1, got ", g.item().toDouble());
    } else if (!on_cpu(g) || g.item().toDouble() != 1) { // reading g would wait for the device
      dx = dx.mul_(g.to(dx.scalar_type())), dw = dw.mul_(g.to(dw.scalar_type()));
    }
    variable_list out(7);
    out[0] = dx;
    if (weight.is_leaf()) {
      add_gradient(weight, dw);
    } else {
      out[1] = dw;
    }
    return out;
  }
};

} // namespace

pt_result linear_cross_entropy(pt_tensor x, pt_tensor weight, pt_tensor targets, int64_t ignore, int64_t rows,
                               double share) {
  return tensor([&] {
    const Tensor &a = T(x), &w = T(weight), &t = T(targets);
    TORCH_CHECK(a.dim() == 2 && w.dim() == 2 && a.size(1) == w.size(1) && t.dim() == 1 && t.size(0) == a.size(0),
                "x [N,H], weight [V,H], targets [N], got ", a.sizes(), w.sizes(), t.sizes());
    TORCH_CHECK(t.scalar_type() == at::kLong, "targets must be i64, got ", t.scalar_type());
    bool train = c10::GradMode::is_enabled() && (a.requires_grad() || w.requires_grad());
    return LinearCrossEntropy::apply(a, w, t.contiguous(), ignore, rows, share, train);
  });
}

} // namespace psyche
