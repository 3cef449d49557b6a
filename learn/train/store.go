package train

import (
	"runtime/debug"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/required"
)

// store holds the weights of a model in the memory of the CPU.
type store struct {
	engine     *torch.Engine
	model      model.Model
	parameters []parameter // sorted by name
	changes    uint64      // number of changes of the weights; workers with copies compare it
	fresh      uint64      // number of changes that the weights here include; devices have the newer ones
	kept       [][]float32 // copy of the weights, see keep; nil before the first call
}

// parameter is a tensor of the model on the CPU. weights is its memory, which optimizers change and
// all other code copies.
type parameter struct {
	name    string
	shape   []int64
	tensor  *torch.Tensor
	weights []float32
}

// use makes a model's parameters the weights of the store.
func (s *store) use(m model.Model) {
	s.model = m
	for _, p := range m.Parameters() {
		s.parameters = append(s.parameters, parameter{p.Name, p.Tensor.Shape(), p.Tensor, p.Tensor.Float32s()})
	}
}

// Elements returns the number of the model's parameters.
func (s *store) Elements() int64 {
	total := int64(0)
	for _, p := range s.parameters {
		total += int64(len(p.weights))
	}
	return total
}

// large reports whether a copy of the weights would take too much memory.
func (s *store) large() bool { return 4*s.Elements() > required.MaxCopied }

// changed must be called after the weights were changed here.
func (s *store) changed() {
	s.changes++
	s.fresh = s.changes
}

func (s *store) shapes() [][]int64 {
	shapes := make([][]int64, len(s.parameters))
	for i, p := range s.parameters {
		shapes[i] = p.shape
	}
	return shapes
}

// weights returns the memory of the weights, which must be fresh.
func (s *store) weights() [][]float32 {
	if s.fresh != s.changes {
		panic("the weights in the memory of the CPU are older than a device's")
	}
	weights := make([][]float32, len(s.parameters))
	for i, p := range s.parameters {
		weights[i] = p.weights
	}
	return weights
}

// keep copies the weights' bits and returns a function that restores them.
func (s *store) keep() (back func()) {
	weights := s.weights()
	if s.kept == nil {
		for _, w := range weights {
			s.kept = append(s.kept, make([]float32, len(w)))
		}
	}
	copyAll(s.kept, weights)
	return func() {
		copyAll(weights, s.kept)
		s.changed()
	}
}

// giveBack returns garbage of a large model to the operating system. The next gradient may need the
// memory.
func (s *store) giveBack() {
	if s.large() {
		debug.FreeOSMemory()
	}
}
