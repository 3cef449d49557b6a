#ifndef PSYCHE_EMULATED_KERNELS_H
#define PSYCHE_EMULATED_KERNELS_H

#include "fibers.h"

extern const fiber_kernel kernels[]; // up to one without a name
extern const unsigned kernel_threads;

#endif
