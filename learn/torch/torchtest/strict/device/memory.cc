#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace strict {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGranule = 512; // CUDA's allocator rounds sizes up to it

struct Block {
  char *pages;  // start of the mapping; the block ends where its last page, the guard, begins
  size_t bytes; // of the accessible pages
  size_t size;  // rounded up to kGranule
  int device;
  int opened;   // number of Open objects
};

// Work of our kernels that runs late.
struct Queue {
  const char *(*finish)(void *queue);
  void *queue;
};

// Ends of processes run destructors of tensors in any order, so this state is never destroyed.
struct State {
  std::mutex lock;
  std::map<const char *, Block> blocks; // by the first address
  int64_t limits[kDevices] = {};
  int opened[kDevices] = {}; // number of calls of open without close
  std::vector<Queue> queues[kDevices];
  psyche_strict_counts counts{};
  std::map<std::string, int64_t> launches;
};

State &state() {
  static State *only = new State;
  return *only;
}

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

bool accessible(const State &s, const Block &b) { return b.opened > 0 || s.opened[b.device] > 0; }

void protect(const State &s, const Block &b) {
  if (mprotect(b.pages, b.bytes, accessible(s, b) ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
    std::perror("strict device: mprotect");
    std::abort();
  }
}

// Returns the block that contains the address, or the end.
std::map<const char *, Block>::iterator find(State &s, const void *address) {
  auto at = static_cast<const char *>(address);
  auto next = s.blocks.upper_bound(at);
  if (next == s.blocks.begin()) return s.blocks.end();
  --next;
  return at < next->first + next->second.size ? next : s.blocks.end();
}

void change(int device, int by) {
  State &s = state();
  std::lock_guard<std::mutex> hold(s.lock);
  s.opened[device] += by;
  bool changed = s.opened[device] == (by > 0 ? 1 : 0);
  if (!changed) return;
  for (auto &entry : s.blocks) {
    if (entry.second.device == device) protect(s, entry.second);
  }
}

void add_queue(int device, Queue q) {
  State &s = state();
  std::lock_guard<std::mutex> hold(s.lock);
  auto &queues = s.queues[device];
  queues.erase(std::remove_if(queues.begin(), queues.end(), [&](const Queue &other) { return other.queue == q.queue; }), queues.end());
  if (q.finish) queues.push_back(q);
}

} // namespace

void *allocate(int device, size_t bytes) {
  if (bytes == 0) return nullptr;
  State &s = state();
  std::lock_guard<std::mutex> hold(s.lock);
  Block b{nullptr, 0, round_up(bytes, kGranule), device, 0};
  int64_t used = s.counts.used[device] + static_cast<int64_t>(b.size);
  if (s.limits[device] > 0 && used > s.limits[device]) return nullptr;
  b.bytes = round_up(b.size, kPage);
  void *pages = mmap(nullptr, b.bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  b.pages = static_cast<char *>(pages);
  char *first = b.pages + b.bytes - b.size;
  b.opened = 1;
  protect(s, b);
  std::memset(b.pages, 0xff, b.bytes);
  b.opened = 0;
  protect(s, b);
  s.blocks.emplace(first, b);
  s.counts.used[device] = used;
  s.counts.peak[device] = std::max(s.counts.peak[device], used);
  return first;
}

void release(void *memory) {
  if (!memory) return;
  if (int device = owner(memory); device >= 0) finish(device);
  State &s = state();
  std::lock_guard<std::mutex> hold(s.lock);
  auto found = s.blocks.find(static_cast<char *>(memory));
  if (found == s.blocks.end()) {
    std::fprintf(stderr, "strict device: release of %p, which is not allocated\n", memory);
    std::abort();
  }
  s.counts.used[found->second.device] -= static_cast<int64_t>(found->second.size);
  munmap(found->second.pages, found->second.bytes + kPage);
  s.blocks.erase(found);
}

int64_t limit(int device) {
  State &s = state();
  std::lock_guard<std::mutex> hold(s.lock);
  return s.limits[device];
}

int owner(const void *address) {
  State &s = state();
  std::lock_guard<std::mutex> hold(s.lock);
  auto found = find(s, address);
  return found == s.blocks.end() ? -1 : found->second.device;
}

Open::Open(const void *address) : block(nullptr) {
  State &s = state();
  std::lock_guard<std::mutex> hold(s.lock);
  auto found = find(s, address);
  if (found == s.blocks.end()) return;
  block = const_cast<char *>(found->first);
  if (found->second.opened++ == 0) protect(s, found->second);
}

Open::~Open() {
  if (!block) return;
  State &s = state();
  std::lock_guard<std::mutex> hold(s.lock);
  auto found = s.blocks.find(block);
  if (found != s.blocks.end() && --found->second.opened == 0) protect(s, found->second);
}

const char *finish(int device) {
  State &s = state();
  std::vector<Queue> queues;
  {
    std::lock_guard<std::mutex> hold(s.lock); // not while kernels run, which open memory
    queues = s.queues[device];
  }
  const char *failure = nullptr;
  for (const Queue &q : queues) {
    const char *of_queue = q.finish(q.queue);
    failure = failure ? failure : of_queue;
  }
  return failure;
}

void count_launch(const std::string &name) {
  State &s = state();
  std::lock_guard<std::mutex> hold(s.lock);
  s.counts.launches++;
  s.launches[name]++;
}

void count_wait() {
  State &s = state();
  std::lock_guard<std::mutex> hold(s.lock);
  s.counts.waits++;
}

void count_up(int64_t bytes) {
  State &s = state();
  std::lock_guard<std::mutex> hold(s.lock);
  s.counts.up_copies++;
  s.counts.up_bytes += bytes;
}

void count_down(int64_t bytes) {
  State &s = state();
  std::lock_guard<std::mutex> hold(s.lock);
  s.counts.down_copies++;
  s.counts.down_bytes += bytes;
}

} // namespace strict

#define STRICT_API extern "C" __attribute__((visibility("default")))

STRICT_API void psyche_strict_open(int device) { strict::change(device, 1); }
STRICT_API void psyche_strict_close(int device) { strict::change(device, -1); }
STRICT_API void psyche_strict_follow(int device, const char *(*finish)(void *), void *queue) { strict::add_queue(device, {finish, queue}); }

STRICT_API void psyche_strict_launched(const char *name) { strict::count_launch(name); }

STRICT_API void psyche_strict_read(psyche_strict_counts *counts) {
  strict::State &s = strict::state();
  std::lock_guard<std::mutex> hold(s.lock);
  *counts = s.counts;
}

STRICT_API void psyche_strict_reset(void) {
  strict::State &s = strict::state();
  std::lock_guard<std::mutex> hold(s.lock);
  psyche_strict_counts zero{};
  for (int d = 0; d < strict::kDevices; d++) zero.used[d] = zero.peak[d] = s.counts.used[d];
  s.counts = zero;
  s.launches.clear();
}

STRICT_API char *psyche_strict_operations(void) {
  strict::State &s = strict::state();
  std::lock_guard<std::mutex> hold(s.lock);
  std::string text;
  for (const auto &entry : s.launches) text += std::to_string(entry.second) + " " + entry.first + "\n";
  return strdup(text.c_str());
}

STRICT_API void psyche_strict_limit(int device, int64_t bytes) {
  strict::State &s = strict::state();
  std::lock_guard<std::mutex> hold(s.lock);
  s.limits[device] = bytes;
}

STRICT_API void *psyche_strict_allocate(int device, size_t bytes) { return strict::allocate(device, bytes); }
STRICT_API void psyche_strict_release(void *memory) { strict::release(memory); }
