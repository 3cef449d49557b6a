// C wrappers pt_<name> that call through the table, for cgo, which cannot call a
// function pointer. Valid only after pt_load succeeded.
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

// The calling OS thread.
static inline uintptr_t pt_thread(void) { return (uintptr_t)pthread_self(); }

// Opens a library for everything loaded later. NULL, or the loader's message (free it).
char *pt_preload(const char *path, void **library);

// Closes a library that pt_preload opened.
void pt_unload(void *library);

// Opens the shim and checks its table. NULL, or a message (free it); *stale is set when
// the shim was built from other sources than this program.
char *pt_load(const char *path, int *stale);

// Name of the processor whose kernels an OpenBLAS uses, such as "Haswell"; "" for another
// library. NULL stands for the OpenBLAS that libtorch uses. Not to be freed.
const char *pt_openblas_kernels(void *library);

// Name and memory in bytes of a CUDA device, as the driver's own library tells them. 0
// when it is not there or does not know the device.
int pt_cuda_describe(int device, char *name, int size, size_t *memory);

#endif
