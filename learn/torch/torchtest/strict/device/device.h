// Parts of the strict device that its operations share.
#pragma once

#include "memory.h"

#include <ATen/ATen.h>
#include <torch/library.h>
#include <torch/version.h>

#include <initializer_list>
#include <list>
#include <optional>

namespace strict {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
using std::optional;
#else
using c10::optional;
#endif

// Makes the memory of tensors accessible, as for a kernel, while it exists. The kernel comes behind
// all work on the ordinals of the tensors.
class OpenTensors {
public:
  OpenTensors(std::initializer_list<at::Tensor> tensors);

private:
  std::list<Open> blocks;
};

// Returns a view on the CPU of a tensor's memory, which must be open.
at::Tensor host(const at::Tensor &t);

// Returns a copy of a result on a device, with the strides of the result. Kernels write their
// results, so it does not count as a copy.
at::Tensor moved(const at::Tensor &result, at::Device to);

} // namespace strict
