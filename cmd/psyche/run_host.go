package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/lmittmann/tint"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/solana"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend"
)

// hostFlags select the host of a run: a server, or a chain.
type hostFlags struct {
	connectFlags     `embed:"" group:"A run on a server:"`
	onchain.RunFlags `embed:"" group:"A run on a chain:"`
}

// onChain reports whether the run is on a chain. It returns an error for flags of both kinds.
func (f *hostFlags) onChain() (bool, error) {
	switch {
	case f.Given() && f.ServerAddr != "":
		return false, usagef("--server-addr selects a run on a server, --rpc a run on a chain: give one of them")
	case !f.Given() && f.ServerAddr == "":
		return false, usagef("missing flags: --server-addr=HOST:PORT, or --rpc=URL,… for a run on a chain")
	}
	return f.Given(), f.checkTimeout()
}

// chain returns the options for the run's chain, except the run.
func (f *hostFlags) chain(key identity.Key, errs io.Writer) (solana.Options, error) {
	o, err := f.Options(key, warnings(errs))
	if errors.Is(err, onchain.ErrFlags) {
		err = usageError{err}
	}
	o.Observe = true
	return o, err
}

// warnings returns a logger for warnings.
func warnings(errs io.Writer) *slog.Logger {
	return slog.New(tint.NewTextHandler(errs, &tint.Options{Level: slog.LevelWarn, NoColor: true}))
}

// runHost is the host of a run: a server or a chain.
type runHost interface {
	Updates() <-chan backend.Update
	Submit(ctx context.Context, a coordinator.Action) error
	Err() error
	Close() error
}

// dial connects to the host of a run.
func (f *hostFlags) dial(ctx context.Context, runID string, key identity.Key, errs io.Writer) (runHost, error) {
	return f.dialLogged(ctx, runID, key, nil, errs)
}

// dialLogged is like dial, for long connections. Without a logger, warnings of a chain go to errs, and
// warnings of a server are dropped.
func (f *hostFlags) dialLogged(ctx context.Context, runID string, key identity.Key, logger *slog.Logger, errs io.Writer) (runHost, error) {
	isChain, err := f.onChain()
	if err != nil {
		return nil, err
	}
	if isChain {
		o, err := f.chain(key, errs)
		if err != nil {
			return nil, err
		}
		if logger != nil {
			o.Logger = logger
		}
		if err := f.Find(ctx, &o, runID); err != nil {
			return nil, err
		}
		return solana.Dial(ctx, o)
	}
	o, err := f.options(runID, key, errs)
	if err != nil {
		return nil, err
	}
	o.Logger = logger
	return tcp.Dial(ctx, o)
}

// bound limits a command to --timeout.
func (f *hostFlags) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.Given() {
		return f.within(ctx, chainTimeout)
	}
	return f.within(ctx, serverTimeout)
}

// look returns the newest state of a run.
func (f *hostFlags) look(ctx context.Context, runID string, errs io.Writer) (*coordinator.State, error) {
	seen, err := f.lookAt(ctx, runID, errs)
	return seen.State, err
}

// lookAt returns the newest update of a run's host. It uses a random key, because every key may read.
func (f *hostFlags) lookAt(ctx context.Context, runID string, errs io.Writer) (backend.Update, error) {
	key, err := identity.Generate(rand.Reader)
	if err != nil {
		return backend.Update{}, err
	}
	ctx, cancel := f.bound(ctx)
	defer cancel()
	host, err := f.dial(ctx, runID, key, errs)
	if err != nil {
		return backend.Update{}, err
	}
	defer func() { _ = host.Close() }()
	return firstUpdate(ctx, host)
}

// firstUpdate waits for the first state of the run.
func firstUpdate(ctx context.Context, host runHost) (backend.Update, error) {
	select {
	case update, ok := <-host.Updates():
		if !ok {
			return update, firstOf(host.Err(), context.Cause(ctx), backend.ErrDisconnected)
		}
		return update, nil
	case <-ctx.Done():
		return backend.Update{}, fmt.Errorf("wait for the state of the run: %w", context.Cause(ctx))
	}
}

// actFlags are the flags of commands that change a run.
type actFlags struct {
	RunID      string `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"Name of the run."`
	hostFlags  `embed:""`
	signFlags  `embed:""`
	Commitment string `enum:"confirmed,finalized" default:"finalized" help:"On a chain: commitment level to wait for; finalized takes about 13 s (${default})."`
}

// submit signs an action, sends it and waits until the run's host has durably accepted it.
func (f actFlags) submit(ctx context.Context, to console, a coordinator.Action) error {
	return f.decide(ctx, to, func(*coordinator.State, coordinator.ClientID) (coordinator.Action, error) { return a, nil })
}

// decide is like submit, for an action that depends on the state of the run.
func (f actFlags) decide(ctx context.Context, to console, decide func(*coordinator.State, coordinator.ClientID) (coordinator.Action, error)) error {
	key, err := f.key(f.Given())
	if errors.Is(err, errNoKey) && !f.Given() {
		key, err = f.authorityKey(ctx, to, err)
	}
	if err != nil {
		return err
	}
	ctx, cancel := f.bound(ctx)
	defer cancel()
	host, err := f.dial(ctx, f.RunID, key, to.err)
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }()
	wanted := asked{runID: f.RunID, from: coordinator.ClientID(key.ID())}
	update, err := firstUpdate(ctx, host)
	if err == nil {
		wanted.state = update.State
		wanted.action, err = decide(update.State, wanted.from)
	}
	if err == nil {
		err = f.send(ctx, to, host, wanted)
	}
	err = wanted.explain(err)
	switch {
	case errors.Is(err, backend.ErrDisconnected):
		return fmt.Errorf("run %s: unknown outcome, check with psyche run status: %w", f.RunID, err)
	case err != nil:
		return fmt.Errorf("run %s: %w", f.RunID, err)
	}
	return nil
}

// send submits an action. On a chain it also prints the cost, and waits until the action is final.
func (f actFlags) send(ctx context.Context, to console, host runHost, wanted asked) error {
	c, paid := host.(*solana.Client)
	if paid {
		if err := f.sayCost(ctx, to, wanted); err != nil {
			return err
		}
	}
	if err := host.Submit(ctx, wanted.action); err != nil {
		return cmp.Or(errors.Unwrap(err), err) // without the action's Go name
	}
	if !paid {
		return nil
	}
	_, pauses := wanted.action.(coordinator.SetPaused)
	if alone := len(wanted.state.Pending)+len(wanted.state.Epoch.Clients) == 0; pauses && alone {
		if err := tickAway(ctx, to, c); err != nil { // no client is present to tick
			return err
		}
	}
	return f.awaitFinal(ctx, to, c)
}
