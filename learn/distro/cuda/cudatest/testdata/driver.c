// A CUDA driver and NVRTC that run the kernels of kernel.cu on the CPU. Without a GPU, tests can
// check the bits of the kernels' source and the calls of the launcher. The threads of a block run
// one after the other between two barriers: in ascending order in one launch, in descending order
// in the next. So a result that depends on their order differs. Shared memory begins as NaNs, and a
// guard page that may not be accessed follows every allocation.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct { unsigned x; } blockIdx, gridDim;
static int downwards;
static _Alignas(16) char dynamic[1 << 18];

#define KERNEL __attribute__((visibility("default"))) void
#define INLINE static inline
#define NOINLINE static
#define UNROLL
#define EACH_THREAD for (int turn = 0, lane = downwards ? THREADS - 1 : 0; turn < THREADS; turn++, lane += downwards ? -1 : 1)
#define SYNC (void)0
#define SHARED(type, name, size) \
	static type name[size]; \
	memset(name, 0xff, sizeof name)
#define DYNAMIC_SHARED(type, name) type *name = (type *)dynamic
#define TABLE static const
static float __fadd_rn(float a, float b) { return a + b; }
static float __fsub_rn(float a, float b) { return a - b; }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fdiv_rn(float a, float b) { return a / b; }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __ddiv_rn(double a, double b) { return a / b; }
static double __dsqrt_rn(double a) { return sqrt(a); }
static float __double2float_rn(double a) { return (float)a; }
static unsigned __float_as_uint(float a) {
	unsigned b;
	memcpy(&b, &a, sizeof b);
	return b;
}
static int __ffs(int a) { return __builtin_ffs(a); }
static int __popc(unsigned a) { return __builtin_popcount(a); }
static unsigned atomicOr(unsigned *at, unsigned v) {
	unsigned old = *at;
	*at |= v;
	return old;
}
static unsigned atomicAdd(unsigned *at, unsigned v) {
	unsigned old = *at;
	*at += v;
	return old;
}
static unsigned atomicMax(unsigned *at, unsigned v) {
	unsigned old = *at;
	if (v > old)
		*at = v;
	return old;
}
static long long atomicMin(long long *at, long long v) {
	long long old = *at;
	if (v < old)
		*at = v;
	return old;
}

#include "kernel.cu"
#include "measure.cu"

// Each kernel and the type of its arguments.
#define KERNELS(F) \
	F(psyche_distro_apply, decoding) \
	F(psyche_distro_add, decoding) \
	F(psyche_distro_encode, encoding) \
	F(psyche_distro_squares, squaring) \
	F(psyche_distro_samples, sampling) \
	F(psyche_distro_floors, flooring) \
	F(psyche_distro_digest, digesting) \
	F(psyche_distro_gather, gathering)

#define START(name, arguments) \
	static void start_##name(const void *a) { name(*(const arguments *)a); }
KERNELS(START)

static const struct function { const char *name; void (*start)(const void *arguments); } functions[] = {
#define FUNCTION(name, arguments) {#name, start_##name},
	KERNELS(FUNCTION)};

enum { SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_FOUND = 500 };

#define PAGE 4096
#define ALLOCATIONS 4096
static struct { char *at, *map; size_t size, mapped; } allocations[ALLOCATIONS];
static __thread int depth; // depth of this thread's stack of contexts
static int context;
static char text[1 << 17];

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
	case 16: *value = 3; break;  // multiprocessors
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
	for (size_t i = 0; module == text && i < sizeof functions / sizeof *functions; i++)
		if (strcmp(name, functions[i].name) == 0) {
			*function = (void *)&functions[i];
			return SUCCESS;
		}
	return NOT_FOUND;
}

static size_t dynamic_allowed = 48 << 10;

int cuFuncSetAttribute(void *function, int attribute, int value) {
	CURRENT("cuFuncSetAttribute");
	if (attribute != 8 || strcmp(((struct function *)function)->name, "psyche_distro_encode") != 0 || (size_t)value > sizeof dynamic)
		return INVALID_VALUE;
	dynamic_allowed = value;
	return SUCCESS;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
	unsigned shared, void *stream, void **parameters, void **extra) {
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	CURRENT("cuLaunchKernel");
	if (x == 0 || x > 0x7fffffff || y != 1 || z != 1 || tx != THREADS || ty != 1 || tz != 1 || stream || extra || shared > dynamic_allowed)
		return INVALID_VALUE;
	pthread_mutex_lock(&one_at_a_time);
	strict("psyche_strict_open");
	downwards = !downwards;
	gridDim.x = x;
	for (unsigned i = 0; i < x; i++) {
		blockIdx.x = downwards ? x - 1 - i : i;
		memset(dynamic, 0xff, shared);
		((const struct function *)function)->start(parameters[0]);
	}
	strict("psyche_strict_close");
	pthread_mutex_unlock(&one_at_a_time);
	return SUCCESS;
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
