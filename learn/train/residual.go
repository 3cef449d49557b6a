package train

import (
	"context"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/localsteps"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
)

// residual is the state of the exchange of local steps: the pseudo-gradients not sent yet, a tensor for
// each parameter, in the order of the parameters' names. It is not safe for
// concurrent use, except for decode, bounded and values.
type residual struct {
	kernel  *distro.Kernel
	config  config.LocalSteps
	layouts []distro.Layout
	results []codec.TensorLayout
	unsent  momentum // sums of pseudo-gradients not sent yet
	outer   momentum // momenta of the pseudo-gradients, for outer_momentum; nil without
	fed     uint64   // number of additions to the sums
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
		r.outer = newBuffers(kernel, r.layouts)
	}
	return r, nil
}

// stayOn moves the sums and momenta, which must be zeros, to a device. The sums are there.
func (r *residual) stayOn(ctx context.Context, there *resident) (err error) {
	r.unsent = there
	if r.outer != nil {
		r.outer, err = newResident(ctx, there.on, r.kernel, r.layouts)
	}
	return err
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

// own returns the change of the weights by this trainer's result of a step, times a factor. found is
// false if no result of that step waits to be applied.
func (r *residual) own(step uint32, factor float32) (change []codec.TensorResult, found bool, err error) {
	sent, found := r.sent[step]
	if !found {
		return nil, false, nil
	}
	change, err = r.valuesOf(sent, -factor*float32(r.config.OuterLR))
	return change, true, err
}

// valuesOf returns the values that were subtracted from the sums for a step, times a factor.
func (r *residual) valuesOf(sent sentSums, factor float32) ([]codec.TensorResult, error) {
	values := make([]codec.TensorResult, len(r.layouts))
	for i, l := range r.layouts {
		var err error
		if values[i], err = localsteps.Values(l, sent.tensors[i], sent.reach, factor); err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i, err)
		}
	}
	return values, nil
}

// far replaces the weights after the steps of a round by the pseudo-gradient, given the weights before
// them.
func (r *residual) far(begun, ended [][]float32) error {
	far := 0.0
	for i, w := range ended {
		far = max(far, widest(begun[i], w))
	}
	if !(far <= maxUpdate) {
		return fmt.Errorf("%w: a weight has moved by %v", errNotFinite, far)
	}
	for i, w := range ended {
		var u []float32
		if r.outer != nil {
			u = r.outer.readInside()[i]
		}
		localsteps.Far(begun[i], w, u, float32(r.config.OuterMomentum))
	}
	return nil
}

// farThere is far for weights on devices, on the thread of the first device's engine.
func (r *residual) farThere(s *torch.Scope, on *shards, ended []*torch.Tensor) error {
	if err := on.far(ended); err != nil {
		return err
	}
	length, err := r.unsent.norm(vectors{there: ended})
	if err != nil {
		return err
	}
	if !(length <= maxUpdate) {
		return fmt.Errorf("%w: the weights have moved by %v", errNotFinite, length)
	}
	if r.outer != nil {
		factor, outer := float64(float32(r.config.OuterMomentum)), r.outer.(*resident).now
		return on.do(context.Background(), s, func(_ *torch.Scope, _ *apart, tensors []int) error {
			for _, i := range tensors {
				outer[i].MulScalarInPlace(factor).AddInPlace(ended[i], 1)
				ended[i].AddInPlace(outer[i], factor)
			}
			return nil
		})
	}
	return nil
}

// encode adds the pseudo-gradient of a round to the sums, and returns the bytes of the values that it
// subtracts from them. In runs with audits, a failure leaves the sums unchanged.
func (r *residual) encode(header codec.Header, far vectors, lr float32) (payload []byte, err error) {
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
	taken := false
	defer func() { // also if libtorch fails on a device, which is a panic here
		if !taken && r.history != nil {
			delete(r.sent, header.Step)
			r.history.restore()
		}
	}()
	payload, err = r.take(header, far, p, lr)
	taken = err == nil
	return payload, err
}

// undo makes a step that was encoded a step that failed.
func (r *residual) undo(step uint32) error {
	if r.history != nil {
		return r.rollBack(step)
	}
	return r.finalize(step, false)
}

// take adds the pseudo-gradient to sums, subtracts the sent values, and returns their bytes.
func (r *residual) take(header codec.Header, far vectors, p localsteps.EncodeParams, lr float32) (payload []byte, err error) {
	r.fed++
	tensors, err := r.unsent.encodeLevels(far, p)
	if err != nil {
		return nil, err
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

// apply moves the weights of a tensor by the results of a round, with their votes and a learning rate.
// Without results nothing changes.
func (r *residual) apply(tensor int, results [][]codec.TensorResult, votes distro.Votes, weights []float32, lr float32) error {
	return localsteps.Apply(r.kernel, r.layouts[tensor], ofTensor(results, tensor), weights, r.applyParams(votes, lr))
}

func (r *residual) applyParams(votes distro.Votes, lr float32) localsteps.ApplyParams {
	return localsteps.ApplyParams{Reach: r.reach(lr), LevelBits: int(r.config.ValueBits), Rate: float32(r.config.OuterLR), Votes: votes}
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
	values, err := r.valuesOf(sent, left)
	if err == nil {
		err = r.unsent.addBack(values)
	}
	if err != nil {
		return fmt.Errorf("add back step %d: %w", step, err)
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
func (r *residual) reset() error {
	defer r.history.lock()()
	if r.history != nil {
		r.history.forget()
	}
	r.fed, r.sent = 0, map[uint32]sentSums{}
	err := r.unsent.clear()
	if err == nil && r.outer != nil {
		err = r.outer.clear()
	}
	return err
}
