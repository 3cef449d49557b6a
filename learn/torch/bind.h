// C wrappers pt_<name> that call through the table, because cgo cannot call a function pointer.
// They are valid only after pt_load succeeded.
#ifndef PSYCHE_TORCH_BIND_H
#define PSYCHE_TORCH_BIND_H

#include <pthread.h>
#include <stdlib.h>

#include "abi.h"

extern const pt_table *pt_functions;

#define PT_WRAPPER(ret, name, params, args) \
  static inline ret pt_##name params { return pt_functions->name args; }
PT_FUNCTIONS(PT_WRAPPER)
#undef PT_WRAPPER

// Returns the calling OS thread.
static inline uintptr_t pt_thread(void) { return (uintptr_t)pthread_self(); }

// Opens a library for all libraries loaded later. Returns NULL, or the loader's message, which the
// caller frees.
char *pt_preload(const char *path, void **library);

// Closes a library that pt_preload opened.
void pt_unload(void *library);

// Opens the shim and checks its table. Returns NULL, or a message that the caller frees. Sets
// *stale if the shim was built from other sources than this program.
char *pt_load(const char *path, int *stale);

// Returns the processor name of an OpenBLAS's kernels, such as "Haswell", or "" for another
// library. A NULL library is the OpenBLAS that libtorch uses. The caller must not free the result.
const char *pt_openblas_kernels(void *library);

// Writes the name and the memory in bytes of a CUDA device, as reported by the driver's own
// library. Returns 0 if the library is missing or does not know the device.
int pt_cuda_describe(int device, char *name, int size, size_t *memory);

#endif
