package train

import (
	"math"

	"github.com/psyche-go/psyche/learn/torch"
)

// muon moves matrices by the orthogonal factor of their gradient's running mean (Jordan et al.,
// "Muon: An optimizer for hidden layers in neural networks", 2024), as torch.optim.Muon does with
// adjust_lr_fn "match_rms_adamw": each step is about as long as one of AdamW with the same learning
// rate (Liu et al., arXiv 2502.16982, section 2.2).
type muon struct {
	computes torch.DType  // type of the factor's computation
	device   torch.Device // device of the computation for matrices in the memory of the CPU
}

const (
	muonMomentum = 0.95
	muonSteps    = 5    // Newton-Schulz iterations
	muonLength   = 0.2  // root mean square of an update of full rank, divided by the learning rate
	muonLargest  = 1.25 // more than any singular value of a factor; see TestOrthogonal
)

// muonAtOnce is the size, in elements, of the largest matrix whose factor is computed without
// interruption. Tests change it.
var muonAtOnce = 1 << 20

// polynomial maps a singular value x in one Newton-Schulz iteration: 3.4445 x − 4.775 x³ + 2.0315
// x⁵. Five iterations map all values from 0.01 to 1 to values between 0.68 and 1.21.
var polynomial = [3]float64{3.4445, -4.7750, 2.0315}

// step moves a parameter of shape [..., rows, columns] by its gradient and the running mean, which
// is initially zero.
func (m muon) step(s *torch.Scope, parameter, gradient, mean *torch.Tensor, rate, decay float64) error {
	return s.Sub(func(*torch.Scope) error {
		mean.LerpInPlace(gradient, 1-muonMomentum)
		nesterov := gradient.MulScalar(1-muonMomentum).AddInPlace(mean, muonMomentum)
		shape := parameter.Shape()
		longest := max(shape[len(shape)-1], shape[len(shape)-2])
		device := m.device
		if own := parameter.Device(); own != torch.CPU {
			device = own
		}
		factor := orthogonal(nesterov.ToDevice(device), m.computes).To(torch.F32).ToDevice(parameter.Device())
		parameter.MulScalarInPlace(1-rate*decay).AddInPlace(factor, -rate*muonLength*math.Sqrt(float64(longest)))
		return nil
	})
}

// orthogonal returns approximately U·Vᵀ of the singular value decomposition U·S·Vᵀ of matrices
// [..., rows, columns], by Newton-Schulz iteration in the given type.
func orthogonal(matrices *torch.Tensor, dtype torch.DType) *torch.Tensor {
	shape := matrices.Shape()
	rows, columns := len(shape)-2, len(shape)-1
	length := matrices.Mul(matrices).SumDim(columns, true).SumDim(rows, true).AddScalar(1e-14).Sqrt()
	x := matrices.Div(length).To(dtype)
	wide := shape[rows] <= shape[columns]
	if !wide {
		x = x.Transpose(rows, columns)
	}
	for range muonSteps {
		gram := x.Matmul(x.Transpose(rows, columns))
		by := gram.Matmul(gram).MulScalarInPlace(polynomial[2]).AddInPlace(gram, polynomial[1])
		x = by.Matmul(x).AddInPlace(x, polynomial[0])
	}
	if !wide {
		x = x.Transpose(rows, columns)
	}
	return x
}
