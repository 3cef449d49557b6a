// The memory of the strict device, and its counters. This part does not depend on libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "api.h"

namespace strict {

constexpr int kDevices = PSYCHE_STRICT_DEVICES;

// Returns memory that faults outside of kernels, or null if the limit of the ordinal does not allow
// it. New memory contains NaNs. An access beyond the end faults even inside of kernels. release runs the
// work of our kernels first, which may use the memory.
void *allocate(int device, size_t bytes);
void release(void *memory);
int64_t limit(int device);

// Returns the ordinal that owns the address, or -1.
int owner(const void *address);

// Makes the block that contains an address accessible while it exists, if the address is memory of
// the device.
class Open {
public:
  explicit Open(const void *address);
  ~Open();
  Open(const Open &) = delete;
  Open &operator=(const Open &) = delete;

private:
  char *block;
};

// Runs the queues of our kernels on an ordinal. It returns null, or the error of a kernel.
const char *finish(int device);

void count_launch(const std::string &name);
void count_wait();
void count_up(int64_t bytes);
void count_down(int64_t bytes);

} // namespace strict
