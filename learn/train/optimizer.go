package train

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/record/config"
)

// optimizer is the state of DisTrO between steps. It works on plain slices, one for each tensor, in
// the order of the tensors' names. It is not safe for concurrent use, except for decode.
type optimizer struct {
	kernel   *distro.Kernel
	config   config.Distro
	layouts  []distro.Layout
	results  []codec.TensorLayout
	momentum momentum // not sent yet
	encoded  uint64   // number of calls of encode
	newest   uint32   // step of the newest call; the momentum has decayed up to this step
	// sent contains the coefficients that encode removed from the momentum for a step, until it is
	// known whether it counted.
	sent    map[uint32][]codec.TensorResult
	history *history // nil: no audits
}

func newOptimizer(c config.Distro, shapes [][]int64, threads int) (*optimizer, error) {
	switch {
	case c.CompressionTopK < 1 || c.CompressionChunk < 1:
		return nil, fmt.Errorf("distro optimizer: %w: compression_topk %d, compression_chunk %d, want at least 1",
			errUnsupported, c.CompressionTopK, c.CompressionChunk)
	case !(c.CompressionDecay >= 0 && c.CompressionDecay <= 1):
		return nil, fmt.Errorf("distro optimizer: %w: compression_decay %v, want 0 to 1", errUnsupported, c.CompressionDecay)
	case !(c.WeightDecay >= 0) || !(c.ClipGradNorm >= 0):
		return nil, fmt.Errorf("distro optimizer: %w: weight_decay %v, clip_grad_norm %v, want at least 0",
			errUnsupported, c.WeightDecay, c.ClipGradNorm)
	case c.ApplyLag > config.MaxApplyLag:
		return nil, fmt.Errorf("distro optimizer: %w: apply_lag %d, want 1 or 2", errUnsupported, c.ApplyLag)
	}
	kernel, err := distro.NewKernel(distro.Options{Threads: threads})
	if err != nil {
		return nil, fmt.Errorf("distro optimizer: %w", err)
	}
	o := &optimizer{kernel: kernel, config: c, sent: map[uint32][]codec.TensorResult{}}
	for _, shape := range shapes {
		layout, err := distro.NewLayout(shape, int(c.CompressionChunk))
		if err != nil {
			return nil, fmt.Errorf("distro optimizer: %w", err)
		}
		o.layouts = append(o.layouts, layout)
		o.results = append(o.results, layout.Codec(int(c.CompressionTopK)))
	}
	o.momentum = newBuffers(kernel, o.layouts)
	return o, nil
}

// commit makes results commit to the momentum from now on.
func (o *optimizer) commit() error {
	if o.config.Lookahead {
		return fmt.Errorf("%w: lookahead in a run with audits: no other member has the momentum for the look-ahead; turn off lookahead or audits", errUnsupported)
	}
	if o.config.ClipGradNorm <= 0 {
		return fmt.Errorf("%w: clip_grad_norm is 0 in a run with audits, so the addition to a momentum is unbounded; set it, for instance to 1.0, or set verification_percent to 0", errUnsupported)
	}
	var err error
	o.history, err = newHistory(o.layouts, int(o.config.CompressionTopK), o.momentum)
	return err
}

// reset resets the momentum and the sent coefficients.
func (o *optimizer) reset() error {
	defer o.history.lock()()
	return o.forget()
}

func (o *optimizer) forget() error {
	if o.history != nil {
		o.history.forget()
	}
	o.sent = map[uint32][]codec.TensorResult{}
	o.encoded, o.newest = 0, 0
	return o.momentum.clear()
}

// encode adds the gradients to the momentum, δ ← βⁿ·δ + lr·scale·g, where n is the number of steps
// of the run since the newest encoded one, and removes the largest coefficients from it. It returns
// the result's bytes. norm is the L2 norm of all gradients together. If a gradient or learning rate
// is out of range, it returns an error and nothing has changed.
func (o *optimizer) encode(header codec.Header, gradients vectors, norm float64, lr float32) (payload []byte, err error) {
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return nil, fmt.Errorf("%w: gradient norm is %v", errNotFinite, norm)
	}
	defer o.history.lock()() // SetAttested may be called from another goroutine
	if _, trained := o.sent[header.Step]; trained {
		return nil, fmt.Errorf("train step %d: %w: already trained", header.Step, errStep)
	}
	scaled := float32(float64(lr) * clipScale(norm, o.config.ClipGradNorm))
	if float64(scaled)*norm > maxUpdate {
		return nil, fmt.Errorf("%w: learning rate %v times gradient norm %v is out of range", errNotFinite, scaled, norm)
	}
	taken := false
	defer func() { // also if libtorch fails on a device, which is a panic here
		switch {
		case taken:
		case o.history == nil:
			err = errors.Join(err, o.addBack(header.Step))
		default:
			delete(o.sent, header.Step)
			o.history.restore()
			o.newest = o.history.newest()
		}
	}()
	payload, err = o.take(header, gradients, scaled)
	taken = err == nil
	return payload, err
}

// undo makes a step that was encoded a step that failed.
func (o *optimizer) undo(step uint32) error {
	if o.history != nil {
		return o.rollBack(step)
	}
	return o.finalize(step, false)
}

// take adds the gradients to the momentum, removes the largest coefficients from it and returns their
// bytes.
func (o *optimizer) take(header codec.Header, gradients vectors, scaled float32) ([]byte, error) {
	params := distro.EncodeParams{Decay: o.left(header.Step), LR: scaled, TopK: int(o.config.CompressionTopK)}
	least := float32(0)
	if o.history != nil {
		least = audit.Least
	}
	taken, err := o.momentum.encode(gradients, params, least)
	if err != nil {
		return nil, err
	}
	o.encoded++
	o.newest = header.Step
	o.sent[header.Step] = taken
	return o.history.seal(header, taken, func(h codec.Header) ([]byte, error) {
		return codec.Encode(h, o.results, o.config.Quantize1Bit, taken)
	})
}

// clipScale returns the factor for gradients of the given norm that reduces their norm to at most
// the limit; a limit of 0 means none.
func clipScale(norm, limit float64) float64 {
	if limit <= 0 || norm <= limit {
		return 1
	}
	return limit / (norm + 1e-6)
}

// finalize ends the wait for this trainer's result of a step. An uncounted result is added back to
// the momentum, decayed as if it had never left. If results are audited, nothing is added back: a
// result that is not attested is rolled back, and an attested result stays as other members know
// it.
func (o *optimizer) finalize(step uint32, counted bool) error {
	defer o.history.lock()()
	if counted || o.history != nil {
		delete(o.sent, step)
		return nil
	}
	return o.addBack(step)
}

// rollBack restores the momentum from before the newest step, see Trainer.SetAttested.
func (o *optimizer) rollBack(step uint32) error {
	defer o.history.lock()()
	took, err := o.history.rollback(step)
	if took {
		delete(o.sent, step)
		o.newest = o.history.newest()
	}
	return err
}

// addBack adds the coefficients removed in a step back to the momentum.
func (o *optimizer) addBack(step uint32) error {
	results, found := o.sent[step]
	if !found {
		return nil
	}
	delete(o.sent, step)
	left := audit.Decayed(float32(o.config.CompressionDecay), o.newest-step)
	if o.newest != step {
		results = slices.Clone(results)
		for i, result := range results {
			results[i] = decay(result, o.results[i].K, left)
		}
	}
	if err := o.momentum.addBack(results); err != nil {
		return fmt.Errorf("add back step %d: %w", step, err)
	}
	return nil
}

// left returns the factor by which the momentum decays between the newest encoded step and the given
// step. If the given step is not newer, left returns the factor for one step. Runs never train a step
// again.
func (o *optimizer) left(step uint32) float32 {
	steps := uint32(1)
	if o.newest > 0 && step > o.newest {
		steps = step - o.newest
	}
	return audit.Decayed(float32(o.config.CompressionDecay), steps)
}

// decay multiplies the values of a result, and omits values that become zero.
func decay(r codec.TensorResult, k int, factor float32) codec.TensorResult {
	decayed := codec.TensorResult{
		Counts:  make([]uint16, len(r.Counts)),
		Indices: make([]uint16, len(r.Indices)),
		Values:  make([]float32, len(r.Values)),
	}
	for c, count := range r.Counts {
		at := c * k
		for i := c * k; i < c*k+int(count); i++ {
			if value := r.Values[i] * factor; value != 0 {
				decayed.Indices[at], decayed.Values[at] = r.Indices[i], value
				at++
			}
		}
		decayed.Counts[c] = uint16(at - c*k)
	}
	return decayed
}

// decode decodes a payload strictly. It may be called concurrently with all other methods.
func (o *optimizer) decode(payload []byte) (codec.Header, []codec.TensorResult, error) {
	header, results, err := codec.Decode(payload, o.results, o.config.Quantize1Bit)
	if err != nil {
		return codec.Header{}, nil, fmt.Errorf("%w: %w", ErrResult, err)
	}
	return header, results, o.history.checkHeader(header)
}

// bounded returns a result in the form in which it is applied: the values of each chunk are scaled
// to an L2 norm of 1. Therefore no trainer gains weight by sending larger values; signs have equal
// weights already. Squares of single-precision numbers are exact in double precision, and the order
// of the operations is fixed, so the bits are the same on every machine.
func (o *optimizer) bounded(results []codec.TensorResult) []codec.TensorResult {
	if o.config.Quantize1Bit {
		return results
	}
	scaled := make([]codec.TensorResult, len(results))
	for i, r := range results {
		values := make([]float32, len(r.Values)) // a copy, because r keeps the values that were sent
		for c, count := range r.Counts {
			first, end := c*o.results[i].K, c*o.results[i].K+int(count)
			var squares float64
			for _, v := range r.Values[first:end] {
				squares += float64(v) * float64(v)
			}
			length := math.Sqrt(squares) // not zero: a value is not zero, and its square is not too small for double
			for j := first; j < end; j++ {
				values[j] = float32(float64(r.Values[j]) / length)
			}
		}
		scaled[i] = codec.TensorResult{Counts: r.Counts, Indices: r.Indices, Values: values}
	}
	return scaled
}

// apply moves every weight by the results and their votes, in the given order: weight decay, then lr
// times the sign of the mean. The weights decay even without results.
func (o *optimizer) apply(weights [][]float32, results [][]codec.TensorResult, votes distro.Votes, lr float32) error {
	return o.move(results, votes, lr, func(i int, ofTensor []codec.TensorResult, p distro.ApplyParams) error {
		return o.kernel.DecodeApply(o.layouts[i], ofTensor, weights[i], p)
	})
}

// applyTensor is apply for the weights of one tensor.
func (o *optimizer) applyTensor(tensor int, results [][]codec.TensorResult, weights []float32, p distro.ApplyParams) error {
	return o.kernel.DecodeApply(o.layouts[tensor], ofTensor(results, tensor), weights, p)
}

// applyParams returns the parameters of apply for votes and a learning rate.
func (o *optimizer) applyParams(votes distro.Votes, lr float32) (distro.ApplyParams, error) {
	factor := float32(1 - float64(float64(lr)*o.config.WeightDecay))
	if !(factor > 0) {
		return distro.ApplyParams{}, fmt.Errorf("apply: %w: learning rate %v times weight_decay %v is 1 or more", errUnsupported, lr, o.config.WeightDecay)
	}
	return distro.ApplyParams{LR: lr, WeightFactor: factor, Votes: votes}, nil
}

// move calls f for each tensor with its results. It may be called concurrently with itself.
func (o *optimizer) move(results [][]codec.TensorResult, votes distro.Votes, lr float32, f func(i int, ofTensor []codec.TensorResult, p distro.ApplyParams) error) error {
	params, err := o.applyParams(votes, lr)
	if err != nil {
		return err
	}
	for i := range o.layouts {
		if err := f(i, ofTensor(results, i), params); err != nil {
			return fmt.Errorf("apply tensor %d: %w", i, err)
		}
	}
	return nil
}
