// A CUDA driver and NVRTC that run the kernels on this CPU: see fibers.c. Without a GPU, tests can check
// the bits and the races of the kernels' source, and the calls of the launcher. Shared memory begins
// as NaNs, and a guard page that may not be accessed follows every allocation.

#define _GNU_SOURCE
#include "kernels.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_FOUND = 500, LAUNCH_FAILED = 719 };

#define PAGE 4096
#define ALLOCATIONS 4096
static struct { char *at, *map; size_t size, mapped; } allocations[ALLOCATIONS];
static __thread int depth; // depth of this thread's stack of contexts
static int context;
static char text[1 << 17];
static char kernel_failure[600] = "CUDA_ERROR_LAUNCH_FAILED"; // the name of LAUNCH_FAILED, with its reason

// failing returns the code with which a call must fail. The environment variable names the call, as
// in "cuLaunchKernel 700".
static int failing(const char *call) {
	const char *wish = getenv("PSYCHE_EMULATED_FAILURE");
	size_t n = strlen(call);
	return wish && strncmp(wish, call, n) == 0 && wish[n] == ' ' ? atoi(wish + n) : SUCCESS;
}

#define CALL(name) \
	if (failing(name)) \
	return failing(name)
#define CURRENT(name) \
	CALL(name); \
	if (depth == 0) \
	return INVALID_CONTEXT

static int within(uint64_t address, size_t size) {
	for (int i = 0; i < ALLOCATIONS; i++)
		if (allocations[i].at && address >= (uint64_t)allocations[i].at &&
			address + size <= (uint64_t)allocations[i].at + allocations[i].size)
			return 1;
	return 0;
}

// strict calls a function of a library in the process whose memory may be accessed only by kernels and
// copies: psyche_strict_open or psyche_strict_close. Without such a library it does nothing.
static void strict(const char *name) {
	void (*function)(void);
	*(void **)&function = dlsym(RTLD_DEFAULT, name);
	if (function)
		function();
}

static void count_launch(const char *kernel) {
	void (*launched)(const char *);
	*(void **)&launched = dlsym(RTLD_DEFAULT, "psyche_strict_launched");
	if (launched)
		launched(kernel);
}

static void copy(void *to, const void *from, size_t size) {
	strict("psyche_strict_open");
	memcpy(to, from, size);
	strict("psyche_strict_close");
}

int cuGetErrorName(int code, const char **name) {
	switch (code) {
	case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
	case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
	case 100: *name = "CUDA_ERROR_NO_DEVICE"; break;
	case INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; break;
	case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
	case 222: *name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"; break;
	case 700: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
	case LAUNCH_FAILED: *name = kernel_failure; break;
	case NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; break;
	default: return INVALID_VALUE;
	}
	return SUCCESS;
}

int cuInit(unsigned flags) {
	CALL("cuInit");
	return flags ? INVALID_VALUE : SUCCESS;
}
int cuDeviceGetCount(int *count) {
	CALL("cuDeviceGetCount");
	*count = 1;
	return SUCCESS;
}
int cuDeviceGet(int *device, int ordinal) {
	*device = 7;
	return ordinal ? INVALID_DEVICE : SUCCESS;
}
int cuDeviceGetName(char *name, int size, int device) {
	snprintf(name, size, "emulated");
	return device == 7 ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
	switch (attribute) {
	case 16: *value = 1; break; // multiprocessors
	case 75: *value = 9; break; // compute capability
	case 76: *value = 7; break;
	default: return INVALID_VALUE;
	}
	return device == 7 ? SUCCESS : INVALID_DEVICE;
}
int cuDevicePrimaryCtxRetain(void **out, int device) {
	CALL("cuDevicePrimaryCtxRetain");
	*out = &context;
	return device == 7 ? SUCCESS : INVALID_DEVICE;
}
// Memory that was not freed is an error, so that tests detect leaks.
int cuDevicePrimaryCtxRelease_v2(int device) {
	for (int i = 0; i < ALLOCATIONS; i++)
		if (allocations[i].at)
			return OUT_OF_MEMORY;
	return device == 7 ? SUCCESS : INVALID_DEVICE;
}
int cuCtxPushCurrent_v2(void *c) {
	depth++;
	return c == &context ? SUCCESS : INVALID_CONTEXT;
}
int cuCtxPopCurrent_v2(void **c) {
	if (depth-- == 0)
		return INVALID_CONTEXT;
	*c = &context;
	return SUCCESS;
}
int cuCtxSynchronize(void) {
	CURRENT("cuCtxSynchronize");
	return SUCCESS;
}

int cuMemAlloc_v2(uint64_t *out, size_t size) {
	CURRENT("cuMemAlloc");
	if (size == 0)
		return INVALID_VALUE;
	for (int i = 0; i < ALLOCATIONS; i++) {
		if (allocations[i].at)
			continue;
		size_t mapped = (size + PAGE - 1) / PAGE * PAGE + PAGE;
		char *map = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (map == MAP_FAILED)
			return OUT_OF_MEMORY;
		mprotect(map + mapped - PAGE, PAGE, PROT_NONE);
		memset(map, 0xff, mapped - PAGE);
		allocations[i].map = map, allocations[i].mapped = mapped, allocations[i].size = size;
		// The allocation ends at the guard page, as far as an alignment of 8 bytes allows.
		allocations[i].at = map + (mapped - PAGE - size) / 8 * 8;
		*out = (uint64_t)allocations[i].at;
		return SUCCESS;
	}
	return OUT_OF_MEMORY;
}
int cuMemFree_v2(uint64_t address) {
	CURRENT("cuMemFree");
	for (int i = 0; i < ALLOCATIONS; i++)
		if (allocations[i].at && (uint64_t)allocations[i].at == address) {
			munmap(allocations[i].map, allocations[i].mapped);
			allocations[i].at = NULL;
			return SUCCESS;
		}
	return INVALID_VALUE;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
	CURRENT("cuMemcpyHtoD");
	if (!within(to, size))
		return INVALID_VALUE;
	copy((void *)to, from, size);
	return SUCCESS;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
	CURRENT("cuMemcpyDtoH");
	if (!within(from, size))
		return INVALID_VALUE;
	copy(to, (const void *)from, size);
	return SUCCESS;
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned count, const int *keys, void **values) {
	CURRENT("cuModuleLoadDataEx");
	for (unsigned i = 0; i < count; i++)
		if (keys[i] == 5)
			snprintf(values[i], 16, "a log");
	*module = text;
	return strcmp(image, "emulated") == 0 ? SUCCESS : INVALID_VALUE;
}
int cuModuleUnload(void *module) {
	CURRENT("cuModuleUnload");
	return module == text ? SUCCESS : INVALID_VALUE;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
	CURRENT("cuModuleGetFunction");
	const fiber_kernel *lists[] = {kernels, layer_kernels};
	for (int i = 0; i < 2; i++)
		for (const fiber_kernel *k = lists[i]; k && module == text && k->name; k++)
			if (strcmp(name, k->name) == 0) {
				*function = (void *)k;
				return SUCCESS;
			}
	return NOT_FOUND;
}

static size_t dynamic_allowed = 48 << 10;

int cuFuncSetAttribute(void *function, int attribute, int value) {
	CURRENT("cuFuncSetAttribute");
	if (attribute != 8 || strcmp(((fiber_kernel *)function)->name, "psyche_distro_encode") != 0 || value > FIBER_DYNAMIC_LIMIT)
		return INVALID_VALUE;
	dynamic_allowed = value;
	return SUCCESS;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
	unsigned shared, void *stream, void **parameters, void **extra) {
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	CURRENT("cuLaunchKernel");
	const fiber_kernel *kernel = function;
	if (x == 0 || x > 0x7fffffff || y != 1 || z != 1 || tx != (kernel->threads ? kernel->threads : kernel_threads) || ty != 1 || tz != 1 || stream || extra || shared > dynamic_allowed)
		return INVALID_VALUE;
	pthread_mutex_lock(&one_at_a_time);
	strict("psyche_strict_open");
	count_launch(kernel->name);
	const char *failure = fiber_launch(kernel, parameters[0], x, tx, shared);
	if (failure)
		snprintf(kernel_failure, sizeof kernel_failure, "CUDA_ERROR_LAUNCH_FAILED: %s", failure);
	strict("psyche_strict_close");
	pthread_mutex_unlock(&one_at_a_time);
	return failure ? LAUNCH_FAILED : SUCCESS;
}

// NVRTC

const char *nvrtcGetErrorString(int code) { return code == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_INTERNAL_ERROR"; }
int nvrtcGetNumSupportedArchs(int *count) {
	*count = 3;
	return 0;
}
int nvrtcGetSupportedArchs(int *archs) {
	archs[0] = 50, archs[1] = 90, archs[2] = 200;
	return 0;
}
int nvrtcCreateProgram(void **program, const char *source, const char *name, int headers, const char *const *h, const char *const *n) {
	*program = text;
	snprintf(text, sizeof text, "%s", source);
	return !name || headers || h || n;
}
int nvrtcCompileProgram(void *program, int count, const char *const *given) {
	CALL("nvrtcCompileProgram");
	return program != text || count < 1 || strcmp(given[0], "--gpu-architecture=compute_90");
}
int nvrtcGetProgramLogSize(void *program, size_t *size) {
	*size = 24;
	return program != text;
}
int nvrtcGetProgramLog(void *program, char *log) {
	snprintf(log, 24, "kernel.cu(1): a mistake");
	return program != text;
}
int nvrtcGetPTXSize(void *program, size_t *size) {
	*size = sizeof "emulated";
	return program != text;
}
int nvrtcGetPTX(void *program, char *ptx) {
	strcpy(ptx, "emulated");
	return program != text;
}
int nvrtcDestroyProgram(void **program) {
	*program = NULL;
	return 0;
}
