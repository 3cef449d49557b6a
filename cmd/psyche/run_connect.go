package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/follow"
)

// serverFlags select a server and the way to authenticate it.
type serverFlags struct {
	ServerAddr   string         `env:"SERVER_ADDR" placeholder:"HOST:PORT" help:"Address of the run's server."`
	ServerKey    string         `env:"SERVER_KEY" placeholder:"KEY" help:"Required server key, in base58. By default, the command accepts the first key that a server shows, and stores it in --known-servers."`
	KnownServers string         `env:"PSYCHE_KNOWN_SERVERS" type:"path" placeholder:"FILE" help:"File with the keys of known servers. Default: psyche/known_servers in the user's configuration folder."`
	Timeout      *time.Duration `placeholder:"TIME" help:"Time limit. Default: 10s, or 5m on a chain."`
}

// connectFlags select a run of a server.
type connectFlags struct {
	serverFlags `embed:""`
	Genesis     string `env:"RUN_GENESIS" placeholder:"HASH" help:"Required hash of the run, as printed by psyche run create and psyche run status."`
}

// Default time limits of commands without --timeout.
const (
	serverTimeout = 10 * time.Second
	chainTimeout  = 5 * time.Minute
)

// within limits a command to --timeout, or to standard if the flag is not set.
func (f serverFlags) within(ctx context.Context, standard time.Duration) (context.Context, context.CancelFunc) {
	if f.Timeout != nil {
		standard = *f.Timeout
	}
	return context.WithTimeout(ctx, standard)
}

// checkTimeout rejects a timeout that is not positive.
func (f serverFlags) checkTimeout() error {
	if f.Timeout != nil && *f.Timeout <= 0 {
		return usagef("--timeout is %v: want more than 0", *f.Timeout)
	}
	return nil
}

// options returns the options for the connection to a run. It writes messages about trust to errs.
func (c connectFlags) options(runID string, key identity.Key, errs io.Writer) (tcp.Options, error) {
	run, err := tcp.ParseRun(c.Genesis)
	if err != nil {
		return tcp.Options{}, usagef("--genesis: %w", err)
	}
	o, err := c.serverFlags.options(key, errs)
	o.RunID, o.Run = runID, run
	return o, err
}

// options returns the options for the connection to the server. It writes messages about trust to
// errs.
func (f serverFlags) options(key identity.Key, errs io.Writer) (tcp.Options, error) {
	if err := f.checkTimeout(); err != nil {
		return tcp.Options{}, err
	}
	if f.ServerAddr == "" {
		return tcp.Options{}, usagef("missing flags: --server-addr=HOST:PORT")
	}
	if _, _, err := net.SplitHostPort(f.ServerAddr); err != nil {
		return tcp.Options{}, usagef("--server-addr %q: want HOST:PORT: %w", f.ServerAddr, err)
	}
	if f.ServerKey != "" {
		if _, err := identity.ParseID(f.ServerKey); err != nil {
			return tcp.Options{}, usagef("--server-key: %w", err)
		}
	}
	serverKey, known, err := secure.Choose(f.ServerKey, f.KnownServers, func(address string, key identity.ID) {
		_, _ = fmt.Fprintf(errs, "psyche: server %s has the unknown key %s: verify it with the operator\n", address, key)
	})
	o := tcp.Options{
		Addr: f.ServerAddr, Key: key, Observe: true,
		ServerKey: serverKey, KnownServers: known, MaxElapsed: serverTimeout,
	}
	if f.Timeout != nil {
		o.MaxElapsed = *f.Timeout
	}
	return o, err
}

// authorityFlags set the authorities of a new run other than its main authority.
type authorityFlags struct {
	JoinAuthority string `placeholder:"KEY" help:"Key, in base58, that authorizes other keys to join a permissioned run. Implies --permissioned. Default: the main authority."`
	Permissioned  bool   `help:"Admit only keys that the join authority authorized, and their delegates."`
}

// permissioned reports whether only authorized keys may join, which a join authority implies.
func (f authorityFlags) permissioned() bool { return f.Permissioned || f.JoinAuthority != "" }

// join returns the key of --join-authority; zero if the flag is not set.
func (f authorityFlags) join() (identity.ID, error) {
	if f.JoinAuthority == "" {
		return identity.ID{}, nil
	}
	id, err := identity.ParseID(f.JoinAuthority)
	if err != nil {
		return id, usagef("--join-authority: %w", err)
	}
	return id, nil
}

// genesis adds the authorities to a run's first state.
func (f authorityFlags) genesis(run config.Run, main identity.ID) (func(coordinator.ClientID) (coordinator.State, error), error) {
	join, err := f.join()
	if err != nil {
		return nil, err
	}
	if join == (identity.ID{}) {
		join = main
	}
	return func(host coordinator.ClientID) (coordinator.State, error) {
		state, err := run.CoordinatorState(host)
		if main != (identity.ID{}) {
			state.Authority.Main = coordinator.ClientID(main)
		}
		if state.Authority.Join = state.Authority.Main; join != (identity.ID{}) {
			state.Authority.Join = coordinator.ClientID(join)
		}
		state.Authority.Permissioned = f.permissioned()
		return state, err
	}, nil
}

// parseIDs parses base58 keys.
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

// signFlags select the signing key.
type signFlags struct {
	Keypair string `aliases:"wallet-private-key-path" env:"WALLET_PRIVATE_KEY_PATH" type:"path" placeholder:"FILE" help:"Key file for signing: solana-keygen JSON or 32 raw bytes. Default: RAW_IDENTITY_SECRET_KEY (hex); on a chain also RAW_WALLET_PRIVATE_KEY (base58 or JSON), or the file in WALLET_PATH; for a run that its server governs, else the server's host-key.json here, one folder below, or in the folder of psyche host."`
}

// key loads the key. On a chain, this key also pays.
func (f signFlags) key(onChain bool) (identity.Key, error) {
	if f.Keypair != "" {
		return identity.LoadKeyFile(f.Keypair)
	}
	find, variables := identity.KeyFromEnvironment, identity.SecretKeyVariable
	if onChain {
		find, variables = identity.WalletFromEnvironment, strings.Join(identity.WalletVariables(), ", ")
	}
	key, found, err := find(os.LookupEnv)
	if err == nil && !found {
		err = fmt.Errorf("%w: give --keypair, or set %s", errNoKey, variables)
	}
	return key, err
}

// errNoKey means that neither a flag nor the environment names a key.
var errNoKey = errors.New("no signing key")

// isRefusal reports whether a run's rules or its server refused.
func isRefusal(err error) bool {
	_, ok := errors.AsType[coordinator.Code](err)
	return ok || errors.Is(err, tcp.ErrRefused) || errors.Is(err, backend.ErrWrongRun) || onchain.IsRefusal(err)
}

// isConnection reports whether the server is unreachable, or not the expected one.
func isConnection(err error) bool {
	return errors.Is(err, tcp.ErrUnreachable) || errors.Is(err, follow.ErrGenesis) || errors.Is(err, tcp.ErrUntrusted) || onchain.IsConnection(err)
}
