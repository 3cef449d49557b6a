// Package memory predicts the memory, disk space and traffic that a training needs, from its definition and the size
// of its model. It needs no libtorch. Clients show the prediction before they train, and so does the web page of a run.
//
//	n := memory.Training{Model: of.Memory(), Optimizer: run.Optimizer, Batch: batch}.Needs()
//	err := n.Refusal(machine, dir) // if the training certainly does not fit
//
// All predictions are lower bounds. They contain arrays with an element for each parameter, the activations of a micro
// batch and its logits. They contain no libraries, no CUDA context, no results of other members and no garbage.
package memory

import (
	"math"
	"math/bits"

	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/required"
)

const (
	// Value is the size of a parameter, a gradient and a momentum in bytes.
	Value = 4

	// Kept is the default number of checkpoints that a member keeps.
	Kept = 3
)

// Model contains the sizes of a model that determine its memory.
type Model struct {
	Parameters uint64
	Matrices   uint64 // parameters in matrices between hidden layers, which Muon trains
	Largest    uint64 // parameters in the largest tensor, which one device owns
	Vocabulary uint64

	// Activations is the minimum number of values that training keeps for each token for the backward pass, and
	// Recomputed the same with Batch.Recompute.
	Activations, Recomputed uint64
	// Layer is the number of values of the largest layer for each token. The backward pass needs as many for the
	// gradients in a layer, and again as many with Batch.Recompute. Activations and Recomputed include both.
	Layer uint64
}

// Batch describes how gradients are computed. With zero Sequences a prediction contains no activations.
type Batch struct {
	Sequences int    // of a micro batch
	Tokens    uint64 // of a sequence
	TwoBytes  bool   // activations are bf16, otherwise f32
	Recompute bool
	Devices   int // devices that share the micro batches; 0: the CPU computes
	Data      int // groups of CPU threads that share the micro batches; 0 means 1
	Tensor    int // groups of CPU threads that compute each layer together; 0 means 1
}

// Training is everything that determines the memory of a training.
type Training struct {
	Model     Model
	Optimizer config.Optimizer
	Audited   bool // other members check the results
	// Alone means that there are no other members: no speculation, and no copy of the model for them.
	Alone bool
	// Keep is the number of checkpoints that a member keeps on its disk. 0 means that all are kept, and the prediction
	// counts one; -1 means that none is saved.
	Keep  int
	Batch Batch
}

// Bytes is the part of a prediction that the page of a run shows, for members whose CPU computes. In Needs, Memory is the
// main memory of any member, and includes a micro batch that the CPU computes.
type Bytes struct {
	Model  uint64 `json:"model"`  // weights, as sent and stored
	Memory uint64 `json:"memory"` // weights, gradient, optimizer state, and a copy of the model for other members unless that copy is on disk; excludes the memory of a micro batch
	Disk   uint64 `json:"disk"`   // kept checkpoints, one checkpoint being written, and the optimizer state
	Result uint64 `json:"result"` // approximate size of a member's result; 0: not known
}

// Needs is a prediction in bytes.
type Needs struct {
	Bytes
	Device  uint64 // memory of the first device
	Further uint64 // memory of each further device
	// LeastMemory and LeastDevice are the parts of Memory and Device that exist from the first step on: weights,
	// gradient, and the state of the optimizer.
	LeastMemory, LeastDevice uint64
}

// Part is an array with an element for each parameter, or the working memory of a micro batch. Its sizes are bytes.
type Part struct {
	Name    string
	Host    uint64
	Device  uint64 // of the first device
	Further uint64 // of each further device
	Later   bool   // only after the first step, or for a micro batch
}

// Needs predicts the needs of a training.
func (t Training) Needs() Needs {
	n := Needs{Bytes: Bytes{Model: t.Model.Weights(), Disk: t.disk(), Result: t.result()}}
	for _, p := range t.Parts() {
		n.Memory, n.Device, n.Further = plus(n.Memory, p.Host), plus(n.Device, p.Device), plus(n.Further, p.Further)
		if !p.Later {
			n.LeastMemory, n.LeastDevice = plus(n.LeastMemory, p.Host), plus(n.LeastDevice, p.Device)
		}
	}
	return n
}

// Parts lists the parts of the memory.
//
// Each device has weights and a gradient, and a share of the optimizer's state and of the copy of the weights. With AdamW
// alone, the first device has all state. With devices, the main memory has a copy of the weights for checkpoints and for
// other members.
func (t Training) Parts() []Part {
	all := t.computing()
	for _, array := range t.arrays() {
		if array.bytes == 0 {
			continue
		}
		p := Part{Name: array.name, Later: array.when == later}
		switch {
		case t.Batch.Devices == 0:
			p.Host = array.bytes
		case t.sharded():
			p.Device, p.Further = t.shares(array.bytes)
		default:
			p.Device = array.bytes
		}
		all = append(all, p)
	}
	if !t.Alone && (t.Model.Weights() <= required.MaxCopied || t.Keep < 0) { // the disk has larger models
		all = append(all, Part{Name: "model for other members", Host: t.Model.Weights(), Later: true})
	}
	return all
}

// computing lists the parts that computing a gradient needs.
func (t Training) computing() []Part {
	b, weights, working := t.Batch, t.Model.Weights(), t.Working()
	if b.Devices == 0 {
		all := []Part{{Name: "weights", Host: weights}, {Name: "gradient", Host: weights}}
		if groups := uint64(max(b.Data, 1)); groups > 1 || b.Tensor > 1 {
			all = append(all, Part{Name: "gradients of further groups, and their sum", Host: times(groups, weights), Later: true})
			working = times(groups, working)
		}
		return append(all, Part{Name: "micro-batch", Host: working, Later: true})
	}
	all := []Part{{Name: "weights", Host: weights, Device: weights}}
	if b.TwoBytes {
		all = append(all, Part{Name: "weights in bf16", Device: weights / 2})
	}
	all = append(all, Part{Name: "gradient", Device: weights}, Part{Name: "micro-batch", Device: working, Later: true})
	if b.Devices > 1 {
		for i := range all {
			all[i].Further = all[i].Device
		}
	}
	return all
}

// sharded reports whether the optimizer's state is divided among devices. Each tensor is on one device, its owner.
func (t Training) sharded() bool {
	return t.Batch.Devices > 1 && (t.Optimizer.Distro != nil || t.Optimizer.LocalSteps != nil)
}

// shares divides an array of the optimizer among the devices. The owner of the model's largest tensor is the first device.
func (t Training) shares(bytes uint64) (first, further uint64) {
	n := uint64(t.Batch.Devices)
	first = bytes/n + min(bytes%n, 1)
	if p := t.Model.Parameters; p > 0 && t.Model.Largest <= p {
		high, low := bits.Mul64(bytes, t.Model.Largest)
		largest, _ := bits.Div64(high, low, p)
		first = max(first, largest)
	}
	return first, (bytes - first) / (n - 1)
}

// array is a part of the optimizer's memory. It is in the memory of the CPU, or on devices.
type array struct {
	name  string
	bytes uint64
	when  when
}

// when is the lifetime of an array.
type when int

const (
	always when = iota
	saved       // always, and in checkpoints
	later       // only after the first step
)

// arrays lists the optimizer's arrays. An optimizer that the package does not know has a momentum.
func (t Training) arrays() []array {
	weights, audited := t.Model.Weights(), uint64(0)
	if t.Audited {
		audited = weights
	}
	switch o := t.Optimizer; {
	case o.LocalSteps != nil:
		second, outer := weights, uint64(0)
		if o.LocalSteps.InnerOptimizer == config.Muon {
			second -= times(Value, min(t.Model.Matrices, t.Model.Parameters))
		}
		if o.LocalSteps.OuterMomentum > 0 {
			outer = weights
		}
		return []array{
			{"residual", weights, saved},
			{"residual before the newest result", audited, always},
			{"running means", plus(weights, second), saved},
			{"momentum of the rounds", outer, saved},
			{"copy of the weights", weights, always},
		}
	case o.AdamW != nil && o.Distro == nil:
		return []array{{"running means", times(2, weights), saved}}
	default:
		return []array{
			{"momentum", weights, saved},
			{"momentum before the newest result", audited, always},
			{"copy of the weights", t.copied(), later},
		}
	}
}

// copied returns the bytes of the copy of the weights that DisTrO keeps, to restore them. Lookahead always needs the copy.
// Speculation needs it, and on devices audits too, but members do not copy large models.
func (t Training) copied() uint64 {
	d := t.Optimizer.Distro
	if d == nil {
		return 0
	}
	others := t.Audited && t.Batch.Devices > 0 || !t.Alone && d.Lag() == 1
	if d.Lookahead || others && t.Model.Weights() <= required.MaxCopied {
		return t.Model.Weights()
	}
	return 0
}

// Weights returns the bytes of all weights in f32, at most math.MaxUint64.
func (m Model) Weights() uint64 { return times(Value, m.Parameters) }

// Checkpoint returns the size of a checkpoint with the optimizer's state.
func (t Training) Checkpoint() uint64 {
	bytes := t.Model.Weights()
	for _, array := range t.arrays() {
		if array.when == saved {
			bytes = plus(bytes, array.bytes)
		}
	}
	return bytes
}

// disk returns the disk space of the kept checkpoints, and of one checkpoint being written with the optimizer's state.
// Members do not save the state in runs with audits.
func (t Training) disk() uint64 {
	if t.Keep < 0 {
		return 0
	}
	newest := t.Checkpoint()
	if t.Audited {
		newest = t.Model.Weights()
	}
	return plus(times(uint64(max(t.Keep, 1)), t.Model.Weights()), newest)
}

// logitsOnCPU and logitsOnDevice limit the logits that are computed at a time, in bytes. See logits_at_once in
// learn/torch/shim/ends.cc.
const logitsOnCPU, logitsOnDevice = 32 << 20, 256 << 20

// Working returns the minimum memory of a micro batch: saved activations, and then the logits or the gradients in a
// layer, whichever is larger.
func (t Training) Working() uint64 {
	b, size, limit := t.Batch, uint64(Value), uint64(logitsOnCPU)
	if b.TwoBytes {
		size = 2
	}
	if b.Devices > 0 {
		limit = logitsOnDevice
	}
	all, layer := t.Model.Activations, t.Model.Layer
	if b.Recompute {
		all, layer = t.Model.Recomputed, times(2, layer)
	}
	layer = min(layer, all)
	tokens, row := times(uint64(max(b.Sequences, 0)), b.Tokens), times(size, t.Model.Vocabulary)
	bytes, logits := times(tokens, size), min(times(tokens, row), max(limit, times(64, row)))
	return plus(times(bytes, all-layer), max(logits, times(bytes, layer)))
}

// plus adds sizes. A sum that is too large becomes the largest number.
func plus(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// times multiplies a size by a factor. A product that is too large becomes the largest number.
func times(a, b uint64) uint64 {
	if a != 0 && b > math.MaxUint64/a {
		return math.MaxUint64
	}
	return a * b
}
