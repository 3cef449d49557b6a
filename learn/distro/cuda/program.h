// Kernels that other C code launches by name.

#ifndef PSYCHE_CUDA_PROGRAM_H
#define PSYCHE_CUDA_PROGRAM_H

#include "driver.h"

// All memory is allocated with malloc.
typedef struct {
	const psyche_cuda_driver *driver;
	void *context, *module;
	unsigned threads; // of each block
	int count;
	char **names; // sorted
	void **functions;
} psyche_cuda_program;

// Launches a kernel on the default stream, with one argument that the launch copies. The program
// determines the device, not the number. Returns NULL, or a message that the caller frees with free().
char *psyche_cuda_program_launch(void *program, int device, const char *kernel, int64_t blocks, const void *argument, size_t size);

#endif
