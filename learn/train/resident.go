package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/localsteps"
	"github.com/psyche-go/psyche/learn/torch"
)

// resident is a momentum in the memory of devices: each tensor on its owner. Its kernels work in order with
// libtorch, on the default stream. The tensors belong to the engines, which free them when they are closed.
type resident struct {
	on      *shards
	kernel  *distro.Kernel // on the CPU
	layouts []distro.Layout
	now     []*torch.Tensor
	before  []*torch.Tensor // from before the newest step; nil: not kept
	steps   comparisons
	// failed is a failure that the exchange must settle before the next step: the device failed, or computed other
	// bits than the CPU. nil: none. See stays.
	failed  error
	strikes strikes
	// torn is true if a failure left the only copy of the values undefined. They count as zeros then.
	torn bool
}

// errBroken means that libtorch failed on a device while an optimizer's state changed.
var errBroken = errors.New("the device failed in the middle of a step")

// broke notes that a kernel failed while it changed the values, unless it refused its arguments. A kernel that
// lacked memory has changed nothing.
func (r *resident) broke(err error) error {
	if err != nil && !errors.Is(err, distro.ErrInput) && !errors.Is(err, distro.ErrNotFinite) {
		unchanged := errors.Is(err, cuda.ErrMemory) && !errors.Is(err, errPartly)
		r.failed, r.torn = err, r.torn || r.before == nil && !unchanged
	}
	return err
}

// stays ends the failure of a step, which has cost a batch at most: undefined values become zeros, and the next step
// runs on the device. It returns false if the optimizer must leave the device: because the device computes other bits
// than the CPU, has failed too often, or cannot set the values.
func (r *resident) stays(log *slog.Logger) bool {
	often := r.strikes.next(r.steps)
	if often || errors.Is(r.failed, errBits) {
		return false
	}
	reset := r.torn
	if reset && r.clear() != nil {
		return false
	}
	log.Warn("the device failed in a step; the optimizer stays on it", "device", r.on.home().twin.Engine().Device().String(),
		"because", r.failed, "in a row", r.strikes.failures, "leaves the device after", maxStrikes, "momentum is zero again", reset)
	r.failed = nil
	return true
}

// newResident allocates the momentum on devices that have kernels.
func newResident(ctx context.Context, on *shards, kernel *distro.Kernel, layouts []distro.Layout) (*resident, error) {
	r := &resident{on: on, kernel: kernel, layouts: layouts}
	var err error
	if r.now, err = on.allocate(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *resident) keepBefore() (err error) {
	r.before, err = r.on.allocate(context.Background())
	return err
}

func (r *resident) swap() { r.now, r.before = r.before, r.now }

func (r *resident) leaves(taken []codec.TensorResult) ([][32]byte, error) {
	if r.failed != nil {
		return (&buffers{kernel: r.kernel, layouts: r.layouts, now: r.readInside()}).leaves(taken)
	}
	leaves, err := r.leavesThere(taken)
	return leaves, r.broke(err)
}

func (r *resident) leavesThere(taken []codec.TensorResult) ([][32]byte, error) {
	ofTensors := make([][][32]byte, len(r.layouts))
	err := r.on.launch(func(a *apart, tensors []int) error {
		leaves, err := a.share.Leaves(addresses(pick(r.now, tensors)), pick(taken, tensors))
		for _, i := range tensors {
			if err == nil {
				ofTensors[i], leaves = leaves[:r.layouts[i].Chunks()], leaves[r.layouts[i].Chunks():]
			}
		}
		return err
	})
	return slices.Concat(ofTensors...), err
}

func (r *resident) chunk(tensor, within int, before bool) ([]float32, error) {
	values := r.now
	if before {
		values = r.before
	}
	return r.on.chunk(values, tensor, within)
}

func (r *resident) norm(gradients vectors) (float64, error) {
	return r.on.norm(gradients.there)
}

func (r *resident) encode(gradients vectors, p distro.EncodeParams, least float32) ([]codec.TensorResult, error) {
	return r.take(gradients, func(k kernels, from, left, grad []cuda.Tensor) ([]codec.TensorResult, error) {
		return k.Encode(from, left, grad, p, least)
	}, func(b *buffers, gradients vectors) ([]codec.TensorResult, error) {
		return b.encode(gradients, p, least)
	})
}

func (r *resident) encodeLevels(gradients vectors, p localsteps.EncodeParams) ([]codec.TensorResult, error) {
	return r.take(gradients, func(k kernels, from, left, grad []cuda.Tensor) ([]codec.TensorResult, error) {
		return k.EncodeLevels(from, left, grad, p)
	}, func(b *buffers, gradients vectors) ([]codec.TensorResult, error) { return b.encodeLevels(gradients, p) })
}

// takingThere encodes some tensors of a step on a device.
type takingThere func(k kernels, from, left, grad []cuda.Tensor) ([]codec.TensorResult, error)

// take encodes a step by there, from values to r.now, on the thread of the engine. In some steps it compares some
// tensors with the result of here, on the CPU. If they differ in a run with audits, in which a wrong momentum would look
// like cheating, here encodes the step again. If a device fails without audits, the values become zeros.
func (r *resident) take(gradients vectors, there takingThere, here taking) (taken []codec.TensorResult, err error) {
	ended := false
	defer func() { // also if libtorch fails, which is a panic here
		if !ended {
			err = r.broke(errors.Join(err, errBroken))
		}
	}()
	taken, err = r.takeThere(gradients, there, here)
	err, ended = r.broke(err), true
	return taken, err
}

func (r *resident) takeThere(gradients vectors, there takingThere, here taking) ([]codec.TensorResult, error) {
	from := r.now
	if r.before != nil {
		r.swap()
		from = r.before
	}
	var compared []sample
	if r.steps.next() {
		compared = samplesOf(r.steps, r.layouts, from, gradients.there)
	}
	taken := make([]codec.TensorResult, len(r.layouts))
	err := r.on.launch(func(a *apart, tensors []int) error {
		of := func(all []*torch.Tensor) []cuda.Tensor { return addresses(pick(all, tensors)) }
		own, err := there(a.share, of(from), of(r.now), of(gradients.there))
		if err == nil {
			spread(taken, tensors, own)
		}
		return err
	})
	if err != nil || len(compared) == 0 {
		return taken, err
	}
	leaves, failure := r.leavesThere(hashed(taken))
	if failure != nil { // with audits, sealing the result fails too
		return taken, nil
	}
	for _, s := range compared {
		first := s.firstChunk(r.layouts)
		hashes := leaves[first : first+r.layouts[s.tensor].Chunks()]
		if r.failed = s.compare(r.kernel, r.layouts[s.tensor], here, taken[s.tensor], r.now[s.tensor], hashes); r.failed != nil {
			break
		}
	}
	if r.failed == nil || r.before == nil {
		return taken, nil
	}
	return r.takeHere(gradients, here)
}

// takeHere encodes a step on the CPU, after the device has encoded it wrongly.
func (r *resident) takeHere(gradients vectors, here taking) ([]codec.TensorResult, error) {
	b := &buffers{kernel: r.kernel, layouts: r.layouts, now: cloneAll(copied(r.before))}
	taken, err := here(b, vectors{here: copied(gradients.there)})
	if err != nil {
		return nil, err
	}
	for i, values := range b.now {
		r.now[i].CopyFrom(gradients.scope.FromFloat32s(values, r.now[i].Shape()...))
	}
	return taken, nil
}

func (r *resident) addBack(results []codec.TensorResult) error {
	return r.broke(r.on.addBack(r.now, results))
}

func (r *resident) clear() error {
	return r.set(func(s *torch.Scope, i int) *torch.Tensor { return s.Zeros(torch.F32, r.now[i].Shape()...) })
}

func (r *resident) read() ([][]float32, error) { return r.readOf(r.now) }

func (r *resident) readInside() [][]float32 { return copied(r.now) }

func (r *resident) readOf(tensors []*torch.Tensor) ([][]float32, error) {
	if r.torn {
		return zeros(r.layouts), nil
	}
	values := make([][]float32, len(tensors))
	err := r.each(func(_ *torch.Scope, i int) error {
		values[i] = tensors[i].CopyFloat32s()
		return nil
	})
	return values, err
}

func (r *resident) write(values [][]float32) error {
	return r.set(func(s *torch.Scope, i int) *torch.Tensor { return s.FromFloat32s(values[i], r.now[i].Shape()...) })
}

// set overwrites the values with new tensors.
func (r *resident) set(values func(s *torch.Scope, i int) *torch.Tensor) error {
	err := r.each(func(s *torch.Scope, i int) error {
		r.now[i].CopyFrom(values(s, i))
		return nil
	})
	r.torn = r.torn && err != nil
	return err
}

// here returns a copy of the momentum in the memory of the CPU.
func (r *resident) here() (*buffers, error) {
	b := &buffers{kernel: r.kernel, layouts: r.layouts}
	var err error
	if b.now, err = r.readOf(r.now); err == nil && r.before != nil {
		b.before, err = r.readOf(r.before)
	}
	return b, err
}

// leave returns the momentum in the memory of the CPU, and frees it on the device. If the device does not
// return it, the result is zeros, with an error.
func (r *resident) leave() (*buffers, error) {
	here, err := r.here()
	if err != nil {
		if here = newBuffers(r.kernel, r.layouts); r.before != nil {
			here.before = zeros(r.layouts)
		}
	}
	return here, errors.Join(err, r.on.free(r.now), r.on.free(r.before))
}

// each calls f for each tensor on the engine of its owner. The scope ends after the tensor.
func (r *resident) each(f func(s *torch.Scope, i int) error) error {
	return r.on.do(context.Background(), nil, func(s *torch.Scope, _ *apart, tensors []int) error {
		for _, i := range tensors {
			if err := s.Sub(func(s *torch.Scope) error { return f(s, i) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// openResident opens the kernels of all devices and returns a momentum that is divided among them, or nil if
// there are no devices or if one of them has no kernels. Then steps move the weights on the devices. The
// weights in the memory of the CPU are a copy, which the replica refreshes when it is needed.
func openResident(ctx context.Context, r *replica, kernel *distro.Kernel, layouts []distro.Layout, topK int, o Options) (*resident, error) {
	devices := r.parallel.apart()
	if len(devices) == 0 {
		return nil, nil
	}
	var elements []int
	for _, l := range layouts {
		elements = append(elements, l.Elements())
	}
	on := divide(devices, elements)
	without, err := on.openKernels(func(a *apart, layouts []distro.Layout) (kernels, error) {
		if o.kernels != nil {
			return o.kernels(layouts, topK)
		}
		return a.openKernels(layouts, topK)
	}, layouts)
	if err != nil {
		r.log.Warn("the optimizer's kernels cannot run on the device: the optimizer runs on the CPU, and weights will be copied to the device for every step",
			"device", without.twin.Engine().Device().String(), "because", errors.Join(err, r.parallel.closeKernels()),
			"remedy", "install NVRTC of the CUDA version that libtorch is made for, or set "+cuda.EnvNVRTC+
				" to its library; the driver must be as new as NVRTC")
	}
	if without != nil {
		return nil, nil
	}
	m, err := newResident(ctx, on, kernel, layouts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("momentum: %w", err), r.parallel.closeKernels())
	}
	r.parallel.stay(on)
	for d, a := range devices {
		r.log.Info("weights and optimizer are in the device's memory", "device", a.twin.Engine().Device().String(),
			"tensors of the optimizer", len(on.tensors[d]), "of", len(layouts))
	}
	return m, nil
}
