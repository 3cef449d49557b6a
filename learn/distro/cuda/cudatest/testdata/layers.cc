// The kernels of learn/torch/cuda, compiled for this CPU.

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include "cuda.h"
#include "kernels.h"
}

static inline float __uint_as_float(unsigned bits) {
	float v;
	memcpy(&v, &bits, sizeof v);
	return v;
}

#include "pieces.h"

#include "pieces.cu"

namespace {
template <class A, void (*kernel)(A)> void start(const void *arguments) { kernel(*static_cast<const A *>(arguments)); }
}

#define ONE(name, arguments) {"psyche_" #name, start<arguments, psyche_##name>, sizeof(arguments), PIECES_THREADS}
#define BOTH(name, arguments) ONE(name##_f32, arguments), ONE(name##_bf16, arguments)

extern "C" const fiber_kernel layer_kernels[] = {
	BOTH(norm_forward, pieces_norm),
	BOTH(norm_backward, pieces_norm_backward),
	ONE(sum_parts, pieces_sum_parts),
	BOTH(rotate, pieces_rotate),
	BOTH(swiglu, pieces_swiglu),
	BOTH(swiglu_backward, pieces_swiglu),
	ONE(count, pieces_count),
	BOTH(cross_entropy, pieces_cross_entropy),
	BOTH(embed, pieces_embed),
	BOTH(embed_gradient, pieces_embed_gradient),
	{NULL, NULL, 0, 0},
};
