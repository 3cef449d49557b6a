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
	"github.com/psyche-go/psyche/node/supervisor"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
)

// lookTimeout limits one check of a run.
const lookTimeout = 20 * time.Second

// lookAt asks the host of a run for its state.
func (r *servedRun) lookAt(ctx context.Context) supervisor.Outlook {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	state, admits, err := r.joins.look(ctx, r.joins.RunID, r.key, r.installed.version())
	if err == nil {
		return supervisor.Judge(state, r.key, admits)
	}
	seen := supervisor.Outlook{Prospect: supervisor.Later, Reason: err.Error()}
	_, fault := errors.AsType[*follow.HostFault](err)
	switch {
	case fault, errors.Is(err, follow.ErrGenesis), errors.Is(err, backend.ErrWrongRun) && r.isAnother(ctx):
		seen.Prospect = supervisor.Hopeless
	case errors.Is(err, tcp.ErrUntrusted):
		seen.Prospect = supervisor.OtherServer
	}
	return seen
}

// isAnother reports whether the host has a run with this name but a different hash.
func (r *servedRun) isAnother(ctx context.Context) bool {
	host := r.joins.hostFlags
	host.Genesis = ""
	_, _, err := host.look(ctx, r.joins.RunID, nil, "")
	return err == nil
}

// look returns the public state of a run, and whether the run admits a key. key may be nil. It returns
// release.ErrOutdated if the run's server requires a newer version; an empty version is not checked.
func (f *hostFlags) look(ctx context.Context, runID string, key *identity.ID, version string) (*coordinator.State, bool, error) {
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
		host, err = f.observeServer(ctx, runID, observer, version)
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
func (f *hostFlags) observeServer(ctx context.Context, runID string, key identity.Key, version string) (*tcp.Client, error) {
	run, err := tcp.ParseRun(f.Genesis)
	if err != nil {
		return nil, err
	}
	server, err := identity.ParseID(f.ServerKey)
	if err != nil {
		return nil, err
	}
	return tcp.Dial(ctx, tcp.Options{Addr: f.ServerAddr, RunID: runID, Run: run, Key: key, Observe: true, Version: version, ServerKey: server, MaxElapsed: lookTimeout / 2})
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
