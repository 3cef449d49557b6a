package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/backend/tcp"
	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/client"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/client/p2pnet"
	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/e2e/cheat"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/model"
	"github.com/psyche-go/psyche/p2p"
	"github.com/psyche-go/psyche/p2p/blob"
	"github.com/psyche-go/psyche/torch"
	"github.com/psyche-go/psyche/train"
)

// sharedMemory is what a member keeps of results and parameters of a small model.
const sharedMemory = 64 << 20

// member is one that cheats.
type member struct {
	server, runID       string
	keyPath, eventsPath string
	attack              cheat.Attack
	closed              bool
	pace                time.Duration
	logger              *slog.Logger
	life                context.Context // of the process

	key     identity.Key
	trainer *train.Trainer // nil: none yet

	mu     sync.Mutex
	tokens data.Provider // nil: not opened yet
}

// takePart joins the run and stays until it is finished, or until ctx ends.
func (m *member) takePart(ctx context.Context) (err error) {
	if m.key, err = identity.LoadKeyFile(m.keyPath); err != nil {
		return err
	}
	if err := torch.Load(torch.Options{Threads: 1}); err != nil {
		return err
	}
	events, err := event.Open(m.eventsPath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	node, err := p2p.New(ctx, p2p.Options{Key: m.key, Listen: []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}, Logger: m.logger})
	if err != nil {
		return err
	}
	store := blob.NewStore(sharedMemory)
	defer func() { err = errors.Join(err, node.Close(), store.Close()) }()
	peers := p2pnet.New(node, store, m.runID)
	host, err := tcp.Dial(ctx, tcp.Options{Addr: m.server, RunID: m.runID, Key: m.key, Addrs: peers.Addrs(), Logger: m.logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close(), m.close()) }()

	network := env.Network(peers)
	if m.closed {
		network = cheat.Closed(network)
	}
	joined, err := client.New(client.Options{
		Key: m.key, RunID: m.runID, Backend: host, Network: network, Data: m,
		NewTrainer: m.build, Initial: initial, FinalWait: -1, Events: events, Logger: m.logger,
	})
	if err != nil {
		return err
	}
	return joined.Run(ctx)
}

// initial reads the model that the run begins with.
func initial(_ context.Context, from coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	if from.Kind != coordinator.CheckpointLocal {
		return checkpoint.Snapshot{}, fmt.Errorf("the run begins with a model of kind %v: a test's is Local", from.Kind)
	}
	return checkpoint.ReadDir(from.Repo)
}

// build makes the trainer of the run and opens its data.
func (m *member) build(ctx context.Context, snapshot checkpoint.Snapshot, definition env.Definition) (env.Trainer, error) {
	run, err := config.DecodeModel(definition.Definition)
	if err != nil {
		return nil, err
	}
	file, _ := snapshot.File(checkpoint.ConfigFile)
	description, err := model.Describe(file)
	if err != nil {
		return nil, err
	}
	if err := m.close(); err != nil {
		return nil, err
	}
	tokens, err := data.New(m.life, run.DataLocations, data.Options{SeqLen: int(run.MaxSeqLen), VocabSize: description.VocabSize, Logger: m.logger})
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.tokens = tokens
	m.mu.Unlock()
	if m.trainer, err = train.New(ctx, train.Options{
		Model: snapshot, Optimizer: run.Optimizer, LRSchedule: run.LRSchedule, MicroBatch: 1, Threads: 1,
		RunID: m.runID, TrainerID: m.key.ID(), Audited: definition.Audited, Logger: m.logger,
	}); err != nil {
		return nil, err
	}
	return &cheat.Trainer{Trainer: m.trainer, ID: m.key.ID(), Attack: m.attack, Pace: m.pace}, nil
}

// Batch implements env.DataProvider.
func (m *member) Batch(ctx context.Context, id assign.BatchID) (data.Batch, error) {
	m.mu.Lock()
	tokens := m.tokens
	m.mu.Unlock()
	if tokens == nil {
		return data.Batch{}, errors.New("read data: the model is not loaded yet")
	}
	return tokens.Batch(ctx, id)
}

// close ends what build made.
func (m *member) close() error {
	var errs []error
	if m.trainer != nil {
		errs = append(errs, m.trainer.Close())
		m.trainer = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tokens != nil {
		errs = append(errs, m.tokens.Close())
		m.tokens = nil
	}
	return errors.Join(errs...)
}
