package train

import (
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/localsteps"
	"github.com/psyche-go/psyche/record/config"
)

// residual is the state of the exchange of local steps: the pseudo-gradients not sent yet. It works
// on plain slices, one for each tensor, in the order of the tensors' names. It is not safe for
// concurrent use, except for decode, bounded and values.
type residual struct {
	kernel  *distro.Kernel
	config  config.LocalSteps
	layouts []distro.Layout
	results []codec.TensorLayout
	unsent  *buffers    // sums of pseudo-gradients not sent yet
	momenta [][]float32 // momenta of the pseudo-gradients, for outer_momentum; nil without
	fed     uint64      // number of additions to the sums
	// sent contains the values subtracted from the sums for a step, until it is known whether it
	// counted.
	sent    map[uint32]sentSums
	history *history // nil: no audits
}

// sentSums contains the values that were sent for a step.
type sentSums struct {
	tensors []codec.TensorResult
	reach   float32
	fed     uint64
}

func newResidual(c config.LocalSteps, shapes [][]int64, threads int) (*residual, error) {
	kernel, err := distro.NewKernel(distro.Options{Threads: threads})
	if err != nil {
		return nil, err
	}
	r := &residual{kernel: kernel, config: c, sent: map[uint32]sentSums{}}
	for _, shape := range shapes {
		layout, err := distro.NewLayout(shape, int(c.CompressionChunk))
		if err != nil {
			return nil, err
		}
		r.layouts = append(r.layouts, layout)
		r.results = append(r.results, layout.Codec(int(c.CompressionTopK)))
	}
	r.unsent = newBuffers(kernel, r.layouts)
	if c.OuterMomentum > 0 {
		r.momenta = zeros(r.layouts)
	}
	return r, nil
}

// commit makes results commit to the sums from now on.
func (r *residual) commit() (err error) {
	r.history, err = newHistory(r.layouts, int(r.config.CompressionTopK), r.unsent)
	return err
}

// decode decodes a payload strictly.
func (r *residual) decode(payload []byte) (codec.Header, []codec.TensorResult, error) {
	header, results, err := codec.DecodeLevels(payload, r.results, int(r.config.ValueBits))
	if err != nil {
		return codec.Header{}, nil, fmt.Errorf("%w: %w", ErrResult, err)
	}
	return header, results, r.history.checkHeader(header)
}

// bounded returns results unchanged: levels are bounded by the reach of a round.
func (r *residual) bounded(results []codec.TensorResult) []codec.TensorResult { return results }

// reach returns approximately how far the steps of a round with a learning rate can move a weight.
func (r *residual) reach(lr float32) float32 {
	return float32(float64(lr) * float64(r.config.InnerSteps))
}

// values returns the values of the levels in results of a round with a learning rate.
func (r *residual) values(lr float32, results []codec.TensorResult) ([]codec.TensorResult, error) {
	values := make([]codec.TensorResult, len(results))
	for i, l := range r.layouts {
		var err error
		if values[i], err = localsteps.Values(l, results[i], r.reach(lr), 1); err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i, err)
		}
	}
	return values, nil
}

// trained reports whether a result of a step waits to be applied.
func (r *residual) trained(step uint32) bool {
	defer r.history.lock()()
	_, trained := r.sent[step]
	return trained
}

// addOwn adds this trainer's result of a step to weights, if it waits to be applied, times a factor.
func (r *residual) addOwn(step uint32, weights [][]float32, factor float32) error {
	own := r.sent[step]
	for i, w := range weights {
		if err := localsteps.AddBack(r.kernel, r.layouts[i], w, own.tensors[i], own.reach, -factor*float32(r.config.OuterLR)); err != nil {
			return fmt.Errorf("own result of step %d, tensor %d: %w", step, i, err)
		}
	}
	return nil
}

// encode adds the pseudo-gradient of a round, from the weights begun to the weights ended, to the
// sums, and returns the bytes of the values that it subtracts from them. It overwrites ended. In
// runs with audits, a failure leaves the sums unchanged.
func (r *residual) encode(header codec.Header, begun, ended [][]float32, lr float32) ([]byte, error) {
	far := 0.0
	for i, w := range ended {
		far = max(far, widest(begun[i], w))
	}
	if !(far <= maxUpdate) {
		return nil, fmt.Errorf("%w: a weight has moved by %v", errNotFinite, far)
	}
	defer r.history.lock()()
	p := localsteps.EncodeParams{
		Reach: r.reach(lr), Decay: float32(r.config.ErrorDecay),
		TopK: int(r.config.CompressionTopK), LevelBits: int(r.config.ValueBits),
	}
	if r.history != nil {
		if newest := r.history.newest(); newest > 0 && newest < header.Step {
			p.Decay = audit.Decayed(p.Decay, header.Step-newest)
		}
	}
	for i := range r.layouts {
		localsteps.Far(begun[i], ended[i], r.momentum(i), float32(r.config.OuterMomentum))
	}
	payload, err := r.take(header, r.unsent.begin(), ended, p, lr)
	if err != nil && r.history != nil {
		delete(r.sent, header.Step)
		r.history.restore()
	}
	return payload, err
}

// take adds the pseudo-gradient to sums, subtracts the sent values, and returns their bytes.
func (r *residual) take(header codec.Header, sums, far [][]float32, p localsteps.EncodeParams, lr float32) (payload []byte, err error) {
	tensors := make([]codec.TensorResult, len(r.layouts))
	r.fed++
	for i, l := range r.layouts {
		if tensors[i], err = localsteps.EncodeTo(r.kernel, l, sums[i], r.unsent.now[i], far[i], p); err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i, err)
		}
	}
	r.sent[header.Step] = sentSums{tensors: tensors, reach: p.Reach, fed: r.fed}
	var values []codec.TensorResult
	if r.history != nil {
		if values, err = r.values(lr, tensors); err != nil {
			return nil, err
		}
	}
	return r.history.seal(header, values, func(h codec.Header) ([]byte, error) {
		return codec.EncodeLevels(h, r.results, p.LevelBits, tensors)
	})
}

// momentum returns the momentum of a tensor, or nil.
func (r *residual) momentum(i int) []float32 {
	if r.momenta == nil {
		return nil
	}
	return r.momenta[i]
}

// apply moves the weights of a tensor by the results of a round with a learning rate. Without results
// nothing changes.
func (r *residual) apply(tensor int, results [][]codec.TensorResult, weights []float32, lr float32) error {
	p := localsteps.ApplyParams{Reach: r.reach(lr), LevelBits: int(r.config.ValueBits), Rate: float32(r.config.OuterLR)}
	return localsteps.Apply(r.kernel, r.layouts[tensor], ofTensor(results, tensor), weights, p)
}

// finalize ends the wait for this trainer's result of a step. An uncounted result is added back to
// the sums, decayed as if it had never left. If results are audited, nothing is added back; see
// Trainer.SetAttested.
func (r *residual) finalize(step uint32, counted bool) error {
	defer r.history.lock()()
	sent, found := r.sent[step]
	delete(r.sent, step)
	if !found || counted || r.history != nil {
		return nil
	}
	left := float32(math.Pow(r.config.ErrorDecay, float64(r.fed-sent.fed)))
	for i, l := range r.layouts {
		if err := localsteps.AddBack(r.kernel, l, r.unsent.now[i], sent.tensors[i], sent.reach, left); err != nil {
			return fmt.Errorf("add back step %d, tensor %d: %w", step, i, err)
		}
	}
	return nil
}

// rollBack restores the sums from before the newest step, see Trainer.SetAttested.
func (r *residual) rollBack(step uint32) error {
	defer r.history.lock()()
	took, err := r.history.rollback(step)
	if took {
		delete(r.sent, step)
	}
	return err
}

// reset resets the sums and the sent values.
func (r *residual) reset() {
	defer r.history.lock()()
	if r.history != nil {
		r.history.forget()
	}
	clearAll(slices.Concat(r.unsent.now, r.momenta))
	r.fed, r.sent = 0, map[uint32]sentSums{}
}
