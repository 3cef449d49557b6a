// C wrappers of the functions in device/api.h for cgo, which cannot call a function pointer. They are
// valid once the process has loaded the device.
#ifndef PSYCHE_STRICT_BIND_H
#define PSYCHE_STRICT_BIND_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include "device/api.h"

#define STRICT_WRAPPER(ret, name, params, args)             \
  static inline ret call_##name params {                    \
    ret(*f) params = (ret(*) params)dlsym(RTLD_DEFAULT, #name); \
    return f args;                                          \
  }
PSYCHE_STRICT_FUNCTIONS(STRICT_WRAPPER)
#undef STRICT_WRAPPER

#endif
