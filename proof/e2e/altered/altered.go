// Package altered takes part in a run on a server with an altered client, for tests only. It uses the same
// packages as psyche-client, and joins, loads the model, reads data, witnesses, audits and votes in the same
// way. A program changes the trainer, the network or the connection to the host:
//
//	m := altered.Member{Logger: logger, Trainer: slower}
//	m.Flags(flags)
//	…
//	err := m.TakePart(ctx)
package altered

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/learn/train/dummy"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/blob"
	"github.com/psyche-go/psyche/node/client"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/member"
	"github.com/psyche-go/psyche/node/p2pnet"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

// sharedMemory is a member's memory for results and parameters of a small model.
const sharedMemory = 64 << 20

// Member is a member of a run. Flags sets the fields without a comment.
type Member struct {
	Server, RunID, KeyPath, EventsPath, Listen string

	Logger *slog.Logger

	// Trainer changes the trainer of the member with a key.
	Trainer func(made env.Trainer, own identity.ID) (env.Trainer, error)
	// Network and Backend change the network and the connection to the host. They may be nil.
	Network func(env.Network) env.Network
	Backend func(env.Backend) env.Backend
}

// Flags adds the flags of every member.
func (m *Member) Flags(flags *flag.FlagSet) {
	flags.StringVar(&m.Server, "server", "", "the run's server, `HOST:PORT`")
	flags.StringVar(&m.RunID, "run", "", "the run to join")
	flags.StringVar(&m.Listen, "listen", "127.0.0.1", "`ADDRESS` to listen on")
	flags.StringVar(&m.KeyPath, "key", "", "the member's key `FILE`")
	flags.StringVar(&m.EventsPath, "events", "", "event log, a `FILE`")
}

// TakePart joins the run and stays until it is finished, or until ctx ends.
func (m *Member) TakePart(ctx context.Context) (err error) {
	key, err := identity.LoadKeyFile(m.KeyPath)
	if err != nil {
		return err
	}
	events, err := event.Open(m.EventsPath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	node, err := p2p.New(ctx, p2p.Options{Key: key, Listen: []string{"/ip4/" + m.Listen + "/tcp/0", "/ip4/" + m.Listen + "/udp/0/quic-v1"}, Logger: m.Logger})
	if err != nil {
		return err
	}
	store := blob.NewStore(sharedMemory)
	defer func() { err = errors.Join(err, node.Close(), store.Close()) }()
	peers := p2pnet.New(node, store, m.RunID)
	host, err := tcp.Dial(ctx, tcp.Options{Addr: m.Server, RunID: m.RunID, Key: key, Addrs: peers.Addrs(), Logger: m.Logger})
	if err != nil {
		return err
	}
	factory := m.factory(key.ID())
	defer func() { err = errors.Join(err, host.Close(), factory.Close()) }()

	network, backend := env.Network(peers), env.Backend(host)
	if m.Network != nil {
		network = m.Network(network)
	}
	if m.Backend != nil {
		backend = m.Backend(backend)
	}
	joined, err := client.New(client.Options{
		Key: key, RunID: m.RunID, Backend: backend, Network: network, Data: factory.Data(),
		NewTrainer: func(ctx context.Context, from checkpoint.Snapshot, run env.Definition) (env.Trainer, error) {
			if !member.IsDummy(run.Model) {
				if err := torch.Load(torch.Options{Threads: 1}); err != nil {
					return nil, err
				}
			}
			made, err := factory.Build(ctx, from, run)
			if err != nil {
				return nil, err
			}
			return m.Trainer(made, key.ID())
		},
		Initial: initial, FinalWait: -1, Events: events, Logger: m.Logger,
	})
	if err != nil {
		return err
	}
	return joined.Run(ctx)
}

// factory returns the factory for the run's trainer and data.
func (m *Member) factory(own identity.ID) *member.Factory {
	return member.NewFactory(member.Options{
		Train: train.Options{MicroBatch: 1, Threads: 1, RunID: m.RunID, TrainerID: own, Logger: m.Logger},
		OpenData: func(ctx context.Context, run config.Model, of model.Description) (data.Provider, error) {
			return data.New(ctx, run.DataLocations, data.Options{SeqLen: int(run.MaxSeqLen), VocabSize: of.VocabSize, Logger: m.Logger})
		},
	})
}

// initial returns the run's starting model.
func initial(_ context.Context, from coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	switch from.Kind {
	case coordinator.CheckpointDummy:
		return dummy.Model(), nil
	case coordinator.CheckpointLocal:
		return checkpoint.ReadDir(from.Repo)
	}
	return checkpoint.Snapshot{}, fmt.Errorf("the run's initial model has kind %v, want Local or Dummy", from.Kind)
}
