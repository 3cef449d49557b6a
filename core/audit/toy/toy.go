// Package toy implements an auditable optimizer of 32 numbers. Trainers that compute almost nothing
// use it in tests and in runs that test the network.
//
// Each number is a chunk, which is sent completely. The momentum after a step is therefore zero.
//
//	gradient := toy.Gradient(weights, sequences)
//	payload, err := part.Optimizer.Step(step, batch.ID, gradient, batch.Hash())
//	opening, err := part.Open(step, chunks)
//	err = part.SetAttested(step, attested)
//	part.Past.Note(step, weights) // once it is applied
package toy

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/merkle"
)

const (
	numbers = 32
	decay   = 0.5
	rate    = 0.01
	// kept is the number of results that can be opened.
	kept = 2
)

// errStep means that a step cannot be opened, because it is not the newest trained step.
var errStep = errors.New("step is not the newest one")

// Shapes returns how the model is cut into chunks.
func Shapes() audit.Shapes { return audit.Shapes{{Chunks: numbers, Rows: 1, Cols: 1, K: 1}} }

func layouts() []codec.TensorLayout {
	return []codec.TensorLayout{{Chunks: numbers, ChunkSize: 1, K: 1}}
}

// MaxSize returns the maximum size of a result in bytes.
func MaxSize() int { return codec.MaxSize(layouts(), false) }

// Decode decodes a result.
func Decode(payload []byte) (codec.Header, []codec.TensorResult, error) {
	return codec.Decode(payload, layouts(), false)
}

// Forge returns a copy of a result in which change has modified the header, for tests.
func Forge(payload []byte, change func(h *codec.Header)) ([]byte, error) {
	h, result, err := Decode(payload)
	if err != nil {
		return nil, err
	}
	change(&h)
	return codec.Encode(h, layouts(), false, result)
}

// Gradient returns the gradient of a batch: a function of the model and the sequences.
func Gradient(weights [32]byte, sequences [][]int32) []float32 {
	b := append([]byte(nil), weights[:]...)
	for _, sequence := range sequences {
		for _, token := range sequence {
			b = binary.LittleEndian.AppendUint32(b, uint32(token))
		}
	}
	seed := sha256.Sum256(b)
	gradient := make([]float32, numbers)
	for i := range gradient {
		drawn := sha256.Sum256(append(seed[:], byte(i)))
		gradient[i] = 1 + float32(drawn[0])/256 // not all equal, and none small
		if drawn[1]&1 == 1 {
			gradient[i] = -gradient[i]
		}
	}
	return gradient
}

// Reference returns the reference of an auditor that has the gradient.
func Reference(step uint32, trainer [32]byte, chunks []uint32, gradient []float32) (*audit.Reference, error) {
	e := reference(step, trainer)
	e.Chunks, e.Limits = chunks, audit.F32Limits
	for _, chunk := range chunks {
		if int64(chunk) >= int64(len(gradient)) {
			return nil, fmt.Errorf("%w: chunk %d of %d", audit.ErrInvalid, chunk, len(gradient))
		}
		e.Updates, e.Usual = append(e.Updates, []float32{rate * gradient[chunk]}), append(e.Usual, rate)
	}
	return e, nil
}

func reference(step uint32, trainer [32]byte) *audit.Reference {
	return &audit.Reference{Shapes: Shapes(), Step: step, Trainer: trainer, Decay: decay, Longest: math.Inf(1), Most: math.Inf(1)}
}

// Optimizer is the optimizer of a trainer. Its methods may be called concurrently.
type Optimizer struct {
	Run     [32]byte // SHA-256 of the run id
	Trainer [32]byte

	mu    sync.Mutex
	steps []made // newest last
}

// made is a result that may be opened.
type made struct {
	step, previous uint32
	taken          codec.TensorResult
	tree           *merkle.Tree
}

// Step adds the gradient of a batch to the momentum and takes all of it out into a result. tokens
// is the hash of the batch's tokens.
func (o *Optimizer) Step(step uint32, batch assign.BatchID, gradient []float32, tokens [32]byte) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := made{step: step, taken: layouts()[0].NewResult()}
	if n := len(o.steps); n > 0 {
		m.previous = o.steps[n-1].step
	}
	leaves := make([][32]byte, numbers)
	for i := range leaves {
		if v := float32(rate * gradient[i]); v != 0 {
			m.taken.Counts[i], m.taken.Values[i] = 1, v
		}
		leaves[i] = audit.Leaf(audit.Digest([]float32{0}), taken(m.taken, i))
	}
	m.tree = merkle.NewTree(leaves)
	if o.steps = append(o.steps, m); len(o.steps) > kept {
		o.steps = o.steps[len(o.steps)-kept:]
	}
	header := codec.Header{
		RunHash: o.Run, Step: step, BatchStart: batch.Start, BatchEnd: batch.End, Trainer: o.Trainer,
		Momentum: m.tree.Root(), Previous: m.previous, Precision: audit.F32.Code(), Batch: tokens,
	}
	return codec.Encode(header, layouts(), false, []codec.TensorResult{m.taken})
}

func taken(r codec.TensorResult, chunk int) audit.Taken {
	if r.Counts[chunk] == 0 {
		return audit.Taken{}
	}
	return audit.Taken{Indices: []uint16{0}, Values: []float32{r.Values[chunk]}}
}

// setAttested rolls the newest result back if no quorum attests it. It does nothing for a result that the
// optimizer no longer keeps.
func (o *Optimizer) setAttested(step uint32, attested bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.steps)
	switch {
	case attested || n == 0 || o.steps[n-1].step < step:
		return nil
	case o.steps[n-1].step > step:
		return fmt.Errorf("roll back step %d: %w", step, errStep)
	}
	o.steps = o.steps[:n-1]
	return nil
}

// Reset resets the momentum to zero.
func (o *Optimizer) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.steps = nil
}

// Open opens chunks of the newest step's result.
func (o *Optimizer) Open(step uint32, chunks []uint32) (audit.Opening, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.steps)
	if n == 0 || o.steps[n-1].step != step || o.steps[n-1].previous != 0 && n == 1 { // the previous result is no longer kept
		return audit.Opening{}, fmt.Errorf("open step %d: %w", step, errStep)
	}
	now := &o.steps[n-1]
	opening := audit.Opening{Step: step, Trainer: o.Trainer, Previous: now.previous}
	for _, chunk := range chunks {
		if chunk >= numbers {
			return audit.Opening{}, fmt.Errorf("open step %d: %w: chunk %d of %d", step, audit.ErrInvalid, chunk, numbers)
		}
		opened := audit.Opened{Chunk: chunk, After: now.state(chunk)}
		if now.previous != 0 {
			opened.Before = o.steps[n-2].state(chunk)
		}
		opening.Chunks = append(opening.Chunks, opened)
	}
	return opening, nil
}

func (m *made) state(chunk uint32) audit.State {
	return audit.State{Momentum: []float32{0}, Taken: taken(m.taken, int(chunk)), Path: m.tree.Prove(int(chunk))}
}

// Past contains the models after the newest steps. A trainer that computes almost nothing keeps old
// models, because storing them is simpler than recomputing them.
type Past struct {
	mu             sync.Mutex
	after          map[uint32][32]byte
	oldest, newest uint32 // steps that may be in weights
}

// pastSteps is the number of models that Past keeps, enough for a trial in rounds of 50 ms.
const pastSteps = 4096

// Note stores the model after a step.
func (p *Past) Note(step uint32, weights [32]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after == nil {
		p.after = make(map[uint32][32]byte)
	}
	for ; p.oldest+pastSteps < step; p.oldest++ {
		delete(p.after, p.oldest)
	}
	for ; p.newest > step; p.newest-- {
		delete(p.after, p.newest)
	}
	p.after[step], p.newest = weights, step
}

// At returns the model after a step.
func (p *Past) At(step uint32) (weights [32]byte, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	weights, known := p.after[step]
	if !known {
		return weights, fmt.Errorf("the model after step %d: %w", step, errStep)
	}
	return weights, nil
}

// Part contains the state of a trainer that computes almost nothing, except its weights, which it
// knows only as a hash.
type Part struct {
	Optimizer Optimizer
	Past      Past
}

// SetAttested rolls the newest result back if no quorum attests it.
func (p *Part) SetAttested(step uint32, attested bool) error {
	return p.Optimizer.setAttested(step, attested)
}

// Open opens chunks of the newest step's result.
func (p *Part) Open(step uint32, chunks []uint32) (audit.Opening, error) {
	return p.Optimizer.Open(step, chunks)
}

// CheckLight returns the fault of a claim that can be found without a gradient.
func (*Part) CheckLight(c audit.Claim) audit.Fault {
	e := reference(c.Header.Step, c.Header.Trainer)
	for _, opened := range c.Opening.Chunks {
		e.Chunks = append(e.Chunks, opened.Chunk)
	}
	return e.Check(c).Fault
}

// Loaded stores the loaded model, and resets the momentum, which belonged to another model.
func (p *Part) Loaded(step uint32, weights [32]byte) {
	p.Optimizer.Reset()
	p.Past.Note(step, weights)
}

// Recomputed returns the gradient of a batch for the weights after step x.Weights. x.Applied must
// contain the steps since then, newest first.
func (p *Part) Recomputed(x audit.Recomputation, sequences [][]int32) ([]float32, error) {
	for i, applied := range x.Applied {
		if want := x.Weights + uint32(len(x.Applied)-i); applied.Step != want {
			return nil, fmt.Errorf("applied of step %d, want %d", applied.Step, want)
		}
	}
	weights, err := p.Past.At(x.Weights)
	if err != nil {
		return nil, err
	}
	return Gradient(weights, sequences), nil
}

// Abandon does nothing: a Part keeps no progress of a recomputation.
func (*Part) Abandon(uint32, [32]byte) {}

// Shapes returns how the model is cut into chunks.
func (*Part) Shapes() audit.Shapes { return Shapes() }

// Decode decodes a result.
func (*Part) Decode(payload []byte) (codec.Header, []codec.TensorResult, error) {
	return Decode(payload)
}
