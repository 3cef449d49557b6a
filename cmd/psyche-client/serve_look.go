package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/solana"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
)

// lookTimeout limits one check of a run.
const lookTimeout = 20 * time.Second

// outlook reports whether a run can be joined.
type outlook struct {
	prospect
	reason string // reason why it is not open
	doings doings // progress of an open run
}

// doings are the progress of a run, which distinguishes a waiting run from a training one.
type doings struct {
	step    uint32
	clients int  // members and pending clients
	runs    bool // rounds are in progress
}

// since reports whether a run has progressed: it had a round, or has more clients than ever.
func (d doings) since(before doings) bool {
	return d.step != before.step || d.clients > before.clients
}

// prospect classifies a run.
type prospect uint8

const (
	isOpen     prospect = iota // it can be joined
	isLater                    // not now
	isOver                     // never again
	isStranger                 // its address has a different server
	isHopeless                 // not with this link
)

// lookAt asks the host of a run for its state.
func lookAt(ctx context.Context, r *servedRun) outlook {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	state, admits, err := r.joins.look(ctx, r.joins.RunID, r.key)
	if err == nil {
		r.met = true
		return judge(state, r.key, admits)
	}
	seen := outlook{prospect: isLater, reason: err.Error()}
	_, fault := errors.AsType[*follow.HostFault](err)
	switch {
	case fault, errors.Is(err, follow.ErrGenesis), errors.Is(err, backend.ErrWrongRun) && r.isAnother(ctx):
		seen.prospect = isHopeless
	case errors.Is(err, tcp.ErrUntrusted):
		seen.prospect = isStranger
	}
	return seen
}

// isAnother reports whether the host has a run with this name but a different hash.
func (r *servedRun) isAnother(ctx context.Context) bool {
	host := r.joins.hostFlags
	host.Genesis = ""
	_, _, err := host.look(ctx, r.joins.RunID, nil)
	return err == nil
}

// judge evaluates the state of a run for a client with a key, which the run admits or not.
func judge(s *coordinator.State, key *identity.ID, admits bool) outlook {
	switch s.RunState {
	case coordinator.Finished:
		return outlook{prospect: isOver, reason: "it is finished"}
	case coordinator.Uninitialized:
		return outlook{prospect: isLater, reason: "it has not begun"}
	}
	if s.Closed {
		return outlook{prospect: isOver, reason: "its main authority closed it"}
	}
	if key != nil {
		if !admits {
			return outlook{prospect: isLater, reason: fmt.Sprintf("it admits only keys that its join authority authorized, and %s is not authorized", key)}
		}
		for _, out := range s.Authority.Ejections {
			if out.Client == coordinator.ClientID(*key) && s.Progress.Epoch < out.Until {
				return outlook{prospect: isLater, reason: fmt.Sprintf("it excludes %s until epoch %d: %s", key, out.Until, out.Reason)}
			}
		}
	}
	if s.RunState == coordinator.Paused {
		return outlook{prospect: isLater, reason: "its main authority paused it"}
	}
	runs := s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness
	return outlook{doings: doings{step: s.Progress.Step, clients: len(s.Epoch.Clients) + len(s.Pending), runs: runs}}
}

// look returns the public state of a run, and whether the run admits a key. key may be nil.
func (f *hostFlags) look(ctx context.Context, runID string, key *identity.ID) (*coordinator.State, bool, error) {
	observer, err := identity.Generate(rand.Reader)
	if err != nil {
		return nil, false, err
	}
	var host interface {
		Updates() <-chan backend.Update
		Err() error
		Close() error
	}
	if f.Given() {
		host, err = f.observeChain(ctx, runID, observer)
	} else {
		host, err = f.observeServer(ctx, runID, observer)
	}
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = host.Close() }()
	select {
	case update, shown := <-host.Updates():
		if !shown {
			return nil, false, cmp.Or(host.Err(), context.Cause(ctx), backend.ErrDisconnected)
		}
		admits, err := admitted(ctx, host, update.State, key)
		return update.State, admits, err
	case <-ctx.Done():
		return nil, false, fmt.Errorf("wait for the state of the run: %w", context.Cause(ctx))
	}
}

// admitted reports whether a run admits a key, by its state or by a grant on its chain.
func admitted(ctx context.Context, host any, s *coordinator.State, key *identity.ID) (bool, error) {
	if key == nil || s.Authority.MayJoin(coordinator.ClientID(*key)) {
		return true, nil
	}
	if chain, ok := host.(*solana.Client); ok {
		return chain.Admits(ctx, transaction.PublicKey(*key))
	}
	return false, nil
}

// observeServer connects to a run on a server as an observer.
func (f *hostFlags) observeServer(ctx context.Context, runID string, key identity.Key) (*tcp.Client, error) {
	run, err := tcp.ParseRun(f.Genesis)
	if err != nil {
		return nil, err
	}
	server, err := identity.ParseID(f.ServerKey)
	if err != nil {
		return nil, err
	}
	return tcp.Dial(ctx, tcp.Options{Addr: f.ServerAddr, RunID: runID, Run: run, Key: key, Observe: true, ServerKey: server, MaxElapsed: lookTimeout / 2})
}

// observeChain connects to a run on a chain as an observer.
func (f *hostFlags) observeChain(ctx context.Context, runID string, key identity.Key) (*solana.Client, error) {
	o, err := f.chainOptions(key, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if err := f.Find(ctx, &o, runID); err != nil {
		return nil, err
	}
	o.Observe, o.MaxElapsed = true, lookTimeout
	return solana.Dial(ctx, o)
}
