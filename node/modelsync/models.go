package modelsync

import (
	"context"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/required"
)

// Catching up by results may take 1/replayShare of Warmup. If it fails, the rest of Warmup must be
// enough to fetch the whole model.
const replayShare = 3

// Models contains the models that a client holds and serves. Only the loop of a client may use it.
type Models struct {
	// Held is the model that the trainer holds; nil while the trainer's weights match no manifest.
	Held *Model
	// Large is the maximum size in bytes of a model whose copies are kept in memory.
	Large uint64

	options *Options
	store   *exchange.Store
	shares  []*Model               // models whose blobs peers can fetch, newest last
	earlier []coordinator.Recorded // models that the run recorded before its checkpoint, newest last
	partial partial                // a model that is being fetched
}

// partial contains the fetched parts of a model.
type partial struct {
	digest   [32]byte
	blobs    [][32]byte
	attempts int // number of attempts to get it
}

// NewModels returns the Models of a client that holds none yet.
func NewModels(store *exchange.Store, o *Options) *Models {
	m := &Models{Large: required.MaxCopied, store: store, options: o}
	store.NeededBy(m.eachBlob)
	return m
}

// eachBlob calls need for the hash of each part that is shared, or kept for a model that is being
// fetched.
func (m *Models) eachBlob(need func(hash [32]byte)) {
	for _, model := range m.shares {
		for _, hash := range model.Blobs {
			need(hash)
		}
	}
	for _, hash := range m.partial.blobs {
		need(hash)
	}
}

// Share lets peers fetch a model. recorded is the digest of the run's checkpoint.
func (m *Models) Share(model *Model, recorded [32]byte) {
	m.store.Cache.PutManifest(model.Digest, model.Manifest)
	m.shares = append(slices.DeleteFunc(m.shares, func(other *Model) bool { return other.Digest == model.Digest }), model)
	m.dropOld(recorded)
}

// Shared returns the shared model with a digest, or nil.
func (m *Models) Shared(digest [32]byte) *Model {
	for _, model := range m.shares {
		if model.Digest == digest {
			return model
		}
	}
	return nil
}

// Renew updates the list of models that the run recorded, and stops sharing models that are no
// longer needed.
func (m *Models) Renew(s *coordinator.State) {
	m.earlier = s.Earlier
	m.keepShares(func(model *Model) bool { return model.lost == nil || !model.lost.Load() })
	m.dropOld(s.Model.Checkpoint.Digest)
}

// Unshare stops sharing a model, unless the run has recorded it.
func (m *Models) Unshare(digest, recorded [32]byte) {
	if model := m.Shared(digest); model != nil {
		model.Lent = false
	}
	if digest != recorded {
		m.keepShares(func(model *Model) bool { return model.Digest != digest })
	}
}

// dropOld stops sharing models that are no longer needed. It keeps the newest model, the model that
// the run recorded, the spare model (spareFor) and lent models.
func (m *Models) dropOld(recorded [32]byte) {
	if len(m.shares) < 2 {
		return
	}
	newest, spare := m.shares[len(m.shares)-1], m.spareFor(recorded)
	m.keepShares(func(model *Model) bool {
		return model == newest || model == spare || model.Lent || model.Digest == recorded
	})
}

// spareFor returns the spare model: the newest shared model that the run recorded before its current
// checkpoint. The run continues from such a model if all holders of the checkpoint have left. A
// client that shares the checkpoint itself needs no spare; then, or if there is none, spareFor
// returns nil.
func (m *Models) spareFor(recorded [32]byte) *Model {
	if m.Shared(recorded) != nil {
		return nil
	}
	for _, r := range slices.Backward(m.earlier) {
		if model := m.Shared(r.Digest); model != nil {
			return model
		}
	}
	return nil
}

// keepShares stops sharing the models for which keep returns false.
func (m *Models) keepShares(keep func(*Model) bool) {
	old := m.shares
	m.shares = slices.DeleteFunc(slices.Clone(old), func(model *Model) bool { return !keep(model) })
	for _, model := range old {
		if !slices.Contains(m.shares, model) {
			m.store.Cache.DropManifest(model.Digest)
			m.store.Drop(model.Blobs...)
		}
	}
}

// Request describes a model that a client needs.
type Request struct {
	Definition env.Definition       // with the checkpoint, and the parameters of the trainer
	Trainer    env.Trainer          // nil: none yet, or only one for another definition
	Sources    []core.Source        // tried in this order
	Running    bool                 // it is an intermediate checkpoint of a running epoch, which only members have
	Timeout    time.Duration        // time limit of a manifest request to a peer; 0: requestTimeout
	Peers      []identity.ID        // peers that may have the model
	Copy       *checkpoint.Snapshot // copy of the model, taken during its epoch; nil: none
	Places     []coordinator.Location
	Time       time.Duration // time within which all members must have the model
}

// Begin returns an attempt to get a model. From then on, the trainer's model does not count as
// held. To free memory for a model from peers, the client stops sharing all models except the spare
// one (spareFor).
func (m *Models) Begin(w Request) *Attempt {
	c := w.Definition.Checkpoint
	m.keepPartial(c.Digest)
	a := &Attempt{
		Options: m.options, Request: w, Model: &Model{Origin: c, Fresh: true},
		base: m.baseBefore(c.Step), replayTime: w.Time / replayShare,
	}
	if shared := m.Shared(c.Digest); shared != nil {
		known := *shared // PutDown may change the original in the meantime
		a.known = &known
	}
	a.Places = rotated(w.Places, m.partial.attempts)
	m.partial.attempts++
	a.Tries = m.partial.attempts
	m.Held = nil
	if c.FromPeers() && a.known == nil && !w.Running { // to free memory for the wanted model
		spare := m.spareFor(c.Digest)
		m.keepShares(func(model *Model) bool { return model == spare })
	}
	return a
}

// rotated returns locations or members in rotation: each turn starts with the next item. Therefore a
// location that is too slow uses up at most one Warmup.
func rotated[T any](all []T, turn int) []T {
	if len(all) == 0 {
		return nil
	}
	first := turn % len(all)
	return slices.Concat(all[first:], all[:first])
}

// End takes over the result of an attempt. err is the error that the attempt ended with.
func (m *Models) End(a *Attempt, err error, cancelled bool, recorded [32]byte) {
	m.partial.blobs = append(m.partial.blobs, a.Model.Blobs...)
	if err != nil || cancelled {
		m.store.Drop(a.results...)
		return
	}
	m.Held = a.Model
	if a.Definition.Checkpoint.FromPeers() {
		m.partial = partial{}
		m.Share(a.Model, recorded)
	}
}

// keepPartial drops the parts of an incomplete model unless it has the digest.
func (m *Models) keepPartial(digest [32]byte) {
	if m.partial.digest != digest {
		old := m.partial.blobs
		m.partial = partial{digest: digest}
		m.store.Drop(old...)
	}
}

// base is an earlier model of the run from which the wanted one can be computed.
type base struct {
	step   uint32
	digest [32]byte
	load   func(ctx context.Context) (checkpoint.Snapshot, error)
}

// baseBefore returns the newest of the shared models that is older than a step, or nil.
func (m *Models) baseBefore(step uint32) *base {
	var newest *Model
	for _, model := range m.shares {
		if model.Step < step && (newest == nil || model.Step > newest.Step) {
			newest = model
		}
	}
	if newest == nil {
		return nil
	}
	from := *newest
	return &base{from.Step, from.Digest, func(ctx context.Context) (checkpoint.Snapshot, error) { return m.options.read(ctx, &from) }}
}
