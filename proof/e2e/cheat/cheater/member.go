package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/blob"
	"github.com/psyche-go/psyche/node/client"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/member"
	"github.com/psyche-go/psyche/node/p2pnet"
	"github.com/psyche-go/psyche/proof/e2e/cheat"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

// sharedMemory is a member's memory for results and parameters of a small model.
const sharedMemory = 64 << 20

// cheater is a member that cheats.
type cheater struct {
	server, runID       string
	keyPath, eventsPath string
	listen              string // address
	attack              cheat.Attack
	closed              bool
	victim              identity.ID         // member that it accuses; zero: none
	faults              []coordinator.Fault // of the accusations, in turn
	pace                time.Duration
	logger              *slog.Logger

	key identity.Key
}

// takePart joins the run and stays until it is finished, or until ctx ends.
func (c *cheater) takePart(ctx context.Context) (err error) {
	if c.key, err = identity.LoadKeyFile(c.keyPath); err != nil {
		return err
	}
	if err := torch.Load(torch.Options{Threads: 1}); err != nil {
		return err
	}
	events, err := event.Open(c.eventsPath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	node, err := p2p.New(ctx, p2p.Options{Key: c.key, Listen: []string{"/ip4/" + c.listen + "/tcp/0", "/ip4/" + c.listen + "/udp/0/quic-v1"}, Logger: c.logger})
	if err != nil {
		return err
	}
	store := blob.NewStore(sharedMemory)
	defer func() { err = errors.Join(err, node.Close(), store.Close()) }()
	peers := p2pnet.New(node, store, c.runID)
	host, err := tcp.Dial(ctx, tcp.Options{Addr: c.server, RunID: c.runID, Key: c.key, Addrs: peers.Addrs(), Logger: c.logger})
	if err != nil {
		return err
	}
	factory := c.factory()
	defer func() { err = errors.Join(err, host.Close(), factory.Close()) }()

	network := env.Network(peers)
	if c.closed {
		network = cheat.Closed(network)
	}
	backend := env.Backend(host)
	if c.victim != (identity.ID{}) {
		backend = cheat.Slandering(host, c.victim, c.faults...)
	}
	joined, err := client.New(client.Options{
		Key: c.key, RunID: c.runID, Backend: backend, Network: network, Data: factory.Data(),
		NewTrainer: func(ctx context.Context, s checkpoint.Snapshot, run env.Definition) (env.Trainer, error) {
			made, err := factory.Build(ctx, s, run)
			if err != nil {
				return nil, err
			}
			return c.cheats(made)
		},
		Initial: initial, FinalWait: -1, Events: events, Logger: c.logger,
	})
	if err != nil {
		return err
	}
	return joined.Run(ctx)
}

// initial reads the run's starting model.
func initial(_ context.Context, from coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	if from.Kind != coordinator.CheckpointLocal {
		return checkpoint.Snapshot{}, fmt.Errorf("the run's initial model has kind %v, want Local", from.Kind)
	}
	return checkpoint.ReadDir(from.Repo)
}

// factory returns the factory for the run's trainer and data.
func (c *cheater) factory() *member.Factory {
	return member.NewFactory(member.Options{
		Train: train.Options{MicroBatch: 1, Threads: 1, RunID: c.runID, TrainerID: c.key.ID(), Logger: c.logger},
		OpenData: func(ctx context.Context, run config.Model, of model.Description) (data.Provider, error) {
			return data.New(ctx, run.DataLocations, data.Options{SeqLen: int(run.MaxSeqLen), VocabSize: of.VocabSize, Logger: c.logger})
		},
	})
}

// cheats wraps a member's trainer in a cheating one.
func (c *cheater) cheats(made env.Trainer) (env.Trainer, error) {
	honest, ok := made.(*member.Trainer)
	if !ok {
		return nil, fmt.Errorf("unsupported trainer %T: the run must train a model", made)
	}
	trainer, ok := honest.Auditor.(cheat.Honest)
	if !ok {
		return nil, fmt.Errorf("unsupported auditor %T: the run must train a model", honest.Auditor)
	}
	cheats := &cheat.Trainer{Honest: trainer, ID: c.key.ID(), Attack: c.attack, Pace: c.pace}
	if local, ok := trainer.(*train.Trainer); ok {
		cheats.Levels = local.ValueBits()
	}
	return cheats, nil
}
