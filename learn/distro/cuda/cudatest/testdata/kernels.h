#ifndef PSYCHE_EMULATED_KERNELS_H
#define PSYCHE_EMULATED_KERNELS_H

#include "fibers.h"

extern const fiber_kernel kernels[]; // up to one without a name
extern const fiber_kernel layer_kernels[] __attribute__((weak)); // likewise; missing without a C++ compiler
extern const unsigned kernel_threads;

#endif
