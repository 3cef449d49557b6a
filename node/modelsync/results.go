package modelsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/event"
)

const (
	requestTimeout = 5 * time.Second // for one request to one peer
	maxAsked       = 8               // peers that receive a request for the counted results

	// Requests for lists of results run at the same time. In addition to requestTimeout, they may
	// take the time to transfer all lists at slowLink, in bytes per second (0.25 Mbit/s), but at
	// most listTime. A silent peer therefore delays the next step by at most both times together.
	listTime = 15 * time.Second
	slowLink = 31_000
)

// errAnswered cancels requests after enough peers have answered.
var errAnswered = errors.New("enough peers have answered")

// errNoBase means that this client holds no earlier model of the run.
var errNoBase = errors.New("this client has no earlier model of the run")

// fromResults starts from an earlier model, which this client holds, and applies the results counted
// since then. It does so only if these have fewer bytes than the wanted model. After it has begun to
// fetch results, every error is ErrReplay.
func (a *Attempt) fromResults(ctx context.Context) (checkpoint.Snapshot, bool, error) {
	snapshot, err := a.replay(ctx)
	if err == nil || errors.Is(err, ErrReplay) || ctx.Err() != nil {
		return snapshot, false, err
	}
	if !errors.Is(err, errNoBase) {
		a.Log.Info("fetching the whole model", "why", err)
	}
	return snapshot, true, err
}

// onDisk returns the newest saved model of the run that is older than the wanted one, or nil: a
// checkpoint or, for the model of a running epoch, an intermediate checkpoint of that epoch.
func (a *Attempt) onDisk() *base {
	folder, wanted := a.Folder, a.checkpoint().Step
	newest, found := folder.NewestBefore(wanted)
	if a.Running {
		if taken, more := folder.Intermediates().NewestBefore(wanted); more && (!found || taken > newest) {
			folder, newest, found = folder.Intermediates(), taken, true
		}
	}
	if !found {
		return nil
	}
	digest, err := folder.Digest(newest)
	if err != nil {
		a.Log.Warn("a saved checkpoint cannot be used", "step", newest, "err", err)
		return nil
	}
	return &base{newest, digest, func(context.Context) (checkpoint.Snapshot, error) { return folder.Read(newest, digest) }}
}

func (a *Attempt) replay(ctx context.Context) (checkpoint.Snapshot, error) {
	from := a.base
	if from == nil {
		from = a.onDisk()
	}
	a.base = nil // so that the earlier model can be removed from memory after use
	if from == nil {
		return checkpoint.Snapshot{}, errNoBase
	}
	ctx, cancel := a.Tasks.WithTimeout(ctx, a.replayTime)
	defer cancel()
	rounds, holders, err := a.counted(ctx, from)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	snapshot, err := from.load(ctx)
	if err != nil {
		return snapshot, fmt.Errorf("the model of step %d cannot be used: %w", from.step, err)
	}
	results, whole := exchange.TotalSize(rounds), sizeOf(snapshot)
	if results >= whole {
		return snapshot, fmt.Errorf("the results since step %d have %d bytes, but the model has only %d", from.step, results, whole)
	}
	a.Log.Info("catching up by results", "from", from.step, "to", a.checkpoint().Step, "bytes", results, "model", whole)
	trainer, err := a.applied(ctx, snapshot, rounds, holders)
	if err == nil {
		snapshot, err = trainer.Snapshot(ctx)
	}
	if err == nil {
		snapshot.Step = a.checkpoint().Step
		err = a.adopt(ctx, snapshot, "results")
	}
	if err != nil { // ErrNoRoom must not end the attempt: obtained checks for ErrReplay first
		return checkpoint.Snapshot{}, fmt.Errorf("%w from step %d to %d, after %d bytes: %w", ErrReplay, from.step, a.checkpoint().Step, a.Model.Fetched, err)
	}
	for i := range rounds { // peers do not send the starting models of later epochs
		if rounds[i].EpochStart == from.step+1 {
			rounds[i].From = from.digest
		}
	}
	a.Trainer, a.Rounds = trainer, rounds
	return snapshot, nil
}

// counted asks peers for the results counted since a model. It returns the rounds that most of them
// list, and the peers that list them.
func (a *Attempt) counted(ctx context.Context, from *base) ([]exchange.AppliedRound, []identity.ID, error) {
	accounts := a.accounts(ctx, a.Peers, a.checkpoint().Step-from.step, func(ctx context.Context, peer identity.ID) (said account, meant bool, err error) {
		said.Rounds, said.answer, err = exchange.AskResults(ctx, a.Network, peer, from.step, a.checkpoint().Step, from.digest)
		return said, true, err
	})
	if len(accounts) == 0 {
		return nil, nil, fmt.Errorf("none of %d members has the results since step %d", min(len(a.Peers), maxAsked), from.step)
	}
	return accounts[0].Rounds, accounts[0].holders, nil
}

// account is one answer of peers about the counted results.
type account struct {
	Replayed
	answer  [32]byte      // hash of the answer
	holders []identity.ID // peers with this answer
	sure    bool          // it is proven right, whichever peer sent it
}

// listsTime returns the time limit for the lists of the given number of rounds from all peers that
// are asked, if each member has a result in each round.
func listsTime(rounds uint32, peers int) time.Duration {
	bytes := uint64(min(peers, maxAsked)) * exchange.ListSize(rounds, peers+1)
	return min(time.Duration(bytes)*time.Second/slowLink, listTime)
}

// accounts asks peers for the counted results and returns the usable answers, the most frequent
// first. It does not wait for late peers once two thirds give the same answer, because rounds
// continue meanwhile.
func (o *Options) accounts(ctx context.Context, peers []identity.ID, rounds uint32, ask func(ctx context.Context, peer identity.ID) (said account, meant bool, err error)) (all []account) {
	ctx, cancel := o.Tasks.WithTimeout(ctx, requestTimeout+listsTime(rounds, len(peers)))
	defer cancel()
	peers = peers[:min(len(peers), maxAsked)]
	var mu sync.Mutex
	_ = o.Tasks.Each(ctx, o.ParameterRequests, len(peers), func(ctx context.Context, i int) error {
		said, meant, err := ask(ctx, peers[i])
		if err != nil {
			o.Log.Debug("ask for counted results", "peer", peers[i].Short(), "err", err)
		}
		if err != nil || !meant {
			return nil // other peers may answer
		}
		mu.Lock()
		defer mu.Unlock()
		known := slices.IndexFunc(all, func(other account) bool { return other.answer == said.answer })
		if known < 0 {
			known, all = len(all), append(all, said)
		}
		same := &all[known]
		if same.holders = append(same.holders, peers[i]); said.sure || 3*len(same.holders) >= 2*len(peers) {
			return errAnswered
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b account) int { return len(b.holders) - len(a.holders) })
	return all
}

// applied advances the trainer from a model to the one after the rounds.
func (a *Attempt) applied(ctx context.Context, from checkpoint.Snapshot, rounds []exchange.AppliedRound, holders []identity.ID) (env.Trainer, error) {
	trainer, err := a.loaded(ctx, from)
	if err != nil {
		return nil, err
	}
	payloads, err := a.payloads(ctx, trainer, rounds, holders)
	if err != nil {
		return nil, err
	}
	for i, round := range rounds {
		if i == 0 || round.EpochStart != rounds[i-1].EpochStart || round.ColdSteps != rounds[i-1].ColdSteps {
			if err := trainer.SetColdStart(ctx, round.EpochStart, round.ColdSteps); err != nil {
				return nil, err
			}
		}
		count := len(round.Results)
		if err := trainer.Apply(ctx, round.Step, payloads[:count:count], round.Votes(), false); err != nil {
			return nil, err
		}
		payloads = payloads[count:]
	}
	return trainer, nil
}

// payloads fetches and verifies the results of all rounds, in their order.
func (a *Attempt) payloads(ctx context.Context, trainer env.Trainer, rounds []exchange.AppliedRound, holders []identity.ID) ([][]byte, error) {
	type wanted struct {
		step uint32
		exchange.AppliedResult
	}
	var all []wanted
	last := uint32(0)
	limit := uint64(trainer.MaxResultSize())
	for _, round := range rounds {
		for _, r := range round.Results {
			if uint64(r.Size) > limit {
				return nil, fmt.Errorf("step %d: result of %d bytes, want at most %d", round.Step, r.Size, limit)
			}
			all = append(all, wanted{round.Step, r})
		}
		last = round.Step
	}
	payloads := make([][]byte, len(all))
	here := a.progress(event.TransferResults, last, exchange.TotalSize(rounds))
	var mu sync.Mutex
	err := a.Tasks.Each(ctx, a.Downloads, len(all), func(ctx context.Context, i int) error {
		w := all[i]
		payload, err := a.Network.Fetch(ctx, w.Commitment, uint64(w.Size), rotated(holders, i))
		if err != nil {
			return fmt.Errorf("step %d, batch %v: %w", w.step, w.Batch, err)
		}
		mu.Lock()
		a.results = append(a.results, w.Commitment)
		a.Model.Fetched += uint64(len(payload))
		mu.Unlock()
		payloads[i] = payload
		here.add(uint64(len(payload)))
		if err := trainer.Verify(payload, w.step, w.Batch, w.Owner); err != nil {
			return fmt.Errorf("step %d, batch %v: %w", w.step, w.Batch, err)
		}
		return nil
	})
	return payloads, err
}
