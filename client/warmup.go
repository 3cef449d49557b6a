package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

const (
	opLoad    = "load"
	opPrepare = "prepare"

	modelPause = time.Second
)

// errNoHolder says that no peer gave the model.
var errNoHolder = errors.New("no member has the model")

// warmup gets the model that the epoch starts from and says so.
func (n *Node) warmup() {
	if !n.closeEpoch() || !n.isMember() || !n.enterEpoch() {
		return
	}
	if slices.Contains(n.state.Epoch.Ready, coordinator.ClientID(n.id)) {
		return
	}
	epoch := n.state.Progress.Epoch
	n.submit("ready", n.replica.epoch, coordinator.Ready{Epoch: epoch}, func() {
		n.log.Info("ready", "epoch", epoch)
	})
}

// enterEpoch gives the client its replica when it holds the epoch's model, and reports
// whether it has one. During Warmup it gets the model; later it is too late, and
// keepSeat asks for a place in the next epoch.
func (n *Node) enterEpoch() bool {
	if n.replica != nil {
		return true
	}
	if !n.holdsModel() {
		if n.state.RunState == coordinator.Warmup {
			n.obtainModel()
		}
		return false
	}
	if n.op != nil {
		return false
	}
	key := n.epoch()
	if n.model.prepared != key {
		n.prepare(key)
		return false
	}
	clear(n.stalls)
	hash := startReplica(n.model.digest)
	n.replica = &replica{epoch: key, hash: hash, before: hash, step: key.startStep - 1, coldSteps: n.model.coldSteps, from: n.model.digest}
	m := n.model
	n.emit(event.Ready{
		Epoch: n.state.Progress.Epoch, Step: m.step, Digest: hexOf(m.digest),
		Source: m.source, Bytes: m.fetched, Seconds: m.seconds,
	})
	if n.seat.again {
		n.seat.again = false
		n.emit(event.Rejoined{Epoch: n.state.Progress.Epoch, Step: n.state.Progress.Step})
	}
	n.log.Info("holds the model", "epoch", n.state.Progress.Epoch, "digest", hexOf(m.digest)[:16], "source", m.source)
	return true
}

// prepare sets the optimizer up for the epoch. In a cold start it begins without
// momentum and with a small learning rate, for everybody alike.
func (n *Node) prepare(epoch epochKey) {
	model, trainer := n.model, n.trainer
	var steps uint32
	if n.state.Epoch.ColdStart {
		steps = n.state.Model.ColdStartWarmupSteps
	}
	reset := n.state.Epoch.ColdStart && !model.fresh
	n.start(opPrepare, 0, func(ctx context.Context) func() {
		err := trainer.SetColdStart(ctx, epoch.startStep, steps)
		if err == nil && reset {
			err = trainer.ResetOptimizer(ctx)
		}
		cancelled := ctx.Err() != nil
		return func() {
			switch {
			case err == nil:
				model.prepared, model.coldSteps = epoch, steps
			case !cancelled:
				n.fail(fmt.Errorf("prepare the optimizer: %w", err))
			}
		}
	})
}

// cancelLoad stops the load of a model that nobody waits for any more: the Warmup is over,
// the client has lost its place, or the run goes on from another checkpoint. Otherwise a
// holder that sends a byte now and then would keep the client from the next epoch, or from
// its end. The parts that are here are kept.
func (n *Node) cancelLoad() {
	if n.op == nil || n.op.name != opLoad {
		return
	}
	if n.state.RunState != coordinator.Warmup || !n.isMember() || n.op.from != n.state.Model.Checkpoint {
		n.op.cancel()
	}
}

// obtainModel loads the model that the coordinator's checkpoint names.
func (n *Node) obtainModel() {
	if n.op != nil || n.Runtime.Now().Before(n.obtainAt) {
		return
	}
	redefined := n.redefined()
	if redefined {
		n.log.Info("the run was configured anew: building the trainer again", "epoch", n.state.Progress.Epoch)
		n.trainer = nil
	} else if n.model != nil && n.model.origin.Kind == 0 { // trained here, in the epoch before
		n.desynchronise("the run recorded another checkpoint than the one held here")
	}
	var members []coordinator.ClientID
	for _, c := range n.state.Epoch.Clients {
		if c.State == coordinator.Healthy {
			members = append(members, c.ID)
		}
	}
	o := obtaining{
		Node: n, checkpoint: n.state.Model.Checkpoint, definition: n.state.Model,
		trainer: n.trainer, peers: n.others(members), known: n.shareOf(n.state.Model.Checkpoint.Digest),
	}
	n.keepPartial(o.checkpoint.Digest)
	o.places = n.reportedPlaces(o.checkpoint.Digest)
	n.partial.attempts++
	n.model = nil
	n.forgetResults(0) // what follows does not go on from there
	if redefined {     // an earlier model may have another shape
		n.whole = o.checkpoint.Digest
	}
	o.noReplay = n.whole == o.checkpoint.Digest
	o.base, o.replayTime = baseIn(n.shares, o.checkpoint.Step), time.Duration(n.state.Config.WarmupTime)*time.Millisecond/replayShare
	if fromPeers(o.checkpoint) && o.known == nil {
		n.dropOtherShares(o.checkpoint.Digest) // to have room for this one
	}
	n.start(opLoad, 0, func(ctx context.Context) func() {
		begun := n.Runtime.Now()
		err := o.run(ctx)
		o.model.seconds = n.Runtime.Now().Sub(begun).Seconds()
		cancelled := ctx.Err() != nil
		return func() { n.obtained(o, err, cancelled) }
	})
	n.op.from = o.checkpoint
}

// reportedPlaces returns where members say that a model lies. Every attempt to get it begins
// at another place: one that gives its bytes too slowly may take a whole Warmup, not all.
func (n *Node) reportedPlaces(digest [32]byte) []coordinator.Place {
	var places []coordinator.Place
	for _, u := range n.state.UploadsOf(digest) {
		places = append(places, u.Place)
	}
	if len(places) == 0 {
		return nil
	}
	first := n.partial.attempts % len(places)
	return slices.Concat(places[first:], places[:first])
}

// obtained takes over what obtaining got.
func (n *Node) obtained(o obtaining, err error, cancelled bool) {
	n.total.ModelReceived += o.model.fetched
	n.partial.blobs = append(n.partial.blobs, o.model.blobs...)
	if err != nil || cancelled {
		n.dropBlobs(o.results)
	}
	if o.trainer != nil {
		n.trainer, n.built = o.trainer, o.definition.Definition
	}
	switch {
	case cancelled:
	case errors.Is(err, errReplay):
		n.whole = o.checkpoint.Digest
		n.log.Warn("the whole model has to be fetched", "err", err)
	case errors.Is(err, ErrNoRoom):
		n.fail(fmt.Errorf("get the model from peers: %w", err))
	case errors.Is(err, errNoHolder):
		n.obtainAt = n.Runtime.Now().Add(modelPause)
		n.log.Warn("get the model from peers", "err", err)
	case err != nil:
		n.fail(fmt.Errorf("load the model: %w", err))
	default:
		n.model = o.model
		n.forgetResults(min(n.ResultMemory, o.model.size))
		n.adoptResults(o.rounds)
		if fromPeers(o.checkpoint) {
			n.partial = partialModel{}
			n.share(o.model)
		}
	}
}

// obtaining is one attempt to load the model of a checkpoint. It runs outside the loop
// and uses of Node only options and id.
type obtaining struct {
	*Node
	checkpoint coordinator.Checkpoint
	definition coordinator.Model
	trainer    Trainer // nil: none yet
	peers      []identity.ID
	places     []coordinator.Place // where members said that it lies
	known      *heldModel          // the model itself, when its parts are already here
	model      *heldModel          // outcome

	noReplay   bool           // it is not tried to catch up by results
	base       *base          // an earlier model in memory; nil: none
	replayTime time.Duration  // for catching up
	results    [][32]byte     // that were fetched for it
	rounds     []appliedRound // by which it was done
}

func (o *obtaining) run(ctx context.Context) error {
	o.model = &heldModel{origin: o.checkpoint, fresh: true}
	snapshot, err := o.snapshot(ctx)
	if err != nil {
		return err
	}
	o.model.size = modelSize(snapshot)
	if o.trainer != nil {
		err = o.trainer.Load(ctx, snapshot)
	} else {
		o.trainer, err = o.NewTrainer(ctx, snapshot, o.definition)
	}
	if err == nil {
		o.restoreOptimizer(ctx)
	}
	return err
}

// snapshot gets the model's content from here, from peers or their archive, or from where
// the run began.
func (o *obtaining) snapshot(ctx context.Context) (checkpoint.Snapshot, error) {
	if o.known != nil {
		copied := *o.known
		copied.origin, copied.prepared, copied.fresh = o.checkpoint, epochKey{}, true
		copied.source, copied.fetched = "held", 0
		o.model = &copied
		return copied.snapshot, nil
	}
	if fromPeers(o.checkpoint) {
		return o.fromHandedOver(ctx)
	}
	snapshot, err := o.Initial(ctx, o.checkpoint)
	if err != nil {
		return snapshot, err
	}
	snapshot.Step = 0 // whatever it was elsewhere, so that all members agree on the digest
	if err := snapshot.Validate(); err != nil {
		return snapshot, err
	}
	manifest := snapshot.Manifest()
	o.model.digest, o.model.source = manifest.Digest(), "initial"
	return snapshot, nil
}

// fromMembers fetches manifest, files and tensors from the members that have them.
func (o *obtaining) fromMembers(ctx context.Context) (checkpoint.Snapshot, error) {
	encoded, holders := o.askForManifest(ctx)
	if len(holders) == 0 {
		return checkpoint.Snapshot{}, fmt.Errorf("%w: asked %d members for %s", errNoHolder, len(o.peers), hexOf(o.checkpoint.Digest)[:16])
	}
	manifest, err := checkpoint.DecodeManifest(encoded)
	if err != nil { // a quorum vouched for exactly these bytes
		return checkpoint.Snapshot{}, err
	}
	parts, err := o.fetchParts(ctx, manifest, holders)
	if err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("%w: %w", errNoHolder, err)
	}
	snapshot, err := manifest.Assemble(func(hash [32]byte, _ uint64) ([]byte, error) { return parts[hash], nil })
	if err != nil {
		return snapshot, err
	}
	o.model.snapshot, o.model.manifest = snapshot, encoded
	o.model.digest, o.model.step, o.model.source = o.checkpoint.Digest, snapshot.Step, "peers"
	return snapshot, nil
}

// askForManifest asks all members and returns the manifest and who has it.
func (o *obtaining) askForManifest(ctx context.Context) (manifest []byte, holders []identity.ID) {
	ctx, cancel := o.Runtime.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var mu sync.Mutex
	ask := func(ctx context.Context, i int) error {
		peer := o.peers[i]
		response, err := o.Network.Request(ctx, peer, modelProtocol, o.checkpoint.Digest[:], checkpoint.MaxManifestSize)
		if err == nil && blake3Sum(response) != o.checkpoint.Digest {
			err = fmt.Errorf("%w: a manifest that does not have the digest", errMalformed)
		}
		if err != nil {
			o.log.Debug("ask for the manifest", "peer", peer.Short(), "err", err)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		manifest, holders = response, append(holders, peer)
		return nil
	}
	_ = o.Runtime.Each(ctx, o.ParameterRequests, len(o.peers), ask) // it returns no errors
	return manifest, holders
}

// fetchParts fetches every part of the manifest; part i is first asked of holder i.
func (o *obtaining) fetchParts(ctx context.Context, manifest checkpoint.Manifest, holders []identity.ID) (map[[32]byte][]byte, error) {
	var mu sync.Mutex
	parts := make(map[[32]byte][]byte)
	blobs := manifest.Blobs()
	err := o.Runtime.Each(ctx, o.ParameterRequests, len(blobs), func(ctx context.Context, i int) error {
		blob, first := blobs[i], i%len(holders)
		order := slices.Concat(holders[first:], holders[:first])
		data, err := o.Network.Fetch(ctx, blob.Hash, blob.Size, order)
		if err != nil {
			return fmt.Errorf("fetch part %x of the model: %w", blob.Hash[:8], err)
		}
		mu.Lock()
		defer mu.Unlock()
		parts[blob.Hash] = data
		o.model.blobs = append(o.model.blobs, blob.Hash)
		o.model.fetched += blob.Size
		return nil
	})
	return parts, err
}
