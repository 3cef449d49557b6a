// The feed-forward sublayer of a transformer layer, x + down(SwiGLU(gate(norm(x)), up(norm(x)))).
#include "pieces.h"

namespace psyche {

struct FeedForwardBlock : torch::autograd::Function<FeedForwardBlock> {
  // If recompute is set, the block keeps only x for the backward pass.
  static Tensor forward(AutogradContext *ctx, const Tensor &x, const Tensor &norm, const Tensor &gate, const Tensor &up,
                        const Tensor &down, double epsilon, bool recompute) {
    auto type = x.scalar_type();
    Tensor rows = x.contiguous().view({-1, x.size(-1)});
    auto [normal, inverse] = norm_forward(rows, norm, epsilon);
    Tensor pairs = at::mm(normal, packed({gate, up}, type).t());
    normal = Tensor();
    Tensor y = at::addmm(rows, swiglu_forward(pairs), cast(down.detach(), type).t());
    if (recompute) pairs = Tensor();
    ctx->save_for_backward({rows, inverse, pairs, norm, gate, up, down});
    ctx->saved_data["epsilon"] = epsilon;
    return y.view(x.sizes());
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    const Tensor &rows = saved[0], &inverse = saved[1], &norm = saved[3], &down = saved[6];
    std::vector<Tensor> inputs{saved[4], saved[5]};
    auto type = rows.scalar_type();
    Tensor g = grads[0].contiguous().view(rows.sizes());

    Tensor normal = norm_forward(rows, norm, ctx->saved_data["epsilon"].toDouble()).first, weights = packed(inputs, type), pairs = saved[2];
    if (!pairs.defined()) pairs = at::mm(normal, weights.t());
    Tensor inside = at::mm(g, cast(down.detach(), type));
    swiglu_backward(pairs, inside);
    add_product({down}, g, inside);
    inside = Tensor();
    add_product(inputs, pairs, normal);
    Tensor dx = norm_backward_to(norm, at::mm(pairs, weights), rows, inverse, g);
    variable_list out(7);
    out[0] = dx.view(grads[0].sizes());
    return out;
  }
};

pt_result feed_forward_block(pt_tensor x, pt_tensor norm, pt_tensor gate, pt_tensor up, pt_tensor down, double epsilon,
                             int recompute) {
  return tensor([&] {
    const Tensor &t = T(x), &n = T(norm), &g = T(gate), &u = T(up), &d = T(down);
    TORCH_CHECK(t.dim() > 0 && n.sizes() == at::IntArrayRef{t.size(-1)} && g.dim() == 2 && g.size(1) == t.size(-1) &&
                    u.sizes() == g.sizes() && d.sizes() == at::IntArrayRef({g.size(1), g.size(0)}),
                "x [...,N], norm [N], gate and up [M,N], down [N,M], got ", t.sizes(), n.sizes(), g.sizes(), u.sizes(), d.sizes());
    for (const Tensor &weight : {n, g, u, d}) TORCH_CHECK(weight.is_leaf(), "weights must be leaves");
    check_norm(n, t);
    return FeedForwardBlock::apply(t, n, g, u, d, epsilon, recompute != 0);
  });
}

} // namespace psyche
