// The kernels of the DisTrO optimizer. The order of the floating-point operations is the order in
// reference.go and transform.go; see doc.go.

#ifndef PSYCHE_DISTRO_KERNEL_H
#define PSYCHE_DISTRO_KERNEL_H

#include <stdint.h>

enum { PSYCHE_DISTRO_BASELINE, PSYCHE_DISTRO_AVX2, PSYCHE_DISTRO_AVX512 };

// One direction of a chunk's transform: along a column (over the rows) or along a row.
typedef struct {
	int n;              // points
	int lee;            // whether n is a power of two: Lee's recursion, else the dense basis
	float mean, scale;  // factors of coefficient 0 and of the others
	const float *basis; // n rows of padded(n) floats
} psyche_distro_axis;

typedef struct {
	psyche_distro_axis column, row;
	const float *secants; // of n points, from index n/2 on
	int64_t stride;       // floats from a row of the tensor to the next
	int64_t blocks;       // chunks in a row of chunks
	float *scratch;       // psyche_distro_scratch floats, 64-byte aligned, initially zero
} psyche_distro_plan;

// Returns the instruction sets that this processor has: a bit set by the enum above.
unsigned psyche_distro_isas(void);

// Returns the number of floats of scratch memory for a chunk of rows × cols.
int64_t psyche_distro_scratch(int rows, int cols);

// Encodes the chunks first … last−1 of delta, and writes their new momentum to left, which may be
// delta: see Kernel.EncodeTo. Chunk c has k entries in indices and values from c·k on. If a chunk has
// no coefficient of at least floor, nothing is selected in it. Returns the first chunk that is not
// finite, or −1.
int64_t psyche_distro_encode(int isa, psyche_distro_plan plan, int64_t first, int64_t last,
	const float *delta, float *left, const float *grad, float decay, float lr, float floor,
	int k, uint16_t *counts, uint16_t *indices, float *values);

// Applies entries to the chunks first … last−1: w ← w·factor − rate·sign(DCT⁻¹(entries)). The
// entries of chunk c are at offsets[c − first] to offsets[c − first + 1], and its rate at rates[c −
// first].
void psyche_distro_apply(int isa, psyche_distro_plan plan, int64_t first, int64_t last,
	const int32_t *offsets, const uint16_t *indices, const float *values,
	float *weights, const float *rates, float factor);

// Adds the inverse transform of entries: delta ← delta + DCT⁻¹(entries).
void psyche_distro_add(int isa, psyche_distro_plan plan, int64_t first, int64_t last,
	const int32_t *offsets, const uint16_t *indices, const float *values, float *delta);

// Returns the sum of squares of n values: see Norm.
double psyche_distro_squares(int isa, const float *v, int64_t n);

#endif
