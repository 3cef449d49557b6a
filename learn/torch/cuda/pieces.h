// The arguments of the kernels in pieces.cu. The shim fills them in and names the kernel. Matrices
// are contiguous, row-major, at addresses that are a multiple of 16, with a multiple of 4 columns.
// The element type of a void pointer is the type in the kernel's name: f32 or bf16.
#ifndef PSYCHE_PIECES_H
#define PSYCHE_PIECES_H

// The number of threads of each block.
#define PIECES_THREADS 256

// One block for each row of x [rows,n].
struct pieces_norm {
  const void *x;
  const float *weight; // [n]
  void *y;
  float *inverse; // [rows]
  long long n;
  float epsilon;
};

// As many blocks as parts. Each block processes a range of the rows.
struct pieces_norm_backward {
  const void *g, *x;
  const float *weight, *inverse;
  const void *extra; // added to dx, or null
  void *dx;
  float *partial; // [parts,n]: sums of the gradients of the weight
  long long rows, n;
};

// One block for each PIECES_COLUMNS columns of partial [parts,n].
#define PIECES_COLUMNS 32
struct pieces_sum_parts {
  const float *partial;
  float *sum; // [n]
  long long parts, n;
  int add; // add to sum instead of replacing it
};

// Heads that are rotated, or only copied if turns is 0: [B,T,heads,2*half] with any strides but the
// last, which is 1. All strides are multiples of 4 elements.
struct pieces_heads {
  const void *x;
  void *y;
  long long xb, xt, xh, yb, yt, yh; // strides of sequences, tokens and heads
  int heads, turns;
};

// One block for each of B*T tokens.
struct pieces_rotate {
  struct pieces_heads list[3];
  const float *cos, *sin; // [T,half]
  long long T;
  int count, half;
  float direction;
};

// One thread for each 4 columns of y [rows,n]; pairs is [rows,2n].
struct pieces_swiglu {
  void *pairs;
  void *y; // of the backward pass: the gradient, replaced by the forward result
  long long rows, n;
};

// One block for all targets. count becomes the number of targets other than ignore, at least 1.
struct pieces_count {
  const long long *targets;
  float *count;
  long long n, ignore;
};

// One block for each row of logits [rows,n]. n may be any number.
struct pieces_cross_entropy {
  void *logits; // replaced by slope times the gradient, unless slope is 0
  const long long *targets;
  const float *count;
  float *losses;
  long long n, ignore;
  float slope;
};

// One block for each token.
struct pieces_embed {
  const float *weight; // [rows,n]
  const long long *ids;
  void *y; // [tokens,n]
  long long rows, n;
};

// One block for each token. Adds the rows of g with equal ids in their order, so the bits do not
// depend on the device.
struct pieces_embed_gradient {
  const void *g; // [tokens,n]
  const long long *ids;
  float *sum; // [rows,n]
  long long tokens, rows, n;
};

#endif
