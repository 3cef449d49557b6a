#include "launches.h"

#include "cuda/pieces.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

namespace psyche {

namespace launches {
namespace {

struct Launcher {
  pt_launch launch;
  void *context;
};

struct {
  std::mutex lock;
  std::map<int, Launcher> of; // by device
} launchers;

Launcher launcher(const Tensor &t) {
  std::lock_guard<std::mutex> hold(launchers.lock);
  auto found = launchers.of.find(static_cast<int>(t.get_device()));
  return found == launchers.of.end() ? Launcher{} : found->second;
}

const char *type_name(const Tensor &t) { return t.scalar_type() == at::kFloat ? "_f32" : "_bf16"; }

template <class Arguments> void launch(const Tensor &where, const std::string &kernel, int64_t blocks, const Arguments &arguments) {
  if (blocks == 0) return;
  Launcher l = launcher(where);
  TORCH_CHECK(l.launch, "the kernels of a device were removed during an operation");
  char *error = l.launch(l.context, static_cast<int>(where.get_device()), ("psyche_" + kernel).c_str(), blocks, &arguments, sizeof arguments);
  if (!error) return;
  std::string text = error;
  std::free(error);
  TORCH_CHECK(false, "launch ", kernel, ": ", text);
}

// The kernels read and write 4 elements at once.
bool aligned(const Tensor &t) { return reinterpret_cast<uintptr_t>(t.data_ptr()) % (4 * t.element_size()) == 0; }

bool has_type(const Tensor &t) { return t.scalar_type() == at::kFloat || t.scalar_type() == at::kBFloat16; }

int64_t blocks_of(int64_t elements) { return (elements / 4 + PIECES_THREADS - 1) / PIECES_THREADS; }

} // namespace

bool fit(const Tensor &first, std::initializer_list<Tensor> others) {
  if (first.device().is_cpu() || !has_type(first) || !launcher(first).launch) return false;
  auto fits = [&](const Tensor &t) {
    return !t.defined() || (t.device() == first.device() && t.is_contiguous() && t.dim() > 0 && t.size(-1) % 4 == 0 && aligned(t));
  };
  return fits(first) && std::all_of(others.begin(), others.end(), fits);
}

std::pair<Tensor, Tensor> norm_forward(const Tensor &x, const Tensor &weight, double epsilon) {
  Tensor y = at::empty_like(x), inverse = at::empty({x.size(0), 1}, weight.options());
  pieces_norm a{x.data_ptr(), data<float>(weight), y.data_ptr(), data<float>(inverse), x.size(1), static_cast<float>(epsilon)};
  launch(x, std::string("norm_forward") + type_name(x), x.size(0), a);
  return {y, inverse};
}

Tensor norm_backward(const Tensor &g, const Tensor &x, const Tensor &weight, const Tensor &inverse, const Tensor &extra, Tensor &sum,
                     bool add) {
  constexpr int64_t most = 512; // enough blocks for all multiprocessors
  int64_t rows = x.size(0), n = x.size(1), parts = std::min(rows, most);
  Tensor dx = at::empty_like(x), partial = at::empty({parts, n}, weight.options());
  pieces_norm_backward a{g.data_ptr(), x.data_ptr(), data<float>(weight), data<float>(inverse), extra.defined() ? extra.data_ptr() : nullptr,
                         dx.data_ptr(), data<float>(partial), rows, n};
  launch(x, std::string("norm_backward") + type_name(x), parts, a);
  pieces_sum_parts b{data<float>(partial), data<float>(sum), parts, n, add};
  launch(x, "sum_parts", (n + PIECES_COLUMNS - 1) / PIECES_COLUMNS, b);
  return dx;
}

Tensor swiglu(const Tensor &pairs) {
  int64_t rows = pairs.size(0), n = pairs.size(1) / 2;
  Tensor y = at::empty({rows, n}, pairs.options());
  launch(pairs, std::string("swiglu") + type_name(pairs), blocks_of(rows * n), pieces_swiglu{pairs.data_ptr(), y.data_ptr(), rows, n});
  return y;
}

void swiglu_backward(Tensor &pairs, Tensor &g) {
  int64_t rows = g.size(0), n = g.size(1);
  launch(pairs, std::string("swiglu_backward") + type_name(pairs), blocks_of(rows * n), pieces_swiglu{pairs.data_ptr(), g.data_ptr(), rows, n});
}

bool fit(const std::vector<Heads> &list, const Tensor &cos, const Tensor &sin) {
  const Tensor &first = list[0].x;
  auto fits = [&](const Tensor &t) {
    if (t.scalar_type() != first.scalar_type() || t.device() != first.device() || t.size(3) % 8 != 0 || t.stride(3) != 1 || !aligned(t)) return false;
    return t.stride(0) % 4 == 0 && t.stride(1) % 4 == 0 && t.stride(2) % 4 == 0;
  };
  auto both = [&](const Heads &h) { return fits(h.x) && fits(h.out); };
  return has_type(first) && cos.scalar_type() == at::kFloat && sin.scalar_type() == at::kFloat && fit(cos, {sin}) &&
         cos.device() == first.device() && std::all_of(list.begin(), list.end(), both);
}

void rotate(const std::vector<Heads> &list, const Tensor &cos, const Tensor &sin, int direction) {
  const Tensor &first = list[0].x;
  pieces_rotate a{};
  for (const Heads &h : list) {
    a.list[a.count++] = {h.x.data_ptr(),  h.out.data_ptr(),  h.x.stride(0),   h.x.stride(1),
                         h.x.stride(2),   h.out.stride(0),   h.out.stride(1), h.out.stride(2),
                         static_cast<int>(h.x.size(2)), h.turns};
  }
  a.cos = data<float>(cos), a.sin = data<float>(sin), a.T = first.size(1);
  a.half = static_cast<int>(first.size(3) / 2), a.direction = static_cast<float>(direction);
  launch(first, std::string("rotate") + type_name(first), first.size(0) * first.size(1), a);
}

Tensor count(const Tensor &targets, int64_t ignore) {
  Tensor n = at::empty({1}, targets.options().dtype(at::kFloat));
  auto numbers = static_cast<const long long *>(targets.data_ptr());
  launch(targets, "count", 1, pieces_count{numbers, data<float>(n), targets.size(0), ignore});
  return n;
}

void cross_entropy(Tensor &logits, const Tensor &targets, const Tensor &count, int64_t ignore, double slope, Tensor losses) {
  pieces_cross_entropy a{logits.data_ptr(), static_cast<const long long *>(targets.data_ptr()), data<float>(count), data<float>(losses),
                         logits.size(1), ignore, static_cast<float>(slope)};
  launch(logits, std::string("cross_entropy") + type_name(logits), logits.size(0), a);
}

Tensor embed(const Tensor &weight, const Tensor &ids, at::ScalarType type) {
  Tensor y = at::empty({ids.numel(), weight.size(1)}, weight.options().dtype(type));
  pieces_embed a{data<float>(weight), static_cast<const long long *>(ids.data_ptr()), y.data_ptr(), weight.size(0), weight.size(1)};
  launch(weight, std::string("embed") + type_name(y), ids.numel(), a);
  return y;
}

void embed_gradient(const Tensor &g, const Tensor &ids, Tensor &sum) {
  pieces_embed_gradient a{g.data_ptr(), static_cast<const long long *>(ids.data_ptr()), data<float>(sum), ids.numel(), sum.size(0), sum.size(1)};
  launch(g, std::string("embed_gradient") + type_name(g), ids.numel(), a);
}

} // namespace launches

void set_device_kernels(int device, pt_launch launch, void *context) {
  std::lock_guard<std::mutex> hold(launches::launchers.lock);
  if (launch) {
    launches::launchers.of[device] = {launch, context};
  } else {
    launches::launchers.of.erase(device);
  }
}

} // namespace psyche
