// Runs the kernels outside Go, so that a test can compile them with other options. Usage:
//   standalone ISA <in >out
// in: a struct sizes, then floats: both bases, secants, delta, grad, weights. out: counts,
// indices, values, delta after encode, weights after apply, delta after add.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

#include "../kernel.h"

struct sizes {
	int32_t rows, cols, stride, chunks, k, secants;
	float column[2], row[2], decay, lr, factor;
	int32_t column_lee, row_lee;
};

static void *take(size_t size) {
	void *p = aligned_alloc(64, (size + 127) / 64 * 64);
	if (!p || fread(p, 1, size, stdin) != size) {
		fprintf(stderr, "standalone: short input\n");
		exit(2);
	}
	return p;
}

static void give(const void *p, size_t size) {
	if (fwrite(p, 1, size, stdout) != size)
		exit(2);
}

int main(int argc, char **argv) {
	const int isa = argc > 1 ? atoi(argv[1]) : 0;
	const struct sizes *z = take(sizeof *z);
	const size_t elements = (size_t)z->rows * z->cols * z->chunks * sizeof(float);
	psyche_distro_plan plan = {0};
	plan.column = (psyche_distro_axis){z->rows, z->column_lee, z->column[0], z->column[1], NULL};
	plan.row = (psyche_distro_axis){z->cols, z->row_lee, z->row[0], z->row[1], NULL};
	plan.stride = z->stride;
	plan.blocks = z->stride / z->cols;
	plan.column.basis = take((size_t)z->rows * ((z->rows + 15) & ~15) * sizeof(float));
	plan.row.basis = take((size_t)z->cols * ((z->cols + 15) & ~15) * sizeof(float));
	plan.secants = take(z->secants * sizeof(float));
	size_t scratch = psyche_distro_scratch(z->rows, z->cols) * sizeof(float);
	plan.scratch = aligned_alloc(64, (scratch + 63) / 64 * 64);
	memset(plan.scratch, 0, scratch);
	float *delta = take(elements), *grad = take(elements), *weights = take(elements);

	const size_t slots = (size_t)z->chunks * z->k;
	uint16_t *counts = calloc(z->chunks, 2), *indices = calloc(slots, 2);
	float *values = calloc(slots, 4);
	int32_t *offsets = calloc(z->chunks + 1, 4);
	float *rates = calloc(z->chunks, 4);
	for (int c = 0; c <= z->chunks; c++)
		offsets[c] = c * z->k;
	for (int c = 0; c < z->chunks; c++)
		rates[c] = c % 2 ? z->lr / 3 : z->lr;

	// Another library may have left this mode: subnormals flushed, rounding upwards.
	const unsigned mode = 0x9fc0 | 0x4000;
	_mm_setcsr(mode);
	if (psyche_distro_encode(isa, plan, 0, z->chunks, delta, delta, grad, z->decay, z->lr, 0, z->k, counts, indices, values) >= 0)
		return 3;
	give(counts, 2 * z->chunks);
	give(indices, 2 * slots);
	give(values, 4 * slots);
	give(delta, elements);
	psyche_distro_apply(isa, plan, 0, z->chunks, offsets, indices, values, weights, rates, z->factor);
	give(weights, elements);
	psyche_distro_add(isa, plan, 0, z->chunks, offsets, indices, values, delta);
	give(delta, elements);
	if ((_mm_getcsr() & ~0x3fu) != mode) {
		fprintf(stderr, "standalone: the floating-point mode was not put back\n");
		return 4;
	}
	return 0;
}
