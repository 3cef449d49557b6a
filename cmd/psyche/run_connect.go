package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/backend/tcp"
	"github.com/psyche-go/psyche/backend/tcp/secure"
	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// connectFlags say which server to talk to, and how to know that it is the right one.
type connectFlags struct {
	ServerAddr   string        `required:"" env:"SERVER_ADDR" placeholder:"HOST:PORT" help:"The run's server."`
	ServerKey    string        `env:"SERVER_KEY" placeholder:"KEY" help:"Key that the server must have, in base58. Without it the key that is seen first is remembered in --known-servers."`
	KnownServers string        `env:"PSYCHE_KNOWN_SERVERS" type:"path" placeholder:"FILE" help:"File that remembers the keys of servers. Default: psyche/known_servers in the user's folder for configuration."`
	Timeout      time.Duration `default:"10s" help:"Give up after this time (${default})."`
}

// options returns how to connect; what concerns trust is told to errs.
func (c connectFlags) options(runID string, key identity.Key, errs io.Writer) (tcp.Options, error) {
	if c.Timeout <= 0 {
		return tcp.Options{}, usagef("--timeout is %v: want more than 0", c.Timeout)
	}
	if c.ServerKey != "" {
		if _, err := identity.ParseID(c.ServerKey); err != nil {
			return tcp.Options{}, usagef("--server-key: %w", err)
		}
	}
	serverKey, known, err := secure.Choose(c.ServerKey, c.KnownServers, func(address string, key identity.ID) {
		_, _ = fmt.Fprintf(errs, "psyche: the server %s is new; its key is %s: check it with its operator\n", address, key)
	})
	return tcp.Options{
		Addr: c.ServerAddr, RunID: runID, Key: key, Observe: true,
		ServerKey: serverKey, KnownServers: known, MaxElapsed: c.Timeout,
	}, err
}

// look returns the newest state of a run. Anybody may look, so the key is one that nobody knows.
func (c connectFlags) look(ctx context.Context, runID string, errs io.Writer) (*coordinator.State, error) {
	key, err := identity.Generate(rand.Reader)
	if err != nil {
		return nil, err
	}
	o, err := c.options(runID, key, errs)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	host, err := tcp.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = host.Close() }()
	update, err := firstUpdate(ctx, host)
	return update.State, err
}

// firstUpdate waits for the state of the run.
func firstUpdate(ctx context.Context, host *tcp.Client) (backend.Update, error) {
	select {
	case update, ok := <-host.Updates():
		if !ok {
			return update, host.Err()
		}
		return update, nil
	case <-ctx.Done():
		return backend.Update{}, fmt.Errorf("wait for the state of the run: %w", context.Cause(ctx))
	}
}

// authorityFlags say who governs a new run beside its main authority.
type authorityFlags struct {
	JoinAuthority string `placeholder:"KEY" help:"Key in base58 that authorizes others to join a permissioned run. Default: the main authority."`
	Permissioned  bool   `help:"Only keys that the join authority authorized may join the run, and their delegates."`
}

// genesis adds the offices to a run's first state.
func (f authorityFlags) genesis(run config.Run, main identity.ID) (func(coordinator.ClientID) (coordinator.State, error), error) {
	join := main
	if f.JoinAuthority != "" {
		var err error
		if join, err = identity.ParseID(f.JoinAuthority); err != nil {
			return nil, usagef("--join-authority: %w", err)
		}
	}
	return func(host coordinator.ClientID) (coordinator.State, error) {
		state, err := run.CoordinatorState(host)
		if main != (identity.ID{}) {
			state.Authority.Main = coordinator.ClientID(main)
		}
		if state.Authority.Join = state.Authority.Main; join != (identity.ID{}) {
			state.Authority.Join = coordinator.ClientID(join)
		}
		state.Authority.Permissioned = f.Permissioned
		return state, err
	}, nil
}

// parseIDs reads keys in base58.
func parseIDs(texts []string) ([]coordinator.ClientID, error) {
	var ids []coordinator.ClientID
	for _, text := range texts {
		id, err := identity.ParseID(text)
		if err != nil {
			return nil, usageError{err}
		}
		ids = append(ids, coordinator.ClientID(id))
	}
	return ids, nil
}

// signFlags say who signs.
type signFlags struct {
	Keypair string `type:"path" placeholder:"FILE" help:"Key file that signs: solana-keygen JSON or 32 raw bytes. Without it the key comes from RAW_IDENTITY_SECRET_KEY."`
}

// key loads the key.
func (f signFlags) key() (identity.Key, error) {
	if f.Keypair != "" {
		return identity.LoadKeyFile(f.Keypair)
	}
	key, found, err := identity.KeyFromEnvironment(os.LookupEnv)
	if err == nil && !found {
		err = fmt.Errorf("no key to sign with: give --keypair, or set %s", identity.SecretKeyVariable)
	}
	return key, err
}

// actFlags are the flags of commands that change a run.
type actFlags struct {
	RunID        string `name:"run-id" required:"" env:"RUN_ID" placeholder:"ID" help:"The run."`
	connectFlags `embed:""`
	signFlags    `embed:""`
}

// submit signs an action, sends it and waits until the server has it on its disk.
func (f actFlags) submit(ctx context.Context, to console, a coordinator.Action) error {
	return f.decide(ctx, to, func(*coordinator.State, coordinator.ClientID) (coordinator.Action, error) { return a, nil })
}

// decide is submit for an action that depends on the state of the run.
func (f actFlags) decide(ctx context.Context, to console, decide func(*coordinator.State, coordinator.ClientID) (coordinator.Action, error)) error {
	key, err := f.key()
	if err != nil {
		return err
	}
	o, err := f.options(f.RunID, key, to.err)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	host, err := tcp.Dial(ctx, o)
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
		if err = host.Submit(ctx, wanted.action); err != nil {
			err = cmp.Or(errors.Unwrap(err), err) // without the name that the action has in Go
		}
	}
	err = wanted.explain(err)
	switch {
	case errors.Is(err, backend.ErrDisconnected):
		return fmt.Errorf("run %s: nobody knows whether it was done, look with psyche run status: %w", f.RunID, err)
	case err != nil:
		return fmt.Errorf("run %s: %w", f.RunID, err)
	}
	return nil
}

// isRefusal reports whether a run's rules or its server said no.
func isRefusal(err error) bool {
	_, ok := errors.AsType[coordinator.Code](err)
	return ok || errors.Is(err, tcp.ErrRefused) || errors.Is(err, backend.ErrWrongRun)
}

// isConnection reports whether there is no server, or not the right one.
func isConnection(err error) bool {
	return errors.Is(err, tcp.ErrUnreachable) || errors.Is(err, tcp.ErrUntrusted)
}
