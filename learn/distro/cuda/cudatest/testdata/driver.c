// A CUDA driver and NVRTC that run the kernels on this CPU: see fibers.c. Without a GPU, tests can check
// the bits and the races of the kernels' source, and the calls of the launcher. Shared memory begins
// as NaNs, and a guard page that may not be accessed follows every allocation. Only kernels and copies
// of an ordinal can access its memory.
//
// Kernels run late: a launch puts a kernel into the queue of its ordinal, as on the default stream of
// a GPU. The queue runs when the program waits for the ordinal, copies or frees memory, and before an
// operation of libtorch on the strict device (see psyche_strict_follow). A program that does not wait
// for a kernel finds old values, and does not get the kernel's error.

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
#define DEVICES 2
#define FIRST_DEVICE 7 // the handle of ordinal 0

// A kernel in a queue.
typedef struct launch {
	struct launch *next;
	const fiber_kernel *kernel;
	unsigned blocks, threads;
	size_t dynamic;
	int failure; // the code with which the kernel must fail, or none
	_Alignas(16) char arguments[];
} launch;

// An ordinal. Its address is its primary context.
typedef struct {
	launch *first, **last; // the queue; last is NULL before the first launch
	int failed;            // the code of a kernel that failed, which all later calls return
	int users;             // of the primary context
	size_t dynamic_allowed;
} machine;

static machine machines[DEVICES];
static struct { machine *of; char *at, *map; size_t size, mapped; } allocations[ALLOCATIONS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards all state above
static __thread machine *contexts[16];                   // this thread's stack of contexts
static __thread unsigned depth;
static char text[1 << 17];
static char kernel_failure[600] = "CUDA_ERROR_LAUNCH_FAILED"; // the name of LAUNCH_FAILED, with its reason

#define NO_FAILURE -1

// failing returns the code that a call must return, without doing anything, or NO_FAILURE. The
// environment variable names calls, as in "cuLaunchKernel 700,cuCtxSynchronize 0".
static int failing(const char *call) {
	size_t n = strlen(call);
	for (const char *wish = getenv("PSYCHE_EMULATED_FAILURE"); wish; wish = strchr(wish, ',')) {
		wish += *wish == ',';
		if (strncmp(wish, call, n) == 0 && wish[n] == ' ')
			return atoi(wish + n);
	}
	return NO_FAILURE;
}

#define CALL(name) \
	if (failing(name) != NO_FAILURE) \
	return failing(name)
#define CURRENT(name) \
	CALL(name); \
	if (depth == 0) \
		return INVALID_CONTEXT; \
	machine *m = contexts[depth - 1]

static int ordinal_of(const machine *m) { return m - machines; }

static int within(const machine *m, uint64_t address, size_t size) {
	for (int i = 0; i < ALLOCATIONS; i++)
		if (allocations[i].at && allocations[i].of == m && address >= (uint64_t)allocations[i].at &&
			address + size <= (uint64_t)allocations[i].at + allocations[i].size)
			return 1;
	return 0;
}

// strict returns a function of the strict device's library, or NULL if the process has not loaded it.
static void *strict(const char *name) { return dlsym(RTLD_DEFAULT, name); }

// of_strict calls psyche_strict_open, psyche_strict_close or psyche_strict_waited.
static void of_strict(const char *name, const machine *m) {
	void (*function)(int);
	*(void **)&function = strict(name);
	if (function)
		function(ordinal_of(m));
}

static void count_launch(const char *kernel) {
	void (*launched)(const char *);
	*(void **)&launched = strict("psyche_strict_launched");
	if (launched)
		launched(kernel);
}

static void protect(const machine *m, int protection) {
	for (int i = 0; i < ALLOCATIONS; i++)
		if (allocations[i].at && allocations[i].of == m)
			mprotect(allocations[i].map, allocations[i].mapped - PAGE, protection);
}

// open_memory makes the memory of an ordinal accessible until close_memory. The caller holds the lock.
static void open_memory(const machine *m) {
	protect(m, PROT_READ | PROT_WRITE);
	of_strict("psyche_strict_open", m);
}
static void close_memory(const machine *m) {
	of_strict("psyche_strict_close", m);
	protect(m, PROT_NONE);
}

static int run(const machine *m, const launch *l) {
	if (l->failure != NO_FAILURE)
		return l->failure;
	open_memory(m);
	const char *failure = fiber_launch(l->kernel, l->arguments, l->blocks, l->threads, l->dynamic);
	close_memory(m);
	if (!failure)
		return SUCCESS;
	snprintf(kernel_failure, sizeof kernel_failure, "CUDA_ERROR_LAUNCH_FAILED: %s", failure);
	return LAUNCH_FAILED;
}

// finish runs the queue, unless a kernel fails. It returns the code of the first kernel that failed.
static int finish(machine *m) {
	pthread_mutex_lock(&lock);
	for (launch *l = m->first; l; l = m->first) {
		m->first = l->next;
		if (m->failed == SUCCESS)
			m->failed = run(m, l);
		free(l);
	}
	m->last = &m->first;
	int failed = m->failed;
	pthread_mutex_unlock(&lock);
	return failed;
}

int cuGetErrorName(int code, const char **name);

// finish_first is finish for the strict device.
static const char *finish_first(void *m) {
	const char *name = "unknown error";
	int failed = finish(m);
	if (failed)
		cuGetErrorName(failed, &name);
	return failed ? name : NULL;
}

// follow makes operations of libtorch on the ordinal run after its queue, or ends that.
static void follow(machine *m, const char *(*finish)(void *)) {
	void (*function)(int, const char *(*)(void *), void *);
	*(void **)&function = strict("psyche_strict_follow");
	if (function)
		function(ordinal_of(m), finish, m);
}

// copy copies memory of an ordinal, after the queue.
static int copy(machine *m, uint64_t device, void *to, const void *from, size_t size) {
	int failed = finish(m);
	pthread_mutex_lock(&lock);
	int known = within(m, device, size);
	if (known && !failed) {
		open_memory(m);
		memcpy(to, from, size);
		close_memory(m);
	}
	pthread_mutex_unlock(&lock);
	return failed ? failed : known ? SUCCESS : INVALID_VALUE;
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
	*count = DEVICES;
	return SUCCESS;
}

static machine *machine_of(int device) {
	return device >= FIRST_DEVICE && device < FIRST_DEVICE + DEVICES ? &machines[device - FIRST_DEVICE] : NULL;
}

int cuDeviceGet(int *device, int ordinal) {
	*device = FIRST_DEVICE + ordinal;
	return machine_of(*device) ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceGetName(char *name, int size, int device) {
	snprintf(name, size, "emulated");
	return machine_of(device) ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
	switch (attribute) {
	case 16: *value = 1; break; // multiprocessors
	case 75: *value = 9; break; // compute capability
	case 76: *value = 7; break;
	default: return INVALID_VALUE;
	}
	return machine_of(device) ? SUCCESS : INVALID_DEVICE;
}
int cuDevicePrimaryCtxRetain(void **out, int device) {
	CALL("cuDevicePrimaryCtxRetain");
	machine *m = machine_of(device);
	if (!m)
		return INVALID_DEVICE;
	if (m->users++ == 0) {
		m->failed = SUCCESS, m->dynamic_allowed = 48 << 10;
		if (failing("psyche_strict_follow") == NO_FAILURE)
			follow(m, finish_first);
	}
	*out = m;
	return SUCCESS;
}
// Memory that was not freed is an error, so that tests detect leaks.
int cuDevicePrimaryCtxRelease_v2(int device) {
	machine *m = machine_of(device);
	if (!m || m->users == 0)
		return INVALID_DEVICE;
	if (--m->users > 0)
		return SUCCESS;
	finish(m);
	follow(m, NULL);
	for (int i = 0; i < ALLOCATIONS; i++)
		if (allocations[i].at && allocations[i].of == m)
			return OUT_OF_MEMORY;
	return SUCCESS;
}
int cuCtxPushCurrent_v2(void *c) {
	if (depth == sizeof contexts / sizeof *contexts || (c != &machines[0] && c != &machines[1]))
		return INVALID_CONTEXT;
	contexts[depth++] = c;
	return SUCCESS;
}
int cuCtxPopCurrent_v2(void **c) {
	if (depth == 0)
		return INVALID_CONTEXT;
	*c = contexts[--depth];
	return SUCCESS;
}
int cuCtxSynchronize(void) {
	CURRENT("cuCtxSynchronize");
	int failed = finish(m);
	of_strict("psyche_strict_waited", m);
	return failed;
}

int cuMemAlloc_v2(uint64_t *out, size_t size) {
	CURRENT("cuMemAlloc");
	if (size == 0)
		return INVALID_VALUE;
	const char *largest = getenv("PSYCHE_EMULATED_LARGEST");
	if (largest && size > strtoull(largest, NULL, 10))
		return OUT_OF_MEMORY;
	size_t mapped = (size + PAGE - 1) / PAGE * PAGE + PAGE;
	char *map = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return OUT_OF_MEMORY;
	memset(map, 0xff, mapped - PAGE);
	mprotect(map, mapped, PROT_NONE);
	pthread_mutex_lock(&lock);
	int i = 0;
	while (i < ALLOCATIONS && allocations[i].at)
		i++;
	if (i < ALLOCATIONS) {
		allocations[i].of = m, allocations[i].map = map, allocations[i].mapped = mapped, allocations[i].size = size;
		// The allocation ends at the guard page, as far as an alignment of 8 bytes allows.
		allocations[i].at = map + (mapped - PAGE - size) / 8 * 8;
		*out = (uint64_t)allocations[i].at;
	} else {
		munmap(map, mapped);
	}
	pthread_mutex_unlock(&lock);
	return i < ALLOCATIONS ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemFree_v2(uint64_t address) {
	CURRENT("cuMemFree");
	finish(m);
	int result = INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < ALLOCATIONS; i++)
		if (allocations[i].at && allocations[i].of == m && (uint64_t)allocations[i].at == address) {
			munmap(allocations[i].map, allocations[i].mapped);
			allocations[i].at = NULL;
			result = SUCCESS;
			break;
		}
	pthread_mutex_unlock(&lock);
	return result;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
	CURRENT("cuMemcpyHtoD");
	return copy(m, to, (void *)to, from, size);
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
	CURRENT("cuMemcpyDtoH");
	int failed = copy(m, from, to, (const void *)from, size);
	of_strict("psyche_strict_waited", m);
	return failed;
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned count, const int *keys, void **values) {
	CURRENT("cuModuleLoadDataEx");
	(void)m;
	for (unsigned i = 0; i < count; i++)
		if (keys[i] == 5)
			snprintf(values[i], 16, "a log");
	*module = text;
	return strcmp(image, "emulated") == 0 ? SUCCESS : INVALID_VALUE;
}
int cuModuleUnload(void *module) {
	CURRENT("cuModuleUnload");
	finish(m);
	return module == text ? SUCCESS : INVALID_VALUE;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
	CURRENT("cuModuleGetFunction");
	(void)m;
	const fiber_kernel *lists[] = {kernels, layer_kernels};
	for (int i = 0; i < 2; i++)
		for (const fiber_kernel *k = lists[i]; k && module == text && k->name; k++)
			if (strcmp(name, k->name) == 0) {
				*function = (void *)k;
				return SUCCESS;
			}
	return NOT_FOUND;
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
	CURRENT("cuFuncSetAttribute");
	if (attribute != 8 || strcmp(((fiber_kernel *)function)->name, "psyche_distro_encode") != 0 || value > FIBER_DYNAMIC_LIMIT)
		return INVALID_VALUE;
	m->dynamic_allowed = value;
	return SUCCESS;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
	unsigned shared, void *stream, void **parameters, void **extra) {
	CURRENT("cuLaunchKernel");
	const fiber_kernel *kernel = function;
	if (x == 0 || x > 0x7fffffff || y != 1 || z != 1 || tx != (kernel->threads ? kernel->threads : kernel_threads) || ty != 1 || tz != 1 || stream || extra || shared > m->dynamic_allowed)
		return INVALID_VALUE;
	if (m->failed)
		return m->failed;
	launch *l = malloc(sizeof *l + kernel->size);
	if (!l)
		return OUT_OF_MEMORY;
	l->next = NULL, l->kernel = kernel, l->blocks = x, l->threads = tx, l->dynamic = shared, l->failure = failing("kernel");
	memcpy(l->arguments, parameters[0], kernel->size); // the driver copies them at the launch
	count_launch(kernel->name);
	pthread_mutex_lock(&lock);
	if (!m->last)
		m->last = &m->first;
	*m->last = l, m->last = &l->next;
	pthread_mutex_unlock(&lock);
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
