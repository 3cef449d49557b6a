// The C functions of the strict device. Go and an emulated CUDA driver call them in the process that
// loaded the device.
#ifndef PSYCHE_STRICT_API_H
#define PSYCHE_STRICT_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The number of ordinals.
#define PSYCHE_STRICT_DEVICES 2

// Counts since the last reset. used and peak are bytes of memory by ordinal.
typedef struct {
  int64_t launches;
  int64_t waits; // reads of one number, and synchronizations
  int64_t up_copies, up_bytes;
  int64_t down_copies, down_bytes; // each copy down waits too
  int64_t used[PSYCHE_STRICT_DEVICES], peak[PSYCHE_STRICT_DEVICES];
} psyche_strict_counts;

#define PSYCHE_STRICT_FUNCTIONS(X)                                                                 \
  /* Makes all memory of an ordinal accessible until the matching close. The calls nest. */        \
  X(void, psyche_strict_open, (int device), (device))                                              \
  X(void, psyche_strict_close, (int device), (device))                                             \
  /* Makes operations of libtorch on an ordinal run after the work of a queue, which finish runs. */ \
  /* finish returns NULL, or the error of the work. A finish of NULL forgets the queue. */         \
  X(void, psyche_strict_follow, (int device, const char *(*finish)(void *queue), void *queue),     \
    (device, finish, queue))                                                                       \
  /* The program has waited for an ordinal: asynchronous copies end. */                            \
  X(void, psyche_strict_waited, (int device), (device))                                            \
  /* Starts asynchronous copies from or to the host, as copy_ with non_blocking. */                \
  X(void, psyche_strict_copy_later, (void *to, const void *from, size_t bytes), (to, from, bytes)) \
  /* Adds one launch of a kernel to the counts. */                                                 \
  X(void, psyche_strict_launched, (const char *name), (name))                                      \
  X(void, psyche_strict_read, (psyche_strict_counts * counts), (counts))                           \
  /* Sets the counts to zero, and the peaks to the memory in use. */                               \
  X(void, psyche_strict_reset, (void), ())                                                         \
  /* Returns a line "number name" for each operation that was launched. The caller frees it. */    \
  X(char *, psyche_strict_operations, (void), ())                                                  \
  /* Limits the memory of an ordinal; 0 means unlimited. */                                        \
  X(void, psyche_strict_limit, (int device, int64_t bytes), (device, bytes))                       \
  /* Returns memory of an ordinal, or NULL beyond its limit; release frees it. */                  \
  X(void *, psyche_strict_allocate, (int device, size_t bytes), (device, bytes))                   \
  X(void, psyche_strict_release, (void *memory), (memory))

#define PSYCHE_STRICT_DECLARE(ret, name, params, args) ret name params;
PSYCHE_STRICT_FUNCTIONS(PSYCHE_STRICT_DECLARE)
#undef PSYCHE_STRICT_DECLARE

#ifdef __cplusplus
}
#endif
#endif
