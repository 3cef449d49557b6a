package momenta

import (
	"fmt"
	"math"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/merkle"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/localsteps"
)

// Options configure the optimizer of a run.
type Options struct {
	Decay float32 // of the momentum
	TopK  int     // sent coefficients per chunk
	Edge  int     // longest side of a chunk
	Signs bool    // send signs only
	Bits  int     // per value sent by local steps; 0: the optimizer is DisTrO
	Loud  bool    // also send coefficients of chunks below the floor
	Mute  bool    // send nothing
	Run   [32]byte
}

// Cutting is the model's chunks as tensors of consecutive chunks, so that the optimizer can process
// the output of train.Trainer.Recompute for all chunks.
type Cutting struct {
	Options
	Kernel  *distro.Kernel
	Shapes  audit.Shapes
	Layouts []distro.Layout
	Reach   float32 // in the current round of local steps: the maximum change of a weight
}

// New returns the cutting of a model with the given shapes.
func New(shapes audit.Shapes, o Options) (*Cutting, error) {
	kernel, err := distro.NewKernel(distro.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	c := &Cutting{Options: o, Kernel: kernel, Shapes: shapes}
	for _, s := range shapes {
		layout, err := distro.NewLayout([]int64{int64(s.Chunks), int64(s.Rows), int64(s.Cols)}, o.Edge)
		if err != nil {
			return nil, err
		}
		if layout.Shape(o.TopK) != s {
			return nil, fmt.Errorf("the tensor's layout is %[2]v, want %[1]v", s, layout.Shape(o.TopK))
		}
		c.Layouts = append(c.Layouts, layout)
	}
	return c, nil
}

// largest returns the number of elements of the largest chunk.
func (c *Cutting) largest() (maximum int) {
	for _, s := range c.Shapes {
		maximum = max(maximum, s.Rows*s.Cols)
	}
	return maximum
}

// Zeros returns a zero momentum.
func (c *Cutting) Zeros() [][]float32 {
	all := make([][]float32, len(c.Layouts))
	for i, l := range c.Layouts {
		all[i] = make([]float32, l.Elements())
	}
	return all
}

// Tensors joins chunks to tensors, in the memory of into, which may be nil.
func (c *Cutting) Tensors(chunks, into [][]float32) [][]float32 {
	all, at := into, 0
	if all == nil {
		all = c.Zeros()
	}
	for i, s := range c.Shapes {
		all[i] = all[i][:0]
		for range s.Chunks {
			all[i] = append(all[i], chunks[at]...)
			at++
		}
	}
	return all
}

// State is a trainer's state after a step. The zero value, with a zero momentum, is the state
// before the first step.
type State struct {
	Step, Previous uint32 // Previous is the step of the previous state
	Momentum       [][]float32
	Taken          []codec.TensorResult
	levels         []codec.TensorResult // of local steps: the encoded form of Taken
	tree           *merkle.Tree
}

// Begin returns the state before the first step.
func (c *Cutting) Begin() *State { return &State{Momentum: c.Zeros()} }

// Advance returns the next state after an update, which is the gradient times the learning rate. It
// does not modify the update. The new momentum uses the memory of spare, an unused state, or new
// memory if spare is nil.
func (c *Cutting) Advance(from *State, step uint32, update [][]float32, spare *State) (*State, error) {
	m := &State{Step: step, Previous: from.Step}
	if spare != nil {
		m.Momentum = spare.Momentum
	} else {
		m.Momentum = c.Zeros()
	}
	for i := range m.Momentum {
		copy(m.Momentum[i], from.Momentum[i])
	}
	if c.Bits > 0 {
		return m, c.takeLevels(m, c.left(from, step), update)
	}
	for i, l := range c.Layouts {
		params := distro.EncodeParams{Decay: c.left(from, step), LR: 1, TopK: c.TopK}
		switch params.Floor = audit.Least; {
		case c.Mute:
			params.Floor = math.MaxFloat32
		case !c.Loud:
			params.Floor = max(params.Floor, c.Kernel.Floor(m.Momentum[i], update[i], params))
		}
		taken, err := c.Kernel.Encode(l, m.Momentum[i], update[i], params)
		if err != nil {
			return nil, err
		}
		m.Taken = append(m.Taken, taken)
	}
	return m, nil
}

// takeLevels performs the step of a round of local steps.
func (c *Cutting) takeLevels(m *State, left float32, update [][]float32) error {
	p := localsteps.EncodeParams{Reach: c.Reach, TopK: c.TopK, LevelBits: c.Bits, Decay: left}
	for i, l := range c.Layouts {
		levels, err := localsteps.Encode(c.Kernel, l, m.Momentum[i], update[i], p)
		if err != nil {
			return err
		}
		values, err := localsteps.Values(l, levels, c.Reach, 1)
		if err != nil {
			return err
		}
		m.levels, m.Taken = append(m.levels, levels), append(m.Taken, values)
	}
	return nil
}

// left returns the fraction of an earlier state's momentum that remains at a step.
func (c *Cutting) left(from *State, step uint32) float32 {
	return audit.Decayed(c.Decay, step-from.Step)
}

// Commit computes the tree of a state, once. The state before the first step has none.
func (c *Cutting) Commit(m *State) error {
	if m.tree != nil || m.Step == 0 {
		return nil
	}
	var leaves [][32]byte
	for i, l := range c.Layouts {
		_, ofTensor, err := c.Kernel.Leaves(l, m.Momentum[i], m.Taken[i])
		if err != nil {
			return err
		}
		leaves = append(leaves, ofTensor...)
	}
	m.tree = merkle.NewTree(leaves)
	return nil
}

// Claim opens chunks of a state and of its previous state.
func (c *Cutting) Claim(from, to *State, trainer [32]byte, chunks []uint32) (audit.Claim, error) {
	if err := c.Commit(to); err != nil {
		return audit.Claim{}, err
	}
	claim := audit.Claim{
		Opening: audit.Opening{Step: to.Step, Trainer: trainer, Previous: to.Previous},
		Result:  to.Taken,
		Header:  codec.Header{Step: to.Step, Trainer: trainer, Momentum: to.tree.Root(), Previous: to.Previous},
	}
	if from.Step > 0 { // otherwise it is zero and not opened
		if err := c.Commit(from); err != nil {
			return audit.Claim{}, err
		}
		claim.PreviousRoot = from.tree.Root()
	}
	for _, chunk := range chunks {
		opened := audit.Opened{Chunk: chunk, After: c.open(to, chunk)}
		if from.Step > 0 {
			opened.Before = c.open(from, chunk)
		}
		claim.Opening.Chunks = append(claim.Opening.Chunks, opened)
	}
	return claim, nil
}

func (c *Cutting) open(m *State, chunk uint32) audit.State {
	tensor, within, _ := c.Shapes.Find(chunk)
	return audit.State{
		Momentum: c.Layouts[tensor].Chunk(m.Momentum[tensor], within, nil),
		Taken:    distro.TakenOf(m.Taken[tensor], within, c.Shapes[tensor].Chunks),
		Path:     m.tree.Prove(int(chunk)),
	}
}

// Payload returns the bytes of a member's result for a batch of sequences [first, end).
func (c *Cutting) Payload(m *State, member int, first, end uint64) ([]byte, error) {
	layouts := make([]codec.TensorLayout, len(c.Layouts))
	for i, l := range c.Layouts {
		layouts[i] = l.Codec(c.TopK)
	}
	header := codec.Header{RunHash: c.Run, Step: m.Step, BatchStart: first, BatchEnd: end, Trainer: Key(member)}
	if c.Bits > 0 {
		return codec.EncodeLevels(header, layouts, c.Bits, m.levels)
	}
	return codec.Encode(header, layouts, c.Signs, m.Taken)
}

// Reference reduces a reference of all chunks to the part that an audit of the drawn chunks has.
func Reference(all *audit.Reference, trainer [32]byte, chunks []uint32) *audit.Reference {
	drawn := *all
	drawn.Trainer, drawn.Chunks, drawn.Updates, drawn.Usual, drawn.Tolerance = trainer, chunks, nil, nil, nil
	elements, ofAll := 0, 0
	for _, update := range all.Updates {
		ofAll += len(update)
	}
	for _, chunk := range chunks {
		drawn.Updates, drawn.Usual = append(drawn.Updates, all.Updates[chunk]), append(drawn.Usual, all.Usual[chunk])
		elements += len(all.Updates[chunk])
		if all.Tolerance != nil {
			drawn.Tolerance = append(drawn.Tolerance, all.Tolerance[chunk])
		}
	}
	if all.Tolerance != nil { // rounds of local steps: the same number for each element
		drawn.Most *= math.Sqrt(float64(elements) / float64(ofAll))
	}
	return &drawn
}

// Key returns a substitute for the public key of a member.
func Key(member int) [32]byte { return [32]byte{byte(member) + 1} }

// All returns the numbers of all chunks of a model.
func All(shapes audit.Shapes) []uint32 {
	all := make([]uint32, shapes.Chunks())
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}

// Copied returns a deep copy.
func Copied(all [][]float32) [][]float32 {
	other := make([][]float32, len(all))
	for i, one := range all {
		other[i] = append([]float32(nil), one...)
	}
	return other
}

// Length returns the Euclidean norm.
func Length(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}
