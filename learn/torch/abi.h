// The boundary between Go and libtorch: plain C types and one table of functions.
//
// The Go package includes this header and calls through the table. The shim (shim/*.cc) includes it
// and fills the table. Both are generated from the list PT_FUNCTIONS, so no function can be
// declared on one side and missing on the other. The text of the list is the signature that detects
// a stale shim.
#ifndef PSYCHE_TORCH_ABI_H
#define PSYCHE_TORCH_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Increment this if the meaning of a function changes but its declaration does not.
#define PT_API_VERSION 1

// A tensor handle. The receiver owns it and releases it with free_tensors.
typedef void *pt_tensor;

// Results by value. error is NULL, or a message that the receiver frees with free().
typedef struct { pt_tensor tensor; char *error; } pt_result;
typedef struct { double value; char *error; } pt_number;

// The weights of the attention sublayer of a transformer layer.
typedef struct { pt_tensor norm, query, key, value, output; } pt_attention_weights;

// Launches a kernel of cuda/pieces.cu by its name on a device, in order with libtorch's work there.
// The argument is a struct of cuda/pieces.h with a size, which the function copies. Returns NULL, or
// a message that the receiver frees with free().
typedef char *(*pt_launch)(void *context, int device, const char *kernel, int64_t blocks, const void *argument, size_t size);

// Element types, with the same numbers as torch.DType in Go.
enum { PT_F32, PT_BF16, PT_F16, PT_F64, PT_I64, PT_I32, PT_U8, PT_BOOL, PT_DTYPES };

// X(return type, name, (parameters), (arguments))
// A device is an int: -1 is the CPU, n is the n-th CUDA device, or the n-th device of a library that
// registered another type of devices.
#define PT_FUNCTIONS(X)                                                                                              \
  /* process */                                                                                                      \
  X(void, tune_allocator, (void), ())                                                                                \
  X(char *, set_threads, (int threads), (threads))                                                                   \
  X(char *, library_version, (void), ())                                                                             \
  X(char *, parallel_info, (void), ())                                                                               \
  X(char *, build_config, (void), ())                                                                                \
  X(int, cuda_devices, (void), ())                                                                                   \
  X(int, loop_threads, (void), ())                                                                                   \
  X(int64_t, live_tensors, (void), ())                                                                               \
  X(int, grad_mode, (int enabled), (enabled))                                                                        \
  X(void, free_tensors, (pt_tensor * tensors, int count), (tensors, count))                                          \
  /* creation */                                                                                                     \
  X(pt_result, from_bytes, (const void *data, size_t bytes, const int64_t *shape, int dims, int dtype, int device),  \
    (data, bytes, shape, dims, dtype, device))                                                                       \
  X(pt_result, full, (const int64_t *shape, int dims, double value, int dtype, int device),                          \
    (shape, dims, value, dtype, device))                                                                             \
  X(pt_result, cat, (pt_tensor * tensors, int count, int64_t dim), (tensors, count, dim))                            \
  /* inspection */                                                                                                   \
  X(int, dims, (pt_tensor t), (t))                                                                                   \
  X(void, shape, (pt_tensor t, int64_t *out), (t, out))                                                              \
  X(int, dtype, (pt_tensor t), (t))                                                                                  \
  X(int, device, (pt_tensor t), (t))                                                                                 \
  X(int64_t, numel, (pt_tensor t), (t))                                                                              \
  X(pt_number, item, (pt_tensor t), (t))                                                                             \
  X(char *, to_bytes, (pt_tensor t, void *data, size_t bytes), (t, data, bytes))                                     \
  X(void *, cpu_data, (pt_tensor t), (t))                                                                            \
  /* shape */                                                                                                        \
  X(pt_result, to, (pt_tensor t, int dtype, int device), (t, dtype, device))                                         \
  X(pt_result, reshape, (pt_tensor t, const int64_t *shape, int dims), (t, shape, dims))                             \
  X(pt_result, expand, (pt_tensor t, const int64_t *shape, int dims), (t, shape, dims))                              \
  X(pt_result, permute, (pt_tensor t, const int64_t *order, int dims), (t, order, dims))                             \
  X(pt_result, transpose, (pt_tensor t, int64_t a, int64_t b), (t, a, b))                                            \
  X(pt_result, unsqueeze, (pt_tensor t, int64_t dim), (t, dim))                                                      \
  X(pt_result, squeeze, (pt_tensor t, int64_t dim), (t, dim))                                                        \
  X(pt_result, narrow, (pt_tensor t, int64_t dim, int64_t start, int64_t length), (t, dim, start, length))           \
  X(pt_result, contiguous, (pt_tensor t), (t))                                                                       \
  X(pt_result, clone, (pt_tensor t), (t))                                                                            \
  X(pt_result, gather, (pt_tensor t, int64_t dim, pt_tensor index), (t, dim, index))                                 \
  X(pt_result, index_select, (pt_tensor t, int64_t dim, pt_tensor index), (t, dim, index))                           \
  X(pt_result, masked_fill, (pt_tensor t, pt_tensor mask, double value), (t, mask, value))                           \
  X(pt_result, triu, (pt_tensor t, int64_t diagonal), (t, diagonal))                                                 \
  /* arithmetic */                                                                                                   \
  X(pt_result, add, (pt_tensor a, pt_tensor b, double alpha), (a, b, alpha))                                         \
  X(pt_result, mul, (pt_tensor a, pt_tensor b), (a, b))                                                              \
  X(pt_result, div, (pt_tensor a, pt_tensor b), (a, b))                                                              \
  X(pt_result, add_scalar, (pt_tensor t, double value), (t, value))                                                  \
  X(pt_result, mul_scalar, (pt_tensor t, double value), (t, value))                                                  \
  X(pt_result, eq_scalar, (pt_tensor t, double value), (t, value))                                                   \
  X(pt_result, neg, (pt_tensor t), (t))                                                                              \
  X(pt_result, sign, (pt_tensor t), (t))                                                                             \
  X(pt_result, log, (pt_tensor t), (t))                                                                              \
  X(pt_result, sqrt, (pt_tensor t), (t))                                                                             \
  X(pt_result, sin, (pt_tensor t), (t))                                                                              \
  X(pt_result, cos, (pt_tensor t), (t))                                                                              \
  X(pt_result, sigmoid, (pt_tensor t), (t))                                                                          \
  X(pt_result, matmul, (pt_tensor a, pt_tensor b), (a, b))                                                           \
  X(pt_result, linear, (pt_tensor x, pt_tensor weight), (x, weight))                                                 \
  X(pt_result, embedding, (pt_tensor weight, pt_tensor ids), (weight, ids))                                          \
  /* reductions */                                                                                                   \
  X(pt_result, sum, (pt_tensor t), (t))                                                                              \
  X(pt_result, mean, (pt_tensor t), (t))                                                                             \
  X(pt_result, sum_dim, (pt_tensor t, int64_t dim, int keep), (t, dim, keep))                                        \
  X(pt_result, mean_dim, (pt_tensor t, int64_t dim, int keep), (t, dim, keep))                                       \
  X(pt_result, softmax, (pt_tensor t, int64_t dim), (t, dim))                                                        \
  X(pt_result, cross_entropy, (pt_tensor logits, pt_tensor targets), (logits, targets))                              \
  X(pt_number, norm, (pt_tensor * tensors, int count), (tensors, count))                                             \
  X(pt_number, all_finite, (pt_tensor * tensors, int count), (tensors, count))                                       \
  /* in place */                                                                                                     \
  X(char *, add_in_place, (pt_tensor t, pt_tensor other, double alpha), (t, other, alpha))                           \
  X(char *, mul_scalar_in_place, (pt_tensor t, double value), (t, value))                                            \
  X(char *, lerp_in_place, (pt_tensor t, pt_tensor end, double weight), (t, end, weight))                            \
  X(char *, copy, (pt_tensor t, pt_tensor source), (t, source))                                                      \
  /* autograd */                                                                                                     \
  X(char *, backward, (pt_tensor t), (t))                                                                            \
  X(pt_result, grad, (pt_tensor t), (t))                                                                             \
  X(char *, clear_grad, (pt_tensor t), (t))                                                                          \
  X(char *, set_requires_grad, (pt_tensor t, int on), (t, on))                                                       \
  X(int, requires_grad, (pt_tensor t), (t))                                                                          \
  X(pt_result, detach, (pt_tensor t), (t))                                                                           \
  /* fused */                                                                                                        \
  X(pt_result, rms_norm, (pt_tensor x, pt_tensor weight, double epsilon), (x, weight, epsilon))                      \
  X(pt_result, rope, (pt_tensor x, pt_tensor cos, pt_tensor sin), (x, cos, sin))                                     \
  X(pt_result, causal_attention, (pt_tensor q, pt_tensor k, pt_tensor v, double scale), (q, k, v, scale))            \
  X(pt_result, embed, (pt_tensor weight, pt_tensor ids, int dtype), (weight, ids, dtype))                            \
  X(pt_result, attention_block, (pt_tensor x, pt_attention_weights w, pt_tensor cos, pt_tensor sin, int64_t width,   \
    double scale, double epsilon, int recompute), (x, w, cos, sin, width, scale, epsilon, recompute))                \
  X(pt_result, feed_forward_block, (pt_tensor x, pt_tensor norm, pt_tensor gate, pt_tensor up, pt_tensor down,       \
    double epsilon, int recompute), (x, norm, gate, up, down, epsilon, recompute))                                   \
  X(pt_result, swiglu, (pt_tensor gate, pt_tensor up), (gate, up))                                                   \
  X(pt_result, linear_cross_entropy,                                                                                 \
    (pt_tensor x, pt_tensor weight, pt_tensor targets, int64_t ignore, int64_t rows, double share),                  \
    (x, weight, targets, ignore, rows, share))                                                                          \
  X(char *, adamw_step,                                                                                              \
    (pt_tensor parameter, pt_tensor grad, pt_tensor m, pt_tensor v, double rate, double beta1, double beta2,         \
     double epsilon, double decay, int64_t step),                                                                    \
    (parameter, grad, m, v, rate, beta1, beta2, epsilon, decay, step))                                               \
  /* for other code that works on a device's memory */                                                               \
  X(void, keep_conversions, (pt_tensor * weights, int count), (weights, count))                                      \
  X(void, conversions_changed, (pt_tensor * weights, int count), (weights, count))                                   \
  X(void, drop_conversions, (pt_tensor * weights, int count), (weights, count))                                      \
  X(void, set_device_kernels, (int device, pt_launch launch, void *context), (device, launch, context))              \
  X(void *, address, (pt_tensor t), (t))

typedef struct {
  uint32_t version;
  const char *signature;
#define PT_FIELD(ret, name, params, args) ret(*name) params;
  PT_FUNCTIONS(PT_FIELD)
#undef PT_FIELD
} pt_table;

#define PT_TEXT(ret, name, params, args) #ret " " #name #params ";"
#define PT_SIGNATURE PT_FUNCTIONS(PT_TEXT)

// The only exported symbol of the shim. Its type never changes.
#define PT_TABLE_SYMBOL "psyche_torch_table"
const pt_table *psyche_torch_table(void);

#ifdef __cplusplus
}
#endif
#endif
