#include "products.h"

#include "pieces.h"

#include <map>
#include <mutex>

namespace psyche {
namespace {

// ---- products ----

// Devices may multiply bf16 or f16 to f32 without rounding the result to 16 bits in between. libtorch
// has it since about 2.8, for some devices only. Without it, these functions return false and do
// nothing.
template <class T> auto wide_product(const T &a, const T &b, T &out, int) -> decltype(at::mm(a, b, at::kFloat), bool()) {
  out = at::mm(a, b, at::kFloat);
  return true;
}
template <class T> bool wide_product(const T &, const T &, T &, long) { return false; }

template <class T> auto add_wide_product(T &sum, const T &a, const T &b, int) -> decltype(at::addmm_out(sum, sum, a, b, at::kFloat), bool()) {
  at::addmm_out(sum, sum, a, b, at::kFloat);
  return true;
}
template <class T> bool add_wide_product(T &, const T &, const T &, long) { return false; }

bool multiplies_wide(const at::TensorOptions &options) {
  try {
    Tensor ones = at::ones({16, 16}, options), once;
    if (!wide_product(ones, ones, once, 0)) return false;
    Tensor twice = once.clone();
    return add_wide_product(twice, ones, ones, 0) && once.eq(16).all().item().toBool() && twice.eq(32).all().item().toBool();
  } catch (const c10::Error &) {
    return false;
  }
}

// Reports whether a's device has both functions. The first call for a device and type tries them,
// and waits for the device.
bool wide(const Tensor &a) {
  if (a.device().is_cpu() || (a.scalar_type() != at::kBFloat16 && a.scalar_type() != at::kHalf)) return false;
  static std::mutex lock;
  static std::map<std::pair<int, at::ScalarType>, bool> known;
  std::lock_guard<std::mutex> hold(lock);
  auto key = std::make_pair(static_cast<int>(a.get_device()), a.scalar_type());
  auto found = known.find(key);
  if (found == known.end()) found = known.emplace(key, multiplies_wide(a.options())).first;
  return found->second;
}

// ---- conversions of weights ----

// The kept conversions of one block of memory.
struct Conversions {
  c10::weak_intrusive_ptr<c10::StorageImpl> memory;
  struct Kept {
    Tensor copy; // of the whole block, flat
    bool current = false;
    uint32_t version = 0; // of the tensor that was converted; libtorch's changes in place increment it
  };
  std::map<at::ScalarType, Kept> by_type;
};

struct {
  std::mutex lock;
  std::map<const c10::StorageImpl *, Conversions> all;
} kept;

const c10::StorageImpl *memory_of(const Tensor &t) { return t.storage().unsafeGetStorageImpl(); }

// Returns a view of a kept conversion, or an undefined tensor.
Tensor kept_cast(const Tensor &t, at::ScalarType type) {
  if (t.scalar_type() != at::kFloat || !t.has_storage()) return Tensor();
  std::lock_guard<std::mutex> hold(kept.lock);
  auto found = kept.all.find(memory_of(t));
  if (found == kept.all.end()) return Tensor();
  Conversions::Kept &k = found->second.by_type[type];
  int64_t elements = static_cast<int64_t>(t.storage().nbytes() / sizeof(float));
  auto version = t.unsafeGetTensorImpl()->version_counter().current_version();
  if (!k.copy.defined()) k.copy = at::empty({elements}, t.options().dtype(type));
  if (!k.current || k.version != version) {
    k.copy.copy_(t.as_strided({elements}, {1}, 0));
    k.current = true, k.version = version;
  }
  return k.copy.as_strided(t.sizes(), t.strides(), t.storage_offset());
}

} // namespace

Tensor product(const Tensor &a, const Tensor &b, at::ScalarType type) {
  Tensor out;
  if (type == at::kFloat && wide(a) && wide_product(a, b, out, 0)) return out;
  return cast(at::mm(a, b), type);
}

void add_product_to(Tensor sum, const Tensor &a, const Tensor &b) {
  if (sum.scalar_type() == a.scalar_type()) {
    sum.addmm_(a, b);
  } else if (!(sum.scalar_type() == at::kFloat && wide(a) && add_wide_product(sum, a, b, 0))) {
    accumulate(sum, at::mm(a, b));
  }
}

Tensor cast(const Tensor &t, at::ScalarType type) {
  if (t.scalar_type() == type) return t;
  Tensor found = kept_cast(t, type);
  return found.defined() ? found : converted(t, type);
}

// ---- the table ----

void keep_conversions(pt_tensor *weights, int count) {
  std::lock_guard<std::mutex> hold(kept.lock);
  for (auto i = kept.all.begin(); i != kept.all.end();) i = i->second.memory.expired() ? kept.all.erase(i) : std::next(i);
  for (int i = 0; i < count; i++) {
    c10::Storage storage = T(weights[i]).storage();
    auto memory = c10::intrusive_ptr<c10::StorageImpl>::reclaim(storage.unsafeReleaseStorageImpl());
    kept.all.emplace(memory.get(), Conversions{c10::weak_intrusive_ptr<c10::StorageImpl>(memory), {}});
  }
}

void conversions_changed(pt_tensor *weights, int count) {
  std::lock_guard<std::mutex> hold(kept.lock);
  for (int i = 0; i < count; i++) {
    auto found = kept.all.find(memory_of(T(weights[i])));
    if (found == kept.all.end()) continue;
    for (auto &entry : found->second.by_type) entry.second.current = false;
  }
}

void drop_conversions(pt_tensor *weights, int count) {
  std::lock_guard<std::mutex> hold(kept.lock);
  for (int i = 0; i < count; i++) kept.all.erase(memory_of(T(weights[i])));
}

} // namespace psyche
