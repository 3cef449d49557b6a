// The CUDA driver and NVRTC, opened at run time. The build needs no part of CUDA.

#ifndef PSYCHE_CUDA_DRIVER_H
#define PSYCHE_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

// Each function: its name here, its symbol, its parameters, and the parameters' names.
#define PSYCHE_CUDA_DRIVER(F) \
	F(cuInit, cuInit, (unsigned flags), (flags)) \
	F(cuGetErrorName, cuGetErrorName, (int code, const char **name), (code, name)) \
	F(cuDeviceGetCount, cuDeviceGetCount, (int *count), (count)) \
	F(cuDeviceGet, cuDeviceGet, (int *device, int ordinal), (device, ordinal)) \
	F(cuDeviceGetName, cuDeviceGetName, (char *name, int size, int device), (name, size, device)) \
	F(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *value, int attribute, int device), (value, attribute, device)) \
	F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void **context, int device), (context, device)) \
	F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int device), (device)) \
	F(cuCtxPushCurrent, cuCtxPushCurrent_v2, (void *context), (context)) \
	F(cuCtxPopCurrent, cuCtxPopCurrent_v2, (void **context), (context)) \
	F(cuMemAlloc, cuMemAlloc_v2, (uint64_t *address, size_t size), (address, size)) \
	F(cuMemFree, cuMemFree_v2, (uint64_t address), (address)) \
	F(cuMemcpyHtoD, cuMemcpyHtoD_v2, (uint64_t to, const void *from, size_t size), (to, from, size)) \
	F(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *to, uint64_t from, size_t size), (to, from, size)) \
	F(cuModuleLoadDataEx, cuModuleLoadDataEx, \
		(void **module, const void *image, unsigned count, const int *options, void **values), \
		(module, image, count, options, values)) \
	F(cuModuleUnload, cuModuleUnload, (void *module), (module)) \
	F(cuModuleGetFunction, cuModuleGetFunction, (void **function, void *module, const char *name), (function, module, name)) \
	F(cuFuncSetAttribute, cuFuncSetAttribute, (void *function, int attribute, int value), (function, attribute, value)) \
	F(cuLaunchKernel, cuLaunchKernel, \
		(void *function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz, \
			unsigned shared, void *stream, void **parameters, void **extra), \
		(function, x, y, z, tx, ty, tz, shared, stream, parameters, extra))

#define PSYCHE_CUDA_NVRTC(F) \
	F(nvrtcGetNumSupportedArchs, nvrtcGetNumSupportedArchs, (int *count), (count)) \
	F(nvrtcGetSupportedArchs, nvrtcGetSupportedArchs, (int *archs), (archs)) \
	F(nvrtcCreateProgram, nvrtcCreateProgram, \
		(void **program, const char *source, const char *name, int headers, const char *const *texts, const char *const *names), \
		(program, source, name, headers, texts, names)) \
	F(nvrtcCompileProgram, nvrtcCompileProgram, (void *program, int count, const char *const *options), (program, count, options)) \
	F(nvrtcGetProgramLogSize, nvrtcGetProgramLogSize, (void *program, size_t *size), (program, size)) \
	F(nvrtcGetProgramLog, nvrtcGetProgramLog, (void *program, char *log), (program, log)) \
	F(nvrtcGetPTXSize, nvrtcGetPTXSize, (void *program, size_t *size), (program, size)) \
	F(nvrtcGetPTX, nvrtcGetPTX, (void *program, char *ptx), (program, ptx)) \
	F(nvrtcDestroyProgram, nvrtcDestroyProgram, (void **program), (program))

#define FIELD(name, symbol, parameters, arguments) int(*name) parameters;
typedef struct {
	PSYCHE_CUDA_DRIVER(FIELD)
	int (*cuCtxSynchronize)(void);
} psyche_cuda_driver;
typedef struct {
	PSYCHE_CUDA_NVRTC(FIELD)
	const char *(*nvrtcGetErrorString)(int code);
} psyche_cuda_nvrtc;
#undef FIELD

// Opens a library and looks up its functions. Returns NULL, or an error message that the caller
// frees.
char *psyche_cuda_open_driver(const char *path, psyche_cuda_driver *d);
char *psyche_cuda_open_nvrtc(const char *path, psyche_cuda_nvrtc *n);

// Returns the name of a driver error, or NULL.
const char *psyche_cuda_error_name(const psyche_cuda_driver *d, int code);

// Functions with arguments that Go cannot pass directly.
int psyche_cuda_load(const psyche_cuda_driver *d, void **module, const char *ptx, char *log, unsigned size);
int psyche_cuda_launch(const psyche_cuda_driver *d, void *function, unsigned blocks, unsigned threads, unsigned shared, void *arguments);
int psyche_cuda_compile(const psyche_cuda_nvrtc *n, void *program, const char *architecture);
int psyche_cuda_create(const psyche_cuda_nvrtc *n, void **program, const char *source);
const char *psyche_cuda_nvrtc_error(const psyche_cuda_nvrtc *n, int code);

// Go cannot call function pointers, so each function has a wrapper.
#define LIST(...) __VA_ARGS__
#define DRIVER_CALL(name, symbol, parameters, arguments) \
	static inline int psyche_##name(const psyche_cuda_driver *d, LIST parameters) { return d->name arguments; }
#define NVRTC_CALL(name, symbol, parameters, arguments) \
	static inline int psyche_##name(const psyche_cuda_nvrtc *n, LIST parameters) { return n->name arguments; }
PSYCHE_CUDA_DRIVER(DRIVER_CALL)
PSYCHE_CUDA_NVRTC(NVRTC_CALL)
static inline int psyche_cuCtxSynchronize(const psyche_cuda_driver *d) { return d->cuCtxSynchronize(); }
#undef LIST
#undef DRIVER_CALL
#undef NVRTC_CALL

#endif
