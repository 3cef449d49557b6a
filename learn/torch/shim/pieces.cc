#include "pieces.h"

#include <c10/core/GradMode.h>

#include <limits>

namespace psyche {

bool plain(const Tensor &t) {
  return on_cpu(t) && (t.scalar_type() == at::kFloat || t.scalar_type() == at::kBFloat16);
}

constexpr int64_t kRows = 16;          // rows that one thread takes at a time
constexpr int64_t kElements = 1 << 15; // elements that one thread takes at a time

Tensor converted(const Tensor &t, at::ScalarType type) {
  bool down = t.scalar_type() == at::kFloat && type == at::kBFloat16, up = t.scalar_type() == at::kBFloat16 && type == at::kFloat;
  if (!on_cpu(t) || !t.is_contiguous() || !(down || up)) return t.to(type);
  Tensor out = at::empty(t.sizes(), t.options().dtype(type));
  at::parallel_for(0, t.numel(), kElements, [&](int64_t begin, int64_t end) {
    if (down) {
      kernels::narrow(data<float>(t) + begin, data<kernels::bf16>(out) + begin, end - begin);
    } else {
      kernels::widen(data<kernels::bf16>(t) + begin, data<float>(out) + begin, end - begin);
    }
  });
  return out;
}

// ---- RMSNorm ----

void check_norm(const Tensor &weight, const Tensor &x) {
  TORCH_CHECK(weight.is_contiguous() && (!plain(x) || weight.scalar_type() == at::kFloat), "the weight of a norm must be contiguous",
              plain(x) ? " and f32, got " : ", got ", weight.scalar_type());
}

std::pair<Tensor, Tensor> norm_forward(const Tensor &x, const Tensor &weight, double epsilon) {
  if (launches::fit(x, {weight})) return launches::norm_forward(x, weight, epsilon);
  int64_t rows = x.size(0), n = x.size(1);
  if (!plain(x)) {
    Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
    Tensor inverse = at::rsqrt(at::mean(wide * wide, {-1}, true) + epsilon);
    return {(wide * inverse * weight).to(x.scalar_type()), inverse};
  }
  Tensor y = at::empty_like(x), inverse = at::empty({rows}, x.options().dtype(at::kFloat));
  with_elements(x, [&](auto *e) {
    using E = std::remove_pointer_t<decltype(e)>;
    at::parallel_for(0, rows, kRows, [&](int64_t begin, int64_t end) {
      kernels::rms_norm(data<E>(x) + begin * n, data<float>(weight), data<E>(y) + begin * n, data<float>(inverse) + begin,
                        end - begin, n, static_cast<float>(epsilon));
    });
  });
  return {y, inverse};
}

std::pair<Tensor, Tensor> norm_backward(const Tensor &g, const Tensor &x, const Tensor &weight, const Tensor &inverse,
                                        const Tensor &extra) {
  if (launches::fit(x, {g, weight, extra})) {
    Tensor sum = at::empty_like(weight), dx = launches::norm_backward(g, x, weight, inverse, extra, sum, false);
    return {dx, sum};
  }
  int64_t rows = x.size(0), n = x.size(1);
  if (!plain(x)) {
    auto type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    Tensor wide = g.to(type), normal = x.to(type) * inverse, scaled = wide * weight;
    Tensor dx = (scaled - normal * at::mean(scaled * normal, {-1}, true)) * inverse;
    if (extra.defined()) dx = dx + extra;
    return {dx.to(x.scalar_type()), at::sum(wide * normal, at::IntArrayRef{0})};
  }
  // The gradient of the weight is summed in a fixed number of parts, so that its bits do not depend
  // on the number of threads.
  constexpr int64_t parts = 16;
  Tensor dx = at::empty_like(x), sums = at::zeros({parts, n}, weight.options());
  with_elements(x, [&](auto *e) {
    using E = std::remove_pointer_t<decltype(e)>;
    at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; part++) {
        int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
        kernels::rms_norm_backward(data<E>(g) + begin * n, data<E>(x) + begin * n, data<float>(weight),
                                   data<float>(inverse) + begin, extra.defined() ? data<E>(extra) + begin * n : nullptr,
                                   data<E>(dx) + begin * n, data<float>(sums) + part * n, end - begin, n);
      }
    });
  });
  return {dx, sums.sum(0)};
}

Tensor norm_backward_to(const Tensor &weight, const Tensor &g, const Tensor &x, const Tensor &inverse, const Tensor &extra) {
  if (launches::fit(x, {g, weight, extra, weight.grad()}) && weight.requires_grad()) {
    Tensor &sum = weight.mutable_grad();
    bool add = sum.defined();
    if (!add) sum = at::empty_like(weight);
    return launches::norm_backward(g, x, weight.detach(), inverse, extra, sum, add);
  }
  auto [dx, dweight] = norm_backward(g, x, weight, inverse, extra);
  add_gradient(weight, dweight);
  return dx;
}

// ---- SwiGLU ----

Tensor swiglu_forward(const Tensor &pairs) {
  int64_t rows = pairs.size(0), n = pairs.size(1) / 2;
  if (n % 4 == 0 && launches::fit(pairs)) return launches::swiglu(pairs);
  if (!plain(pairs)) return at::silu(pairs.narrow(1, 0, n)) * pairs.narrow(1, n, n);
  Tensor y = at::empty({rows, n}, pairs.options());
  with_elements(pairs, [&](auto *e) {
    using E = std::remove_pointer_t<decltype(e)>;
    at::parallel_for(0, rows, kRows, [&](int64_t begin, int64_t end) {
      kernels::swiglu(data<E>(pairs) + begin * 2 * n, data<E>(y) + begin * n, end - begin, n);
    });
  });
  return y;
}

void swiglu_backward(Tensor &pairs, Tensor &g) {
  int64_t rows = pairs.size(0), n = pairs.size(1) / 2;
  if (launches::fit(pairs, {g})) return launches::swiglu_backward(pairs, g);
  if (!plain(pairs)) {
    Tensor gate = pairs.narrow(1, 0, n), up = pairs.narrow(1, n, n), silu = at::silu(gate);
    Tensor dgate = at::silu_backward(g * up, gate), dup = g * silu;
    g.copy_(silu * up);
    gate.copy_(dgate);
    up.copy_(dup);
    return;
  }
  with_elements(pairs, [&](auto *e) {
    using E = std::remove_pointer_t<decltype(e)>;
    at::parallel_for(0, rows, kRows, [&](int64_t begin, int64_t end) {
      kernels::swiglu_backward(data<E>(pairs) + begin * 2 * n, data<E>(g) + begin * n, end - begin, n);
    });
  });
}

// ---- softmax of causal scores ----

// Returns the mask of the keys that row t*groups+g may not see, [rows,keys].
static Tensor future(const Tensor &scores, int64_t seen, int64_t groups) {
  auto longs = at::TensorOptions().dtype(at::kLong).device(scores.device());
  Tensor last = at::floor_divide(at::arange(scores.size(1), longs), groups) + seen;
  return at::arange(scores.size(2), longs).unsqueeze(0).ge(last.unsqueeze(1));
}

void softmax_causal(Tensor &scores, int64_t seen, int64_t groups, double scale) {
  int64_t heads = scores.size(0), rows = scores.size(1), n = scores.size(2);
  if (!plain(scores)) {
    Tensor wide = (scores.scalar_type() == at::kDouble ? scores : scores.to(at::kFloat)) * scale;
    wide.masked_fill_(future(scores, seen, groups), -std::numeric_limits<double>::infinity());
    scores.copy_(at::softmax(wide, -1));
    return;
  }
  with_elements(scores, [&](auto *e) {
    using E = std::remove_pointer_t<decltype(e)>;
    at::parallel_for(0, heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t h = begin; h < end; h++) {
        kernels::softmax(data<E>(scores) + h * rows * n, rows, n, seen, groups, static_cast<float>(scale));
      }
    });
  });
}

void softmax_causal_backward(const Tensor &p, Tensor &dp, int64_t seen, int64_t groups, double scale) {
  int64_t heads = p.size(0), rows = p.size(1), n = p.size(2);
  if (!plain(p)) {
    auto type = p.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    Tensor wide = dp.to(type), share = p.to(type); // p is 0 for masked keys
    dp.copy_(share * (wide - at::sum(share * wide, at::IntArrayRef{-1}, true)) * scale);
    return;
  }
  with_elements(p, [&](auto *e) {
    using E = std::remove_pointer_t<decltype(e)>;
    at::parallel_for(0, heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t h = begin; h < end; h++) {
        int64_t at = h * rows * n;
        kernels::softmax_backward(data<E>(p) + at, data<E>(dp) + at, rows, n, seen, groups, static_cast<float>(scale));
      }
    });
  });
}

// ---- rotary positions ----

void rotate(const Tensor &x, const Tensor &cos, const Tensor &sin, int direction, Tensor out) {
  int64_t B = x.size(0), T = x.size(1), H = x.size(2), half = x.size(3) / 2;
  if (!plain(x) || cos.scalar_type() != at::kFloat || sin.scalar_type() != at::kFloat || x.stride(3) != 1 || out.stride(3) != 1) {
    auto type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    Tensor a = x.narrow(3, 0, half).to(type), b = x.narrow(3, half, half).to(type);
    Tensor c = cos.unsqueeze(1).to(type), s = sin.unsqueeze(1).to(type) * direction;
    out.copy_(at::cat({a * c - b * s, b * c + a * s}, -1));
    return;
  }
  with_elements(x, [&](auto *e) {
    using E = std::remove_pointer_t<decltype(e)>;
    at::parallel_for(0, B * T, kRows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        int64_t b = i / T, t = i % T;
        const E *from = data<E>(x) + b * x.stride(0) + t * x.stride(1);
        E *to = data<E>(out) + b * out.stride(0) + t * out.stride(1);
        for (int64_t h = 0; h < H; h++) {
          kernels::rotate(from + h * x.stride(2), data<float>(cos) + t * half, data<float>(sin) + t * half,
                          static_cast<float>(direction), to + h * out.stride(2), 1, half);
        }
      }
    });
  });
}

void rotate_all(const std::vector<launches::Heads> &list, const Tensor &cos, const Tensor &sin, int direction) {
  if (launches::fit(list, cos, sin)) return launches::rotate(list, cos, sin, direction);
  for (const launches::Heads &h : list) {
    if (h.turns) {
      rotate(h.x, cos, sin, direction, h.out);
    } else {
      h.out.copy_(h.x);
    }
  }
}

// ---- weights ----

// Reports whether the tensors are adjacent in one block of memory.
static bool adjacent(const std::vector<Tensor> &list) {
  for (size_t i = 0; i < list.size(); i++) {
    if (!list[i].defined() || !list[i].is_contiguous()) return false;
    if (i == 0) continue;
    const Tensor &before = list[i - 1];
    if (list[i].scalar_type() != before.scalar_type() || !list[i].is_alias_of(before) ||
        list[i].storage_offset() != before.storage_offset() + before.numel()) {
      return false;
    }
  }
  return true;
}

static int64_t total_rows(const std::vector<Tensor> &list) {
  int64_t rows = 0;
  for (const Tensor &t : list) rows += t.size(0);
  return rows;
}

static Tensor joined(const std::vector<Tensor> &list) {
  const Tensor &first = list[0];
  if (list.size() == 1) return first.detach();
  return first.detach().as_strided({total_rows(list), first.size(1)}, {first.size(1), 1}, first.storage_offset());
}

Tensor packed(const std::vector<Tensor> &weights, at::ScalarType type) {
  if (adjacent(weights)) return cast(joined(weights), type);
  Tensor out = at::empty({total_rows(weights), weights[0].size(1)}, weights[0].options().dtype(type));
  int64_t row = 0;
  for (const Tensor &w : weights) {
    out.narrow(0, row, w.size(0)).copy_(w.detach());
    row += w.size(0);
  }
  return out;
}

void accumulate(const Tensor &sum, const Tensor &g) {
  if (!(plain(sum) && plain(g) && sum.is_contiguous() && g.is_contiguous() && sum.scalar_type() == at::kFloat)) {
    sum.add_(g);
    return;
  }
  with_elements(g, [&](auto *e) {
    using E = std::remove_pointer_t<decltype(e)>;
    at::parallel_for(0, g.numel(), kElements, [&](int64_t begin, int64_t end) {
      kernels::accumulate(data<float>(sum) + begin, data<E>(g) + begin, end - begin);
    });
  });
}

void add_gradient(const Tensor &weight, const Tensor &g) {
  if (!weight.requires_grad()) return;
  Tensor &sum = weight.mutable_grad();
  if (sum.defined()) {
    accumulate(sum, g);
  } else {
    sum = cast(g, weight.scalar_type());
  }
}

void add_product(const std::vector<Tensor> &weights, const Tensor &a, const Tensor &b) {
  std::vector<Tensor> sums;
  for (const Tensor &w : weights) sums.push_back(w.grad());
  if (adjacent(sums)) {
    add_product_to(joined(sums), a.t(), b);
    return;
  }
  Tensor all = product(a.t(), b, weights[0].scalar_type());
  int64_t row = 0;
  for (const Tensor &w : weights) {
    add_gradient(w, weights.size() == 1 ? all : all.narrow(0, row, w.size(0)));
    row += w.size(0);
  }
}

} // namespace psyche
