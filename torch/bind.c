#define _GNU_SOURCE
#include "bind.h"

#include <dlfcn.h>
#include <string.h>

const pt_table *pt_functions;

static void *shim;

char *pt_preload(const char *path) {
  if (dlopen(path, RTLD_NOW | RTLD_GLOBAL)) return NULL;
  return strdup(dlerror());
}

char *pt_load(const char *path, int *stale) {
  *stale = 0;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return strdup(dlerror());
  const pt_table *(*table)(void) = (const pt_table *(*)(void))dlsym(library, PT_TABLE_SYMBOL);
  if (!table) {
    *stale = 1;
    return strdup("it has no symbol " PT_TABLE_SYMBOL);
  }
  const pt_table *functions = table();
  if (functions->version != PT_API_VERSION || strcmp(functions->signature, PT_SIGNATURE) != 0) {
    *stale = 1;
    return strdup("its functions are not those this program expects");
  }
  pt_functions = functions;
  shim = library;
  return NULL;
}

const char *pt_openblas_kernels(void) {
  // As the loader looks for what libtorch calls: what was opened for everything comes first.
  const char *(*name)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "openblas_get_corename");
  if (!name && shim) name = (const char *(*)(void))dlsym(shim, "openblas_get_corename");
  return name ? name() : "";
}
