// Single operations of a transformer layer, each with one or two passes over memory, and the
// optimizer's update.
#include "pieces.h"

#include <c10/core/GradMode.h>

#include <cmath>

namespace psyche {

// ---- RMSNorm ----

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext *ctx, const Tensor &x, const Tensor &weight, double epsilon) {
    Tensor rows = x.contiguous().view({-1, x.size(-1)}), w = weight.contiguous();
    auto [y, inverse] = norm_forward(rows, w, epsilon);
    ctx->save_for_backward({rows, w, inverse});
    return y.view(x.sizes());
  }

  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    auto [dx, dweight] = norm_backward(grads[0].contiguous().view(saved[0].sizes()), saved[0], saved[1], saved[2], Tensor());
    return {dx.view(grads[0].sizes()), dweight, Tensor()};
  }
};

pt_result rms_norm(pt_tensor x, pt_tensor weight, double epsilon) {
  return tensor([&] {
    const Tensor &a = T(x), &w = T(weight);
    TORCH_CHECK(a.dim() > 0 && w.dim() == 1 && w.size(0) == a.size(-1), "x [...,n] and weight [n], got ", a.sizes(), w.sizes());
    check_norm(w, a);
    return RmsNorm::apply(a, w, epsilon);
  });
}

// ---- rotary positions ----

struct Rope : torch::autograd::Function<Rope> {
  static Tensor turned(const Tensor &x, const Tensor &cos, const Tensor &sin, int direction) {
    Tensor out = at::empty(x.sizes(), x.options());
    rotate_all({{x, out, true}}, cos, sin, direction);
    return out;
  }
  static Tensor forward(AutogradContext *ctx, const Tensor &x, const Tensor &cos, const Tensor &sin) {
    Tensor c = cos.contiguous(), s = sin.contiguous();
    ctx->save_for_backward({c, s});
    return turned(x, c, s, 1);
  }
  // The inverse of a rotation is the rotation by the opposite angle.
  static variable_list backward(AutogradContext *ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    return {turned(grads[0], saved[0], saved[1], -1), Tensor(), Tensor()};
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

// ---- optimizer ----

// One step of AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2), in one pass on the CPU.
char *adamw_step(pt_tensor parameter, pt_tensor grad, pt_tensor m, pt_tensor v, double rate, double beta1, double beta2,
                 double epsilon, double decay, int64_t step) {
  return status([&] {
    c10::NoGradGuard no_grad;
    Tensor &p = T(parameter), &mean = T(m), &square = T(v);
    const Tensor &g = T(grad);
    double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
    double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
    auto ours = [&](const Tensor &t) { return plain(t) && t.scalar_type() == at::kFloat && t.is_contiguous() && t.sizes() == p.sizes(); };
    if (ours(p) && ours(g) && ours(mean) && ours(square)) {
      kernels::AdamW c;
      c.beta1 = static_cast<float>(beta1), c.rest1 = static_cast<float>(1 - beta1);
      c.beta2 = static_cast<float>(beta2), c.rest2 = static_cast<float>(1 - beta2);
      c.epsilon = static_cast<float>(epsilon);
      c.root = static_cast<float>(std::sqrt(correction2)), c.keep = static_cast<float>(1 - rate * decay);
      c.rate = static_cast<float>(rate / correction1);
      at::parallel_for(0, p.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
        kernels::adamw(data<float>(p) + begin, data<float>(g) + begin, data<float>(mean) + begin, data<float>(square) + begin, end - begin, c);
      });
      return;
    }
    mean.mul_(beta1).add_(g, 1 - beta1);
    square.mul_(beta2).addcmul_(g, g, 1 - beta2);
    Tensor root = square.sqrt().div_(std::sqrt(correction2)).add_(epsilon);
    if (decay != 0) p.mul_(1 - rate * decay);
    p.addcdiv_(mean, root, -rate / correction1);
  });
}

} // namespace psyche
