package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/solana"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/cmd/internal/buildinfo"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/wire"
)

// hostFlags select the host of the run: a server, or a chain.
type hostFlags struct {
	ServerAddr string `help:"Address of the run's server, host:port." env:"SERVER_ADDR"`

	ServerTimeout time.Duration `help:"Time limit for the first connection to the server or the chain." default:"30s"`

	ServerKey    string `help:"Required server key, in base58; the server logs it. By default, the client accepts the first key that a server shows, and stores it in --known-servers." placeholder:"KEY" env:"SERVER_KEY"`
	KnownServers string `help:"File with the keys of known servers. Default: psyche/known_servers in the user's configuration folder." placeholder:"FILE" env:"PSYCHE_KNOWN_SERVERS" type:"path"`

	Genesis string `help:"Required hash of the run, as printed by psyche run create and psyche run status." placeholder:"HASH" env:"RUN_GENESIS"`

	programFlags     `embed:"" group:"A run on a chain:"`
	onchain.RunFlags `embed:"" group:"A run on a chain:"`
}

// programFlags select the programs on a chain that receive signed transactions, and the
// authorization for all runs that admits the client.
type programFlags struct {
	ForeignProgram bool   `help:"On a chain: take part even if this version does not know the program. A program can take everything in the account of this key."`
	Authorizer     string `env:"AUTHORIZER" placeholder:"KEY" help:"On a chain: authorized key, in base58, that named this key as its delegate for all runs. Default: the client searches it."`
}

// chainOptions returns the options for the run's chain, without the run.
func (f *hostFlags) chainOptions(key identity.Key, logger *slog.Logger) (solana.Options, error) {
	o, err := f.Options(key, logger)
	if err != nil || f.Authorizer == "" {
		return o, err
	}
	if o.Authorizer, err = transaction.ParsePublicKey(f.Authorizer); err != nil {
		err = fmt.Errorf("--authorizer: %w", err)
	}
	return o, err
}

// checkHost validates the flags.
func (f *hostFlags) checkHost(ctx context.Context) error {
	switch {
	case f.Given() && f.ServerAddr != "":
		return errors.New("--server-addr selects a run on a server, --rpc a run on a chain: give one of them")
	case f.Given():
		_, err := f.chainOptions(identity.Key{}, nil)
		return err
	case f.ServerAddr == "":
		return errors.New("missing flags: --server-addr=HOST:PORT, or --rpc=URL,… for a run on a chain")
	}
	if f.ServerKey != "" {
		if _, err := identity.ParseID(f.ServerKey); err != nil {
			return fmt.Errorf("--server-key: %w", err)
		}
	}
	if _, err := tcp.ParseRun(f.Genesis); err != nil {
		return fmt.Errorf("--genesis: %w", err)
	}
	return checkServerAddr(ctx, f.ServerAddr)
}

// runHost is a connection to the host of a run, with its cleanup.
type runHost struct {
	env.Backend
	key   func() identity.ID // of the run's server; zero on a chain
	run   func() [32]byte    // hash of the run
	ended func() error
}

// reach connects to the run's host. When ctx ends, the attempts end, but not an existing
// connection, because the client uses it to leave the run.
func (f *hostFlags) reach(ctx context.Context, runID string, key identity.Key, addrs []string, events *event.Log, logger *slog.Logger) (runHost, error) {
	if f.Given() {
		return f.reachChain(ctx, runID, key, addrs, events, logger)
	}
	serverKey, knownServers, err := secure.Choose(f.ServerKey, f.KnownServers, func(address string, key identity.ID) {
		logger.Warn("unknown server key; verify it with the operator, or pass --server-key", "server", address, "key", key)
	})
	if err != nil {
		return runHost{}, err
	}
	run, err := tcp.ParseRun(f.Genesis)
	if err != nil {
		return runHost{}, err
	}
	host, err := dial(ctx, tcp.Options{
		Addr: f.ServerAddr, RunID: runID, Run: run, Key: key, Addrs: addrs, Logger: logger, Version: buildinfo.Version(),
		ServerKey: serverKey, KnownServers: knownServers, MaxElapsed: f.ServerTimeout,
	})
	if err != nil {
		return runHost{}, err
	}
	return runHost{Backend: host, key: host.Host, run: host.Run, ended: host.Close}, nil
}

// reachChain connects to a run on a chain.
func (f *hostFlags) reachChain(ctx context.Context, runID string, key identity.Key, addrs []string, events *event.Log, logger *slog.Logger) (runHost, error) {
	o, err := f.chainOptions(key, logger)
	if err != nil {
		return runHost{}, err
	}
	if err := f.findRun(ctx, &o, runID, logger); err != nil {
		return runHost{}, err
	}
	o.Addrs, o.MaxElapsed = addrs, f.ServerTimeout
	chain, err := dialUntil(ctx, func(life context.Context) (*solana.Client, error) { return solana.Dial(life, o) })
	if err != nil {
		return runHost{}, err
	}
	logger.Info("the run is on a chain; this key pays for the client's transactions", "account", o.Run, "program", o.Program, "payer", key.ID())
	paid := &payments{client: chain, events: events, logger: logger, done: make(chan struct{})}
	paid.running.Go(paid.report)
	return runHost{
		Backend: chain, key: func() identity.ID { return identity.ID{} },
		run: func() [32]byte { return wire.ChainRun(o.Program, o.Run) }, ended: paid.close,
	}, nil
}

// leastTransactions is the number of transactions that a joining key should be able to pay for.
const leastTransactions = 200

// findRun finds the run, checks its program, and warns if the key cannot pay for some rounds.
func (f *hostFlags) findRun(ctx context.Context, o *solana.Options, runID string, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, f.ServerTimeout)
	defer cancel()
	if err := f.Find(ctx, o, runID); err != nil {
		return err
	}
	chain, err := admin.Open(*o)
	if err != nil {
		return err
	}
	defer chain.Close()
	if err := f.vouch(ctx, chain, o.Program, logger); err != nil {
		return err
	}
	cost, err := chain.CostToJoin(ctx, o.Program, o.Run)
	if err != nil {
		return err
	}
	rounds := admin.Transactions(leastTransactions)
	cost.Fees, cost.Transactions = cost.Fees+rounds.Fees, cost.Transactions+rounds.Transactions
	return chain.Need(ctx, cost)
}

// vouch checks that a program is the known one before anything is signed for it: a signature lets the
// program take the whole balance of the key's account. The nodes that an invite link names can give
// false answers; see docs/solana.md.
func (f *hostFlags) vouch(ctx context.Context, chain *admin.Chain, at transaction.PublicKey, logger *slog.Logger) error {
	owner, err := chain.Vouch(ctx, at, program.ELF)
	switch {
	case errors.Is(err, admin.ErrForeign) && !f.ForeignProgram:
		return fmt.Errorf("%w, and a program can take everything in the account of your key: ask the run's operator which version it needs, or take part with --foreign-program and keep no more in the account than you can lose", err)
	case errors.Is(err, admin.ErrForeign):
		logger.Warn("this version does not know the program, which can take everything in the account of this key", "program", at, "account", chain.Payer())
		return nil
	case err == nil && owner != (transaction.PublicKey{}):
		logger.Warn("the owner of the program can replace it and take everything in the account of this key: keep no more in it than the run costs", "key", owner, "account", chain.Payer())
	}
	return err
}

// payments records a client's payments.
type payments struct {
	client  *solana.Client
	events  *event.Log
	logger  *slog.Logger
	written event.Paid
	running sync.WaitGroup
	done    chan struct{}
}

// paidEvery is the interval at which payments are recorded. If the process is killed, its payments
// since the last record are not recorded.
const paidEvery = 500 * time.Millisecond

func (p *payments) report() {
	ticker := time.NewTicker(paidEvery)
	defer ticker.Stop()
	for {
		p.write()
		select {
		case <-ticker.C:
		case <-p.done:
			return
		}
	}
}

// write appends an event if there were payments since the newest event.
func (p *payments) write() {
	costs := p.client.Costs()
	now := event.Paid{Transactions: costs.Landed, Lamports: costs.Lamports, Ticks: costs.Ticks, OutOfTurn: costs.OutOfTurn, Rent: costs.Rent}
	if now == p.written {
		return
	}
	p.written = now
	p.events.Note(p.logger, now)
}

// close closes the client, and records its last payments.
func (p *payments) close() error {
	err := p.client.Close()
	close(p.done)
	p.running.Wait()
	p.write()
	costs := p.client.Costs()
	p.logger.Info("paid on the chain", "transactions", costs.Landed, "SOL", admin.SOL(costs.Lamports), "ticks", costs.Ticks, "rent", admin.SOL(costs.Rent))
	return err
}

// dial connects to the run's server.
func dial(ctx context.Context, o tcp.Options) (*tcp.Client, error) {
	host, err := dialUntil(ctx, func(life context.Context) (*tcp.Client, error) { return tcp.Dial(life, o) })
	if err != nil && context.Cause(ctx) != nil {
		err = fmt.Errorf("connect to server %s: %w", o.Addr, err)
	}
	return host, err
}

// closer is a connection for dialUntil.
type closer interface {
	comparable
	Close() error
}

// dialUntil tries to connect to a host until ctx ends. The end of ctx does not end the connection.
func dialUntil[T closer](ctx context.Context, connect func(context.Context) (T, error)) (T, error) {
	var none T
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	connected := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	host, err := connect(life)
	if err == nil && !connected() {
		err = errors.Join(context.Cause(ctx), host.Close())
	}
	if err != nil {
		connected()
		end(err)
		return none, err
	}
	return host, nil
}
