#define _GNU_SOURCE
#include "bind.h"

#include <dlfcn.h>
#include <string.h>

const pt_table *pt_functions;

static void *shim;

char *pt_preload(const char *path, void **library) {
  *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  return *library ? NULL : strdup(dlerror());
}

void pt_unload(void *library) { dlclose(library); }

char *pt_load(const char *path, int *stale) {
  *stale = 0;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return strdup(dlerror());
  const pt_table *(*table)(void) = (const pt_table *(*)(void))dlsym(library, PT_TABLE_SYMBOL);
  if (!table) {
    *stale = 1;
    return strdup("missing symbol " PT_TABLE_SYMBOL);
  }
  const pt_table *functions = table();
  if (functions->version != PT_API_VERSION || strcmp(functions->signature, PT_SIGNATURE) != 0) {
    *stale = 1;
    return strdup("its function table differs from the one that this program expects");
  }
  pt_functions = functions;
  shim = library;
  return NULL;
}

const char *pt_openblas_kernels(void *library) {
  const char *symbol = "openblas_get_corename";
  const char *(*name)(void);
  if (library) {
    name = (const char *(*)(void))dlsym(library, symbol);
  } else {
    // Search as the loader does for libtorch's calls: libraries opened with RTLD_GLOBAL come first.
    // A library found this way cannot be closed any more.
    name = (const char *(*)(void))dlsym(RTLD_DEFAULT, symbol);
    if (!name && shim) name = (const char *(*)(void))dlsym(shim, symbol);
  }
  return name ? name() : "";
}

// The functions of CUDA's driver API, declared here because its headers may be missing. A CUresult
// is an enum in which 0 is success, and a CUdevice is an int.
int pt_cuda_describe(int device, char *name, int size, size_t *memory) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) return 0;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*get)(int *, int) = (int (*)(int *, int))dlsym(driver, "cuDeviceGet");
  int (*get_name)(char *, int, int) = (int (*)(char *, int, int))dlsym(driver, "cuDeviceGetName");
  int (*get_memory)(size_t *, int) = (int (*)(size_t *, int))dlsym(driver, "cuDeviceTotalMem_v2");
  int handle;
  int found = init && get && get_name && get_memory && init(0) == 0 && get(&handle, device) == 0 &&
              get_name(name, size, handle) == 0 && get_memory(memory, handle) == 0;
  dlclose(driver);
  return found;
}
