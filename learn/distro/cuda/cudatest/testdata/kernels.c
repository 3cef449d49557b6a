// The kernels, compiled for this CPU.

#include "cuda.h"
#include "kernels.h"

#include "kernel.cu"

#include "decode.cu"
#include "encode.cu"
#include "measure.cu"
#include "digest.cu"
#include "local.cu"

// Each kernel and the type of its arguments.
#define KERNELS(F) \
	F(psyche_distro_apply, decoding) \
	F(psyche_distro_add, decoding) \
	F(psyche_distro_encode, encoding) \
	F(psyche_distro_squares, squaring) \
	F(psyche_distro_samples, sampling) \
	F(psyche_distro_floors, flooring) \
	F(psyche_distro_digest, digesting) \
	F(psyche_distro_gather, gathering) \
	F(psyche_local_adamw, stepping) \
	F(psyche_local_far, differing) \
	F(psyche_local_mean, averaging) \
	F(psyche_local_quantize, quantizing)

#define START(name, arguments) \
	static void start_##name(const void *a) { name(*(const arguments *)a); }
KERNELS(START)

#define FUNCTION(name, arguments) {#name, start_##name, sizeof(arguments), 0},
const fiber_kernel kernels[] = {KERNELS(FUNCTION){NULL, NULL, 0, 0}};
const unsigned kernel_threads = THREADS;
