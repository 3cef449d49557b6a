//go:build cgo && linux

#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

// look_up finds a function, or writes the name of the missing function to *missing.
static void *look_up(void *library, const char *symbol, const char **missing) {
	void *function = dlsym(library, symbol);
	if (!function && !*missing)
		*missing = symbol;
	return function;
}

static char *lacking(const char *missing) {
	char *text = NULL;
	if (missing && asprintf(&text, "missing function %s: the library is too old", missing) < 0)
		return strdup("out of memory");
	return text;
}

// A library stays open, because other code in the process may use it, and unloading a driver is not
// supported.
#define LOOK_UP(name, symbol, parameters, arguments) *(void **)&table->name = look_up(library, #symbol, &missing);

char *psyche_cuda_open_driver(const char *path, psyche_cuda_driver *table) {
	const char *missing = NULL;
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return strdup(dlerror());
	PSYCHE_CUDA_DRIVER(LOOK_UP)
	LOOK_UP(cuCtxSynchronize, cuCtxSynchronize, , )
	return lacking(missing);
}

// open_builtins opens the library that NVRTC opens by its name alone when it compiles. NVRTC then finds
// it in any folder.
static void open_builtins(const char *nvrtc) {
	char pattern[4096];
	const char *slash = strrchr(nvrtc, '/');
	if (!slash || snprintf(pattern, sizeof pattern, "%.*slibnvrtc-builtins*.so*", (int)(slash - nvrtc + 1), nvrtc) >= (int)sizeof pattern)
		return;
	glob_t found;
	if (glob(pattern, 0, NULL, &found) == 0)
		for (size_t i = 0; i < found.gl_pathc; i++)
			dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
	globfree(&found);
}

char *psyche_cuda_open_nvrtc(const char *path, psyche_cuda_nvrtc *table) {
	const char *missing = NULL;
	open_builtins(path);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return strdup(dlerror());
	PSYCHE_CUDA_NVRTC(LOOK_UP)
	LOOK_UP(nvrtcGetErrorString, nvrtcGetErrorString, , )
	return lacking(missing);
}

const char *psyche_cuda_error_name(const psyche_cuda_driver *d, int code) {
	const char *name = NULL;
	return d->cuGetErrorName(code, &name) == 0 ? name : NULL;
}

const char *psyche_cuda_nvrtc_error(const psyche_cuda_nvrtc *n, int code) { return n->nvrtcGetErrorString(code); }

int psyche_cuda_load(const psyche_cuda_driver *d, void **module, const char *ptx, char *log, unsigned size) {
	enum { ERROR_LOG_BUFFER = 5, ERROR_LOG_BUFFER_SIZE_BYTES = 6 };
	int options[] = {ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)(uintptr_t)size};
	return d->cuModuleLoadDataEx(module, ptx, 2, options, values);
}

// The kernel runs on the default stream, in order with the caller's work there.
int psyche_cuda_launch(const psyche_cuda_driver *d, void *function, unsigned blocks, unsigned threads, unsigned shared, void *arguments) {
	void *parameters[] = {arguments};
	return d->cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, NULL, parameters, NULL);
}

int psyche_cuda_create(const psyche_cuda_nvrtc *n, void **program, const char *source) {
	return n->nvrtcCreateProgram(program, source, "kernel.cu", 0, NULL, NULL);
}

// These options switch off contraction and everything else that could change a bit. They are a
// second safeguard: the kernels use no operation to which they would apply.
int psyche_cuda_compile(const psyche_cuda_nvrtc *n, void *program, const char *architecture) {
	const char *options[] = {architecture, "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"};
	return n->nvrtcCompileProgram(program, sizeof options / sizeof *options, options);
}
