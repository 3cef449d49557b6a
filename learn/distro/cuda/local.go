package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/psyche-go/psyche/learn/distro"
)

// AdamWParams are the parameters of one step of AdamW (Loshchilov and Hutter, arXiv 1711.05101).
type AdamWParams struct {
	Beta1, Beta2 float64
	Epsilon      float64
	WeightDecay  float64 // decoupled: the weights shrink by Rate·WeightDecay
	Rate         float64
	Clip         float64 // factor of the gradients; 1 for none
	Step         int64   // counted from 1
}

// AdamW makes one step of AdamW on all tensors that have running means of the squares. In the other
// elements of squares, Tensor is zero. It computes as torch.AdamW does on a CPU, but its bits may
// differ.
func (m *Model) AdamW(weights, grad, means, squares []Tensor, p AdamWParams) error {
	if p.Step < 1 {
		return fmt.Errorf("adamw: %w: step %d, want at least 1", distro.ErrInput, p.Step)
	}
	lists := []tensorList{{"weights", weights, false}, {"gradients", grad, false}, {"means", means, false}, {"squares", squares, true}}
	err := m.elementwise(kernelAdamW, lists, func(tensors []DevicePointer) unsafe.Pointer {
		return unsafe.Pointer(&stepArguments{
			model: m.of(m.blocks), weights: tensors[0], grad: tensors[1], means: tensors[2], squares: tensors[3],
			clip:  float32(p.Clip),
			beta1: float32(p.Beta1), rest1: float32(1 - p.Beta1), beta2: float32(p.Beta2), rest2: float32(1 - p.Beta2),
			root:    float32(math.Sqrt(1 - math.Pow(p.Beta2, float64(p.Step)))),
			epsilon: float32(p.Epsilon),
			rate:    float32(p.Rate / (1 - math.Pow(p.Beta1, float64(p.Step)))),
			keep:    float32(1 - p.Rate*p.WeightDecay),
		})
	})
	if err != nil {
		return fmt.Errorf("adamw: %w", err)
	}
	return nil
}

// Far is localsteps.Far for all tensors: it replaces the weights after a member's steps by its
// pseudo-gradient. It rounds each operation, where a CPU may fuse two. momenta is nil if the run has no
// outer momentum.
func (m *Model) Far(before, after, momenta []Tensor, factor float32) error {
	if momenta == nil {
		momenta = make([]Tensor, len(m.layouts))
	}
	lists := []tensorList{{"weights", before, false}, {"weights", after, false}, {"momenta", momenta, true}}
	err := m.elementwise(kernelFar, lists, func(tensors []DevicePointer) unsafe.Pointer {
		return unsafe.Pointer(&farArguments{
			model: m.of(m.blocks), before: tensors[0], after: tensors[1], momenta: tensors[2], factor: factor,
		})
	})
	if err != nil {
		return fmt.Errorf("pseudo-gradient: %w", err)
	}
	return nil
}

// tensorList is an argument of a method.
type tensorList struct {
	subject string
	tensors []Tensor
	sparse  bool // a zero Tensor stands for none
}

// elementwise launches a kernel for blocks of elements. arguments gets the addresses of the lists on
// the device.
func (m *Model) elementwise(kernel string, lists []tensorList, arguments func([]DevicePointer) unsafe.Pointer) error {
	for _, list := range lists {
		if err := m.checkList(list); err != nil {
			return err
		}
	}
	return m.within(func(machine *machine) error {
		t := m.device.newTransfer(machine)
		offsets, at := make([]int, len(lists)), make([]DevicePointer, len(lists))
		for i, list := range lists {
			offsets[i] = t.addresses(list.tensors)
		}
		if err := t.send(); err != nil {
			return err
		}
		for i, offset := range offsets {
			at[i] = t.at(offset)
		}
		if err := machine.launch(kernel, m.blocks.count(), 0, arguments(at)); err != nil {
			return err
		}
		return machine.wait()
	})
}

func (m *Model) checkList(list tensorList) error {
	tensors := list.tensors
	if list.sparse && len(tensors) == len(m.layouts) {
		tensors = make([]Tensor, len(tensors))
		for i, tensor := range list.tensors {
			if tensor == (Tensor{}) {
				tensor = Tensor{Address: alignment, Elements: m.layouts[i].Elements()} // passes the checks
			}
			tensors[i] = tensor
		}
	}
	return m.check(list.subject, tensors)
}
