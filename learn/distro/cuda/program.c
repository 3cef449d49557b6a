//go:build cgo && linux

#define _GNU_SOURCE
#include "program.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static char *failed(const psyche_cuda_driver *d, const char *call, int code) {
	const char *name = psyche_cuda_error_name(d, code);
	char *text = NULL;
	return asprintf(&text, "%s: %s (%d)", call, name ? name : "unknown error", code) < 0 ? strdup("out of memory") : text;
}

char *psyche_cuda_program_launch(void *program, int device, const char *kernel, int64_t blocks, const void *argument, size_t size) {
	const psyche_cuda_program *p = program;
	(void)device, (void)size; // the module contains the size
	char **found = bsearch(&kernel, p->names, (size_t)p->count, sizeof *p->names, compare);
	if (!found)
		return strdup("no such kernel");
	if (blocks < 1 || blocks > INT_MAX)
		return strdup("too many blocks, or none");
	int code = p->driver->cuCtxPushCurrent(p->context);
	if (code)
		return failed(p->driver, "cuCtxPushCurrent", code);
	code = psyche_cuda_launch(p->driver, p->functions[found - p->names], (unsigned)blocks, p->threads, 0, (void *)argument);
	void *popped;
	int after = p->driver->cuCtxPopCurrent(&popped);
	if (code)
		return failed(p->driver, "cuLaunchKernel", code);
	return after ? failed(p->driver, "cuCtxPopCurrent", after) : NULL;
}
