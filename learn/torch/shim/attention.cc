// Grouped-query causal attention, and the attention sublayer of a transformer layer. Both compute one
// block of queries at a time, over only the keys that the block may see. So neither the forward nor the
// backward pass ever holds a [T,S] matrix of scores (see Dao et al., arXiv 2205.14135).
//
// Internally the heads come first: q [B*KV,T*G,D] with row t*G+g for query head kv*G+g, k and v
// [B*KV,S,D]. The query heads of one group are rows of one matrix. The matrix shares keys and
// values without copying them, and a block of queries is a block of rows.
#include "pieces.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

namespace psyche {
namespace {

struct Sizes {
  int64_t B, T, H, S, KV, G;
  int64_t past() const { return S - T; }
};

// The number of queries in one block. A larger block computes more masked scores; a smaller block
// has smaller matrices.
int64_t block_rows(const Tensor &q, const Sizes &a) {
  int64_t most = q.scalar_type() == at::kFloat ? 64 : 128;
  return std::min(a.T, most);
}

// Runs f(first head, heads) over all B*KV heads. For f32 on the CPU, f receives one head at a time:
// the threads share the heads or, if there are more threads than heads, each product. Otherwise f
// receives all heads at once.
template <class F> void over_heads(const Tensor &q, F &&f) {
  int64_t heads = q.size(0);
  if (on_cpu(q) && q.scalar_type() == at::kFloat) {
    int64_t share = heads < at::get_num_threads() ? heads : 1; // gives all heads to one thread, so that the other threads share each product
    at::parallel_for(0, heads, share, [&](int64_t begin, int64_t end) {
      c10::NoGradGuard no_grad;
      for (int64_t h = begin; h < end; h++) f(h, 1);
    });
  } else {
    f(0, heads);
  }
}

// Returns a contiguous [heads,rows,columns] at the start of a flat buffer.
Tensor slab(const Tensor &buffer, int64_t heads, int64_t rows, int64_t columns) {
  return buffer.narrow(0, 0, heads * rows * columns).view({heads, rows, columns});
}

// Batched a*b into out. For f32 on the CPU there is one head.
void multiply(Tensor out, const Tensor &a, const Tensor &b) {
  if (a.size(0) == 1) {
    Tensor to = out.select(0, 0);
    at::mm_out(to, a.select(0, 0), b.select(0, 0));
  } else {
    at::bmm_out(out, a, b);
  }
}

// sum += a*b. sum is f32 for any type of a and b; buffer holds the product.
void multiply_add(Tensor sum, const Tensor &a, const Tensor &b, const Tensor &buffer) {
  if (sum.scalar_type() == a.scalar_type()) {
    sum.size(0) == 1 ? sum.select(0, 0).addmm_(a.select(0, 0), b.select(0, 0)) : sum.baddbmm_(a, b);
    return;
  }
  Tensor product = slab(buffer, a.size(0), a.size(1), b.size(2));
  multiply(product, a, b);
  sum.add_(product);
}

// Writes the attention of q, k and v in the internal layout to out [B,T,H,D].
void attend(const Tensor &q, const Tensor &k, const Tensor &v, Tensor out, const Sizes &a, double scale) {
  int64_t block = block_rows(q, a), D = v.size(2);
  Tensor grouped = out.view({a.B, a.T, a.KV, a.G, D});
  over_heads(q, [&](int64_t first, int64_t heads) {
    Tensor scores = at::empty({heads * block * a.G * a.S}, q.options()), mixed = at::empty({heads * block * a.G * D}, q.options());
    for (int64_t i = 0; i < a.T; i += block) {
      int64_t n = std::min(block, a.T - i), seen = a.past() + i + n;
      Tensor p = slab(scores, heads, n * a.G, seen), o = slab(mixed, heads, n * a.G, D);
      multiply(p, q.narrow(0, first, heads).narrow(1, i * a.G, n * a.G), k.narrow(0, first, heads).narrow(1, 0, seen).transpose(1, 2));
      softmax_causal(p, a.past() + i + 1, a.G, scale);
      multiply(o, p, v.narrow(0, first, heads).narrow(1, 0, seen));
      if (heads == 1) {
        grouped.select(0, first / a.KV).select(1, first % a.KV).narrow(0, i, n).copy_(o.view({n, a.G, D}));
      } else {
        grouped.narrow(1, i, n).copy_(o.view({a.B, a.KV, n, a.G, D}).transpose(1, 2));
      }
    }
  });
}

struct Gradients {
  Tensor q, k, v; // q in the type of the inputs; k and v may be f32
};

// g [B,T,H,D] is the gradient with respect to attend's out.
Gradients attend_backward(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &g, const Sizes &a, double scale) {
  int64_t block = block_rows(q, a), width = q.size(2), D = v.size(2);
  auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Gradients d{at::empty_like(q), at::zeros(k.sizes(), k.options().dtype(wide)), at::zeros(v.sizes(), v.options().dtype(wide))};
  Tensor grouped = g.view({a.B, a.T, a.KV, a.G, D});
  over_heads(q, [&](int64_t first, int64_t heads) {
    Tensor scores = at::empty({heads * block * a.G * a.S}, q.options()), slopes = at::empty_like(scores);
    Tensor product = at::empty({heads * std::max(a.S, block * a.G) * std::max(D, width)}, q.options());
    for (int64_t i = 0; i < a.T; i += block) {
      int64_t n = std::min(block, a.T - i), seen = a.past() + i + n;
      auto keys = [&](const Tensor &t) { return t.narrow(0, first, heads).narrow(1, 0, seen); };
      Tensor qb = q.narrow(0, first, heads).narrow(1, i * a.G, n * a.G), gb;
      if (heads == 1) {
        gb = grouped.select(0, first / a.KV).select(1, first % a.KV).narrow(0, i, n).reshape({1, n * a.G, D});
      } else {
        gb = grouped.narrow(1, i, n).transpose(1, 2).reshape({heads, n * a.G, D});
      }
      Tensor p = slab(scores, heads, n * a.G, seen), dp = slab(slopes, heads, n * a.G, seen);
      multiply(p, qb, keys(k).transpose(1, 2));
      softmax_causal(p, a.past() + i + 1, a.G, scale);
      multiply_add(keys(d.v), p.transpose(1, 2), gb, product);
      multiply(dp, gb, keys(v).transpose(1, 2));
      softmax_causal_backward(p, dp, a.past() + i + 1, a.G, scale);
      multiply_add(keys(d.k), dp.transpose(1, 2), qb, product);
      Tensor dq = slab(product, heads, n * a.G, width);
      multiply(dq, dp, keys(k));
      d.q.narrow(0, first, heads).narrow(1, i * a.G, n * a.G).copy_(dq);
    }
  });
  return d;
}

// Returns an empty tensor with H = KV*G heads in the internal layout, as [B,KV,T,G,D].
Tensor inner(const Tensor &like, const Sizes &a, int64_t tokens, int64_t groups, int64_t D) {
  return at::empty({a.B, a.KV, tokens, groups, D}, like.options());
}

// Views [B,KV,T,G,D] as [B,T,KV*G heads,D]. rotate and copy_ write through the view.
Tensor outer_key(const Tensor &t) { return t.select(3, 0).transpose(1, 2); }

Tensor flat(const Tensor &t) { return t.view({t.size(0) * t.size(1), t.size(2) * t.size(3), t.size(4)}); }

// ---- attention alone ----

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static Sizes sizes(const Tensor &q, const Tensor &k) {
    return {q.size(0), q.size(1), q.size(2), k.size(1), k.size(2), q.size(2) / k.size(2)};
  }

  static Tensor forward(AutogradContext *ctx, const Tensor &q, const Tensor &k, const Tensor &v, double scale) {
    Sizes a = sizes(q, k);
    Tensor queries = inner(q, a, a.T, a.G, q.size(3)), keys = inner(k, a, a.S, 1, k.size(3)), values = inner(v, a, a.S, 1, v.size(3));
    queries.copy_(q.reshape({a.B, a.T, a.KV, a.G, q.size(3)}).transpose(1, 2));
    outer_key(keys).copy_(k);
    outer_key(values).copy_(v);
    Tensor out = at::empty({a.B, a.T, a.H, v.size(3)}, q.options());
    attend(flat(queries), flat(keys), flat(values), out, a, scale);
    ctx->save_for_backward({queries, keys, values});
    ctx->saved_data["scale"] = scale;
    return out;
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    Sizes a{q.size(0), q.size(2), q.size(1) * q.size(3), k.size(2), q.size(1), q.size(3)};
    Gradients d = attend_backward(flat(q), flat(k), flat(v), grads[0].contiguous(), a, ctx->saved_data["scale"].toDouble());
    auto keys = [&](const Tensor &t) { return t.view({a.B, a.KV, a.S, t.size(2)}).transpose(1, 2).to(q.scalar_type()); };
    Tensor dq = d.q.view(q.sizes()).transpose(1, 2).reshape({a.B, a.T, a.H, q.size(4)});
    return {dq, keys(d.k), keys(d.v), Tensor()};
  }
};

// ---- attention sublayer ----

// x + attention(norm(x)), including the projections and positions.
struct AttentionBlock : torch::autograd::Function<AttentionBlock> {
  struct Saved {
    // mixed is [B*T,H*D]. The others are in the internal layout or, if libtorch has an attention
    // kernel, [B,T,heads,D]. In the second case autograd records how mixed depends on them.
    Tensor q, k, v, mixed;
  };

  static std::vector<Tensor> projections(const pt_attention_weights &w) { return {T(w.query), T(w.key), T(w.value)}; }

  // Computes everything between the norm and the output projection.
  static Saved mix(const Tensor &normal, const Tensor &projection, const Tensor &cos, const Tensor &sin, const Sizes &a, int64_t D,
                   double scale) {
    Tensor all = at::mm(normal, projection.t()).view({a.B, a.T, a.H + 2 * a.KV, D});
    Saved s{inner(all, a, a.T, a.G, D), inner(all, a, a.S, 1, D), inner(all, a, a.S, 1, D), Tensor()};
    for (int64_t h = 0; h < a.KV; h++) {
      rotate(all.narrow(2, h * a.G, a.G), cos, sin, 1, s.q.select(1, h));
    }
    rotate(all.narrow(2, a.H, a.KV), cos, sin, 1, outer_key(s.k));
    outer_key(s.v).copy_(all.narrow(2, a.H + a.KV, a.KV));
    all = Tensor();
    s.mixed = at::empty({a.B * a.T, a.H * D}, normal.options());
    attend(flat(s.q), flat(s.k), flat(s.v), s.mixed.view({a.B, a.T, a.H, D}), a, scale);
    return s;
  }

  // Like mix, with libtorch's attention. If train is set, autograd records mixed, separately from
  // the graph that contains the block.
  static Saved mix_recorded(const Tensor &normal, const Tensor &projection, const Tensor &cos, const Tensor &sin, const Sizes &a,
                            int64_t D, double scale, bool train) {
    Tensor all = at::mm(normal, projection.t()).view({a.B, a.T, a.H + 2 * a.KV, D});
    auto heads = [&](int64_t n) { return at::empty({a.B, a.T, n, D}, all.options()); };
    Saved s{heads(a.H), heads(a.KV), heads(a.KV), Tensor()};
    rotate_all({{all.narrow(2, 0, a.H), s.q, true}, {all.narrow(2, a.H, a.KV), s.k, true}, {all.narrow(2, a.H + a.KV, a.KV), s.v, false}}, cos,
               sin, 1);
    all = Tensor();
    c10::AutoGradMode recording(train);
    for (const Tensor &t : {s.q, s.k, s.v}) t.set_requires_grad(train);
    s.mixed = sdpa(s.q, s.k, s.v, scale).reshape({a.B * a.T, a.H * D});
    return s;
  }

  // Computes the gradient with respect to all projections, [B,T,H+2KV,D], from the gradient with
  // respect to mixed.
  static Tensor mix_backward(const Saved &s, const Tensor &dmixed, const Tensor &cos, const Tensor &sin, const Sizes &a, int64_t D,
                             double scale) {
    Tensor dall = at::empty({a.B, a.T, a.H + 2 * a.KV, D}, dmixed.options());
    Tensor dqueries = dall.narrow(2, 0, a.H), dkeys = dall.narrow(2, a.H, a.KV), dvalues = dall.narrow(2, a.H + a.KV, a.KV);
    if (has_sdpa(dmixed)) {
      auto d = torch::autograd::grad({s.mixed}, {s.q, s.k, s.v}, {dmixed});
      rotate_all({{d[0], dqueries, true}, {d[1], dkeys, true}, {d[2], dvalues, false}}, cos, sin, -1);
      return dall;
    }
    Gradients d = attend_backward(flat(s.q), flat(s.k), flat(s.v), dmixed.view({a.B, a.T, a.H, D}), a, scale);
    Tensor dq = d.q.view(s.q.sizes());
    Tensor dk = cast(d.k, dmixed.scalar_type()).view({a.B, a.KV, a.S, 1, D}), dv = d.v.view({a.B, a.KV, a.S, 1, D});
    for (int64_t h = 0; h < a.KV; h++) rotate(dq.select(1, h), cos, sin, -1, dqueries.narrow(2, h * a.G, a.G));
    rotate(outer_key(dk), cos, sin, -1, dkeys);
    dvalues.copy_(outer_key(dv));
    return dall;
  }

  static Tensor forward(AutogradContext *ctx, const Tensor &x, const Tensor &norm, const Tensor &query, const Tensor &key,
                        const Tensor &value, const Tensor &output, const Tensor &cos, const Tensor &sin, int64_t D, double scale,
                        double epsilon, bool recompute, bool train) {
    int64_t H = query.size(0) / D, KV = key.size(0) / D;
    Sizes a{x.size(0), x.size(1), H, x.size(1), KV, H / KV};
    Tensor rows = x.contiguous().view({-1, x.size(2)});
    auto [normal, inverse] = norm_forward(rows, norm, epsilon);
    Tensor projection = packed({query, key, value}, x.scalar_type());
    Saved s = has_sdpa(x) ? mix_recorded(normal, projection, cos, sin, a, D, scale, train && !recompute)
                          : mix(normal, projection, cos, sin, a, D, scale);
    normal = projection = Tensor();
    Tensor y = at::addmm(rows, s.mixed.detach(), cast(output.detach(), x.scalar_type()).t());
    if (recompute) s = Saved{};
    if (s.mixed.defined() && s.mixed.requires_grad()) { // keep the recorded graph of mixed
      ctx->saved_data["recorded"] = std::vector<Tensor>{s.q, s.k, s.v, s.mixed};
      s = Saved{};
    }
    ctx->save_for_backward({rows, inverse, cos, sin, s.q, s.k, s.v, s.mixed, norm, query, key, value, output});
    ctx->saved_data["sizes"] = std::vector<int64_t>{a.B, a.T, a.H, a.S, a.KV, a.G, D};
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["epsilon"] = epsilon;
    return y.view(x.sizes());
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    const Tensor &rows = saved[0], &inverse = saved[1], &cos = saved[2], &sin = saved[3], &norm = saved[8], &output = saved[12];
    std::vector<Tensor> inputs{saved[9], saved[10], saved[11]};
    auto z = ctx->saved_data["sizes"].toIntVector();
    Sizes a{z[0], z[1], z[2], z[3], z[4], z[5]};
    int64_t D = z[6];
    double scale = ctx->saved_data["scale"].toDouble();
    auto type = rows.scalar_type();
    Tensor g = grads[0].contiguous().view(rows.sizes());

    Tensor normal = norm_forward(rows, norm, ctx->saved_data["epsilon"].toDouble()).first, projection = packed(inputs, type);
    Saved s{saved[4], saved[5], saved[6], saved[7]};
    if (auto recorded = ctx->saved_data.find("recorded"); recorded != ctx->saved_data.end()) {
      auto list = recorded->second.toTensorVector();
      s = Saved{list[0], list[1], list[2], list[3]};
      ctx->saved_data.erase(recorded); // frees the recorded graph after this step
    } else if (!s.q.defined()) {
      s = has_sdpa(rows) ? mix_recorded(normal, projection, cos, sin, a, D, scale, true) : mix(normal, projection, cos, sin, a, D, scale);
    }
    add_product({output}, g, s.mixed.detach());
    if (!has_sdpa(rows)) s.mixed = Tensor(); // not needed any more
    Tensor dall = mix_backward(s, at::mm(g, cast(output.detach(), type)), cos, sin, a, D, scale);
    s = Saved{};
    dall = dall.view({a.B * a.T, (a.H + 2 * a.KV) * D});
    add_product(inputs, dall, normal);
    Tensor dx = norm_backward_to(norm, at::mm(dall, projection), rows, inverse, g);
    variable_list out(13);
    out[0] = dx.view(grads[0].sizes());
    return out;
  }
};

} // namespace

pt_result causal_attention(pt_tensor q, pt_tensor k, pt_tensor v, double scale) {
  return tensor([&] {
    const Tensor &a = T(q), &b = T(k), &c = T(v);
    TORCH_CHECK(a.dim() == 4 && b.dim() == 4 && c.dim() == 4 && b.sizes().slice(0, 3) == c.sizes().slice(0, 3),
                "q [B,T,H,D] and k, v [B,S,KV,D], got ", a.sizes(), b.sizes(), c.sizes());
    TORCH_CHECK(a.size(0) == b.size(0) && a.size(3) == b.size(3) && b.size(1) >= a.size(1) && b.size(2) > 0 &&
                    a.size(2) % b.size(2) == 0,
                "q does not match k: q ", a.sizes(), ", k ", b.sizes());
    // A mask other than causal or none would need a matrix.
    if (has_sdpa(a) && c.size(3) <= a.size(3) && (a.size(1) == b.size(1) || a.size(1) == 1)) return sdpa(a, b, c, scale);
    return CausalAttention::apply(a, b, c, scale);
  });
}

pt_result attention_block(pt_tensor x, pt_attention_weights w, pt_tensor cos, pt_tensor sin, int64_t width, double scale,
                          double epsilon, int recompute) {
  return tensor([&] {
    const Tensor &t = T(x), &q = T(w.query), &k = T(w.key), &v = T(w.value), &o = T(w.output), &n = T(w.norm);
    TORCH_CHECK(t.dim() == 3, "x must be [B,T,N], got ", t.sizes());
    int64_t N = t.size(2);
    for (const Tensor &weight : {q, k, v, o, n}) TORCH_CHECK(weight.is_leaf(), "weights must be leaves");
    TORCH_CHECK(n.sizes() == at::IntArrayRef{N} && q.dim() == 2 && k.dim() == 2 && q.size(1) == N && k.size(1) == N &&
                    v.sizes() == k.sizes() && o.sizes() == at::IntArrayRef({N, q.size(0)}),
                "weights do not match x ", t.sizes());
    TORCH_CHECK(width > 0 && width % 2 == 0 && q.size(0) % width == 0 && k.size(0) % width == 0 && k.size(0) > 0 &&
                    q.size(0) % k.size(0) == 0,
                "heads of ", width, " do not fit ", q.size(0), " queries and ", k.size(0), " keys");
    TORCH_CHECK(T(cos).sizes() == at::IntArrayRef({t.size(1), width / 2}) && T(sin).sizes() == T(cos).sizes(),
                "cos and sin must be [T,D/2], got ", T(cos).sizes());
    check_norm(n, t);
    return AttentionBlock::apply(t, n, q, k, v, o, T(cos).contiguous(), T(sin).contiguous(), width, scale, epsilon, recompute != 0,
                                 c10::GradMode::is_enabled());
  });
}

} // namespace psyche
