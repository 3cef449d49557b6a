package torch

/*
#include "bind.h"
*/
import "C"

// To converts to another element type.
func (t *Tensor) To(dtype DType) *Tensor {
	return t.result("To", C.pt_to(t.raw(), C.int(dtype), C.pt_device(t.raw())))
}

// ToDevice moves to another device.
func (t *Tensor) ToDevice(device Device) *Tensor {
	return t.result("ToDevice", C.pt_to(t.raw(), C.pt_dtype(t.raw()), C.int(device)))
}

// Reshape gives the same elements another shape; one size may be -1.
func (t *Tensor) Reshape(shape ...int64) *Tensor {
	sizes, dims := ints(shape)
	return t.result("Reshape", C.pt_reshape(t.raw(), sizes, dims))
}

// Expand repeats dimensions of size 1 without copying; -1 leaves a dimension as it is.
func (t *Tensor) Expand(shape ...int64) *Tensor {
	sizes, dims := ints(shape)
	return t.result("Expand", C.pt_expand(t.raw(), sizes, dims))
}

// Permute reorders the dimensions.
func (t *Tensor) Permute(order ...int64) *Tensor {
	list, dims := ints(order)
	return t.result("Permute", C.pt_permute(t.raw(), list, dims))
}

// Transpose swaps two dimensions.
func (t *Tensor) Transpose(a, b int) *Tensor {
	return t.result("Transpose", C.pt_transpose(t.raw(), C.int64_t(a), C.int64_t(b)))
}

// Unsqueeze inserts a dimension of size 1.
func (t *Tensor) Unsqueeze(dim int) *Tensor {
	return t.result("Unsqueeze", C.pt_unsqueeze(t.raw(), C.int64_t(dim)))
}

// Squeeze removes a dimension of size 1.
func (t *Tensor) Squeeze(dim int) *Tensor {
	return t.result("Squeeze", C.pt_squeeze(t.raw(), C.int64_t(dim)))
}

// Narrow is the slice [start, start+length) of a dimension, sharing memory.
func (t *Tensor) Narrow(dim int, start, length int64) *Tensor {
	return t.result("Narrow", C.pt_narrow(t.raw(), C.int64_t(dim), C.int64_t(start), C.int64_t(length)))
}

// Contiguous returns t in row-major memory; it is t itself if t is contiguous already.
func (t *Tensor) Contiguous() *Tensor { return t.result("Contiguous", C.pt_contiguous(t.raw())) }

// Clone copies the elements.
func (t *Tensor) Clone() *Tensor { return t.result("Clone", C.pt_clone(t.raw())) }

// Gather picks elements along dim by an i64 index of t's rank.
func (t *Tensor) Gather(dim int, index *Tensor) *Tensor {
	return t.result("Gather", C.pt_gather(t.raw(), C.int64_t(dim), index.raw()))
}

// IndexSelect picks whole slices along dim by a vector of i64 indices.
func (t *Tensor) IndexSelect(dim int, index *Tensor) *Tensor {
	return t.result("IndexSelect", C.pt_index_select(t.raw(), C.int64_t(dim), index.raw()))
}

// MaskedFill is t with value where the Bool mask is true.
func (t *Tensor) MaskedFill(mask *Tensor, value float64) *Tensor {
	return t.result("MaskedFill", C.pt_masked_fill(t.raw(), mask.raw(), C.double(value)))
}

// Triu keeps the elements on and above a diagonal of the last two dimensions, and zeroes the
// others.
func (t *Tensor) Triu(diagonal int) *Tensor {
	return t.result("Triu", C.pt_triu(t.raw(), C.int64_t(diagonal)))
}

// Add is t + u, with broadcasting like all binary operations.
func (t *Tensor) Add(u *Tensor) *Tensor { return t.AddScaled(u, 1) }

// Sub is t − u.
func (t *Tensor) Sub(u *Tensor) *Tensor { return t.AddScaled(u, -1) }

// AddScaled is t + alpha·u.
func (t *Tensor) AddScaled(u *Tensor, alpha float64) *Tensor {
	return t.result("Add", C.pt_add(t.raw(), u.raw(), C.double(alpha)))
}

// Mul is t · u, element by element.
func (t *Tensor) Mul(u *Tensor) *Tensor { return t.result("Mul", C.pt_mul(t.raw(), u.raw())) }

// Div is t / u, element by element.
func (t *Tensor) Div(u *Tensor) *Tensor { return t.result("Div", C.pt_div(t.raw(), u.raw())) }

// AddScalar is t + v.
func (t *Tensor) AddScalar(v float64) *Tensor {
	return t.result("AddScalar", C.pt_add_scalar(t.raw(), C.double(v)))
}

// MulScalar is t · v.
func (t *Tensor) MulScalar(v float64) *Tensor {
	return t.result("MulScalar", C.pt_mul_scalar(t.raw(), C.double(v)))
}

// EqScalar is the Bool tensor t == v.
func (t *Tensor) EqScalar(v float64) *Tensor {
	return t.result("EqScalar", C.pt_eq_scalar(t.raw(), C.double(v)))
}

// Neg is −t.
func (t *Tensor) Neg() *Tensor { return t.result("Neg", C.pt_neg(t.raw())) }

// Sign is −1, 0 or 1.
func (t *Tensor) Sign() *Tensor { return t.result("Sign", C.pt_sign(t.raw())) }

// Log is the natural logarithm.
func (t *Tensor) Log() *Tensor { return t.result("Log", C.pt_log(t.raw())) }

// Sqrt is the square root.
func (t *Tensor) Sqrt() *Tensor { return t.result("Sqrt", C.pt_sqrt(t.raw())) }

// Sin is the sine of radians.
func (t *Tensor) Sin() *Tensor { return t.result("Sin", C.pt_sin(t.raw())) }

// Cos is the cosine of radians.
func (t *Tensor) Cos() *Tensor { return t.result("Cos", C.pt_cos(t.raw())) }

// Sigmoid is 1/(1+e^−t).
func (t *Tensor) Sigmoid() *Tensor { return t.result("Sigmoid", C.pt_sigmoid(t.raw())) }

// Matmul multiplies matrices, batched over leading dimensions.
func (t *Tensor) Matmul(u *Tensor) *Tensor {
	return t.result("Matmul", C.pt_matmul(t.raw(), u.raw()))
}

// Linear is t·weightᵀ: t [...,in], weight [out,in] to [...,out].
func (t *Tensor) Linear(weight *Tensor) *Tensor {
	return t.result("Linear", C.pt_linear(t.raw(), weight.raw()))
}

// Embedding looks up rows: t [vocabulary,width], ids i64 [...] to [...,width].
func (t *Tensor) Embedding(ids *Tensor) *Tensor {
	return t.result("Embedding", C.pt_embedding(t.raw(), ids.raw()))
}

// Sum adds all elements up.
func (t *Tensor) Sum() *Tensor { return t.result("Sum", C.pt_sum(t.raw())) }

// Mean averages all elements.
func (t *Tensor) Mean() *Tensor { return t.result("Mean", C.pt_mean(t.raw())) }

// SumDim sums along dim; keep leaves it with size 1.
func (t *Tensor) SumDim(dim int, keep bool) *Tensor {
	return t.result("SumDim", C.pt_sum_dim(t.raw(), C.int64_t(dim), flag(keep)))
}

// MeanDim averages along dim; keep leaves it with size 1.
func (t *Tensor) MeanDim(dim int, keep bool) *Tensor {
	return t.result("MeanDim", C.pt_mean_dim(t.raw(), C.int64_t(dim), flag(keep)))
}

// Softmax is exp(t) normalised to sum 1 along dim.
func (t *Tensor) Softmax(dim int) *Tensor {
	return t.result("Softmax", C.pt_softmax(t.raw(), C.int64_t(dim)))
}

// CrossEntropy is the mean over rows with a target other than [IgnoreTarget]:
// logits t [N,vocabulary], targets i64 [N].
func (t *Tensor) CrossEntropy(targets *Tensor) *Tensor {
	return t.result("CrossEntropy", C.pt_cross_entropy(t.raw(), targets.raw()))
}
