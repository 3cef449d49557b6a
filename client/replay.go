package client

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/identity"
)

// replayShare is the share of Warmup that catching up may take: what is left of it has to
// be enough for the whole model.
const replayShare = 3

var (
	// errNoBase says that no earlier model of the run is held here.
	errNoBase = errors.New("no earlier model of the run is held here")
	// errReplay says that the results which peers named did not lead to the run's model.
	errReplay = errors.New("catching up by results failed")
)

// base is an earlier model of the run from which the wanted one can be reached.
type base struct {
	step   uint32
	digest [32]byte
	load   func() (checkpoint.Snapshot, error)
}

// remember keeps a round for members that are away. Its results are shared already.
func (n *Node) remember(l *ledger, o outcome, r *replica) {
	round := appliedRound{step: l.round.Step, epochStart: l.epochStart, coldSteps: r.coldSteps, from: r.from}
	for i, c := range o.counted {
		round.results = append(round.results, appliedResult{c, l.find(c.batch).owner, uint32(len(o.payloads[i]))})
	}
	n.dropBlobs(n.past.push(round))
}

// forgetResults drops what is kept for members that are away, and keeps at most limit
// bytes from now on.
func (n *Node) forgetResults(limit uint64) { n.dropBlobs(n.past.reset(limit)) }

// adoptResults takes over what the client caught up by, so that others can do the same.
func (n *Node) adoptResults(rounds []appliedRound) {
	for _, round := range rounds {
		n.dropBlobs(n.past.push(round))
	}
}

// baseIn returns the newest of the models held in memory that is older than a step.
func baseIn(shares []*heldModel, before uint32) *base {
	var newest *heldModel
	for _, m := range shares {
		if m.step < before && (newest == nil || m.step > newest.step) {
			newest = m
		}
	}
	if newest == nil {
		return nil
	}
	snapshot := newest.snapshot
	return &base{newest.step, newest.digest, func() (checkpoint.Snapshot, error) { return snapshot, nil }}
}

// baseOnDisk returns the newest saved checkpoint of the run that is older than the wanted
// one, or nil.
func (o *obtaining) baseOnDisk() *base {
	if o.CheckpointDir == "" {
		return nil
	}
	entries, err := os.ReadDir(o.CheckpointDir)
	if err != nil {
		return nil
	}
	found, newest := false, uint32(0)
	for _, entry := range entries {
		step, ok := stepOf(entry.Name(), checkpointPrefix(o.RunID))
		if ok && uint32(step) < o.checkpoint.Step && (!found || uint32(step) > newest) {
			found, newest = true, uint32(step)
		}
	}
	if !found {
		return nil
	}
	digest, err := o.digestOf(newest)
	if err != nil {
		o.log.Warn("a saved checkpoint cannot be used", "step", newest, "err", err)
		return nil
	}
	return &base{newest, digest, func() (checkpoint.Snapshot, error) { return o.readBase(newest, digest) }}
}

// digestOf returns the digest that was noted beside a saved checkpoint.
func (o *obtaining) digestOf(step uint32) (digest [32]byte, err error) {
	dir := o.folderOf(step)
	facts, err := checkpoint.ReadFacts(dir)
	if err != nil {
		return digest, err
	}
	noted, err := hex.DecodeString(facts.Digest)
	if err != nil || len(noted) != len(digest) || facts.RunID != o.RunID || facts.Step != step {
		return digest, fmt.Errorf("%w: %s is not what %s says", checkpoint.ErrInvalid, dir, checkpoint.FactsFile)
	}
	return [32]byte(noted), nil
}

// readBase reads a saved checkpoint and compares it with what was noted beside it.
func (o *obtaining) readBase(step uint32, digest [32]byte) (checkpoint.Snapshot, error) {
	dir := o.folderOf(step)
	snapshot, err := checkpoint.ReadDir(dir)
	if err != nil {
		return snapshot, err
	}
	if snapshot.Step != step || snapshot.Manifest().Digest() != digest {
		return snapshot, fmt.Errorf("%w: %s is not what %s says", checkpoint.ErrInvalid, dir, checkpoint.FactsFile)
	}
	return snapshot, nil
}

// fromResults catches up: it applies the results that the run counted since an earlier
// model that is held here, if these are fewer bytes than the model. An error is errReplay
// when something was fetched for it.
func (o *obtaining) fromResults(ctx context.Context) (checkpoint.Snapshot, error) {
	from := o.base
	if from == nil {
		from = o.baseOnDisk()
	}
	o.base = nil // not to be kept longer than it is used
	if from == nil {
		return checkpoint.Snapshot{}, errNoBase
	}
	ctx, cancel := o.Runtime.WithTimeout(ctx, o.replayTime)
	defer cancel()
	rounds, holders, err := o.askForResults(ctx, from)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	snapshot, err := from.load()
	if err != nil {
		return snapshot, fmt.Errorf("the model of step %d cannot be used: %w", from.step, err)
	}
	results, whole := totalSize(rounds), modelSize(snapshot)
	if results >= whole {
		return snapshot, fmt.Errorf("the results since step %d have %d bytes, the model %d", from.step, results, whole)
	}
	o.log.Info("catching up by results", "from", from.step, "to", o.checkpoint.Step, "bytes", results, "model", whole)
	trainer, err := o.replay(ctx, snapshot, rounds, holders)
	if err == nil {
		snapshot, err = trainer.Snapshot(ctx)
	}
	if err == nil {
		snapshot.Step = o.checkpoint.Step
		err = o.adopt(snapshot, "results")
	}
	if err != nil { // ErrNoRoom too is no reason to give up: obtained looks at errReplay first
		return checkpoint.Snapshot{}, fmt.Errorf("%w from step %d to %d, after %d bytes: %w", errReplay, from.step, o.checkpoint.Step, o.model.fetched, err)
	}
	for i := range rounds { // of the epochs behind nobody said what they began with
		if rounds[i].epochStart == from.step+1 {
			rounds[i].from = from.digest
		}
	}
	o.trainer, o.rounds = trainer, rounds
	return snapshot, nil
}

// askForResults asks peers what was counted since a model, and returns what most of them
// say, and who does.
func (o *obtaining) askForResults(ctx context.Context, from *base) ([]appliedRound, []identity.ID, error) {
	ctx, cancel := o.Runtime.WithTimeout(ctx, requestTimeout)
	defer cancel()
	peers := o.peers[:min(len(o.peers), maxHolders)]
	until := o.checkpoint.Step
	request := encodeResultsRequest(from.step, until, from.digest)
	var mu sync.Mutex
	said := make([][32]byte, len(peers)) // hash of the valid answer; zero: none
	lists := make(map[[32]byte][]appliedRound)
	_ = o.Runtime.Each(ctx, o.ParameterRequests, len(peers), func(ctx context.Context, i int) error {
		response, err := o.Network.Request(ctx, peers[i], resultsProtocol, request, maxResultsResponse)
		var rounds []appliedRound
		if err == nil {
			rounds, err = decodeApplied(response, from.step, until)
		}
		if err != nil {
			o.log.Debug("ask for counted results", "peer", peers[i].Short(), "err", err)
			return nil // others are asked
		}
		mu.Lock()
		defer mu.Unlock()
		said[i] = blake3Sum(response)
		lists[said[i]] = rounds
		return nil
	})
	var holders []identity.ID
	var chosen [32]byte
	for _, hash := range said {
		if hash == ([32]byte{}) {
			continue
		}
		var same []identity.ID
		for i := range peers {
			if said[i] == hash {
				same = append(same, peers[i])
			}
		}
		if len(same) > len(holders) {
			chosen, holders = hash, same
		}
	}
	if len(holders) == 0 {
		return nil, nil, fmt.Errorf("%d members were asked for the results since step %d: none has them", len(peers), from.step)
	}
	return lists[chosen], holders, nil
}

// replay brings the trainer from a model to the one after the rounds.
func (o *obtaining) replay(ctx context.Context, from checkpoint.Snapshot, rounds []appliedRound, holders []identity.ID) (trainer Trainer, err error) {
	if trainer = o.trainer; trainer != nil {
		err = trainer.Load(ctx, from)
	} else {
		trainer, err = o.NewTrainer(ctx, from, o.definition)
	}
	if err != nil {
		return nil, err
	}
	payloads, err := o.fetchPayloads(ctx, trainer, rounds, holders)
	if err != nil {
		return nil, err
	}
	for i, round := range rounds {
		if i == 0 || round.epochStart != rounds[i-1].epochStart || round.coldSteps != rounds[i-1].coldSteps {
			if err := trainer.SetColdStart(ctx, round.epochStart, round.coldSteps); err != nil {
				return nil, err
			}
		}
		count := len(round.results)
		if err := trainer.Apply(ctx, round.step, payloads[:count:count], false); err != nil {
			return nil, err
		}
		payloads = payloads[count:]
	}
	return trainer, nil
}

// fetchPayloads fetches and verifies the results of all rounds, in their order.
func (o *obtaining) fetchPayloads(ctx context.Context, trainer Trainer, rounds []appliedRound, holders []identity.ID) ([][]byte, error) {
	type wanted struct {
		step uint32
		appliedResult
	}
	var all []wanted
	limit := uint64(trainer.MaxResultSize())
	for _, round := range rounds {
		for _, r := range round.results {
			if uint64(r.size) > limit {
				return nil, fmt.Errorf("step %d: result of %d bytes, at most %d are possible", round.step, r.size, limit)
			}
			all = append(all, wanted{round.step, r})
		}
	}
	payloads := make([][]byte, len(all))
	var mu sync.Mutex
	err := o.Runtime.Each(ctx, o.Downloads, len(all), func(ctx context.Context, i int) error {
		w, first := all[i], i%len(holders)
		order := slices.Concat(holders[first:], holders[:first])
		payload, err := o.Network.Fetch(ctx, w.commitment, uint64(w.size), order)
		if err != nil {
			return fmt.Errorf("step %d, batch %v: %w", w.step, w.batch, err)
		}
		mu.Lock()
		o.results = append(o.results, w.commitment)
		o.model.fetched += uint64(len(payload))
		mu.Unlock()
		payloads[i] = payload
		if err := trainer.Verify(payload, w.step, w.batch, w.owner); err != nil {
			return fmt.Errorf("step %d, batch %v: %w", w.step, w.batch, err)
		}
		return nil
	})
	return payloads, err
}

// modelSize returns the bytes of all parts of a model.
func modelSize(s checkpoint.Snapshot) (size uint64) {
	for _, file := range s.Files {
		size += uint64(len(file.Data))
	}
	for _, tensor := range s.Tensors {
		size += uint64(len(tensor.Data))
	}
	return size
}
