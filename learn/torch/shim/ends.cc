// The two ends of a language model: the embedding, and the head with its cross-entropy.
#include "pieces.h"

#include <c10/core/GradMode.h>

#include <algorithm>

namespace psyche {

// The kernels for devices read these numbers through their address.
static void check_numbers(const Tensor &numbers, const Tensor &other, const char *name) {
  TORCH_CHECK(numbers.scalar_type() == at::kLong, name, " must be i64, got ", numbers.scalar_type());
  TORCH_CHECK(numbers.device() == other.device(), name, " are on ", numbers.device(), ", the other tensors on ", other.device());
}

// ---- embedding ----

struct Embed : torch::autograd::Function<Embed> {
  static Tensor forward(AutogradContext *ctx, const Tensor &weight, const Tensor &ids, at::ScalarType type) {
    ctx->save_for_backward({weight, ids});
    bool own = launches::fit(weight.detach()) && weight.scalar_type() == at::kFloat && (type == at::kFloat || type == at::kBFloat16) && ids.is_contiguous();
    auto shape = ids.sizes().vec();
    shape.push_back(weight.size(1));
    if (own) return launches::embed(weight.detach(), ids, type).view(shape);
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
      Tensor g = grads[0].contiguous().view({-1, weight.size(1)}), ids = saved[1].reshape(-1);
      if (launches::fit(g, {sum}) && sum.scalar_type() == at::kFloat) {
        launches::embed_gradient(g, ids, sum);
      } else {
        sum.index_add_(0, ids, cast(g, weight.scalar_type()));
      }
    }
    return {Tensor(), Tensor(), Tensor()};
  }
};

pt_result embed(pt_tensor weight, pt_tensor ids, int dtype) {
  return tensor([&] {
    const Tensor &w = T(weight);
    TORCH_CHECK(w.dim() == 2 && w.is_leaf(), "weight must be a leaf [V,N], got ", w.sizes());
    check_numbers(T(ids), w, "ids");
    return Embed::apply(w, T(ids), scalar_type(dtype));
  });
}

// ---- linear and cross-entropy ----

// The logits of all rows would be the largest tensor of a step (rows x vocabulary). So the forward
// pass computes them some rows at a time, and with them the gradients of x and weight. The backward
// pass multiplies these gradients by the gradient of the loss, unless that is known to be 1.
namespace {

// The mean cross-entropy of the rows of logits with targets other than ignore. Each call of rows
// computes some of them.
class CrossEntropy {
public:
  // Unless slope is 0, rows replaces the logits by slope times their gradient. V is their width.
  CrossEntropy(const Tensor &x, const Tensor &all, int64_t ignore, int64_t V, double slope)
      : targets(all), ignore(ignore), slope(slope), own(launches::fit(x)) {
    auto wide = x.options().dtype(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    if (own || plain(x)) losses = at::empty({all.size(0)}, wide);
    if (own) {
      count = launches::count(targets, ignore);
      return;
    }
    if (!losses.defined()) sum = at::zeros({}, wide);
    Tensor counted = targets.ne(ignore);
    share = counted.to(wide.dtype().toScalarType()); // 1/count on counted rows, 0 on the others
    share.div_(share.sum().clamp_min_(1));
    targets = targets.masked_fill(counted.logical_not(), 0);
    if (x.device().is_cpu() && all.size(0) > 0) { // elsewhere reading would wait for the device
      TORCH_CHECK(targets.min().item().toLong() >= 0 && targets.max().item().toLong() < V, "a target is not in [0,", V, ")");
    }
  }

  // Computes the rows from first on, logits [n,V].
  void rows(Tensor &logits, int64_t first) {
    int64_t n = logits.size(0), V = logits.size(1);
    Tensor some = targets.narrow(0, first, n);
    if (own) return launches::cross_entropy(logits, some, count, ignore, slope, losses.narrow(0, first, n));
    Tensor part = share.narrow(0, first, n);
    if (!plain(logits)) return composed(logits, some.unsqueeze(1), part.unsqueeze(1));
    with_elements(logits, [&](auto *e) {
      using E = std::remove_pointer_t<decltype(e)>;
      at::parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
          data<float>(losses)[first + i] =
              kernels::cross_entropy(data<E>(logits) + i * V, V, data<int64_t>(some)[i], data<float>(part)[i], static_cast<float>(slope));
        }
      });
    });
  }

  Tensor loss() { return losses.defined() ? losses.sum() : sum; }

private:
  void composed(Tensor &logits, const Tensor &wanted, Tensor part) {
    Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
    Tensor lse = at::logsumexp(wide, {1}, true);
    sum.add_((lse - wide.gather(1, wanted)).mul_(part).sum());
    if (slope == 0) return;
    if (slope != 1) part = part * slope;
    Tensor g = at::exp(wide - lse).mul_(part);
    logits.copy_(g.scatter_add_(1, wanted, part.neg()));
  }

  Tensor targets, share, count;
  Tensor losses; // of each row, or undefined
  Tensor sum;    // of all losses, if losses is undefined
  int64_t ignore;
  double slope;
  bool own;
};

// The size in bytes of the logits computed at once. It fits the caches of a CPU, and is large
// enough to keep other devices busy.
int64_t logits_at_once(const Tensor &x) { return int64_t{on_cpu(x) ? 32 : 256} << 20; }

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static Tensor forward(AutogradContext *ctx, const Tensor &input, const Tensor &weight, const Tensor &targets, int64_t ignore,
                        int64_t rows, double root, bool train) {
    Tensor x = input.contiguous();
    int64_t N = x.size(0), V = weight.size(0);
    CrossEntropy entropy(x, targets, ignore, V, !train ? 0 : root != 0 ? root : 1);
    Tensor w = cast(weight.detach().contiguous(), x.scalar_type());
    Tensor dx, dw;
    if (train) dx = at::empty_like(x);
    if (rows <= 0) rows = std::max<int64_t>(64, logits_at_once(x) / std::max<int64_t>(1, V * x.element_size()) / 64 * 64);
    Tensor buffer = at::empty({std::min(rows, N), V}, x.options());
    for (int64_t i = 0; i < N; i += rows) {
      int64_t n = std::min(rows, N - i);
      Tensor xb = x.narrow(0, i, n), logits = buffer.narrow(0, 0, n);
      at::mm_out(logits, xb, w.t());
      entropy.rows(logits, i);
      if (!train) continue;
      Tensor dxb = dx.narrow(0, i, n);
      at::mm_out(dxb, logits, w);
      if (!dw.defined()) {
        dw = product(logits.t(), xb, weight.scalar_type());
      } else {
        add_product_to(dw, logits.t(), xb);
      }
    }
    if (train) ctx->save_for_backward({dx, dw, weight});
    ctx->saved_data["root"] = root != 0;
    return entropy.loss();
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
    check_numbers(t, a, "targets");
    bool train = c10::GradMode::is_enabled() && (a.requires_grad() || w.requires_grad());
    return LinearCrossEntropy::apply(a, w, t.contiguous(), ignore, rows, share, train);
  });
}

} // namespace psyche
