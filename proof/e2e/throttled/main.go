package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/learn/model"
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

func main() {
	ctx, stop := signals.Context()
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "throttled:", err)
		os.Exit(1)
	}
}

// settings are the flags of a command line.
type settings struct {
	server, runID, keyPath, eventsPath string
	each                               string // path of the file with the time for each sequence
	cheats                             bool
}

// run executes a command line.
func run(ctx context.Context, args []string) error {
	var s settings
	flags := flag.NewFlagSet("throttled", flag.ContinueOnError)
	flags.StringVar(&s.server, "server", "", "the run's server, `HOST:PORT`")
	flags.StringVar(&s.runID, "run", "", "the run to join")
	flags.StringVar(&s.keyPath, "key", "", "the member's key `FILE`")
	flags.StringVar(&s.eventsPath, "events", "", "event log, a `FILE`")
	flags.StringVar(&s.each, "each", "", "`FILE` with the time for each sequence, such as 20ms")
	flags.BoolVar(&s.cheats, "cheat", false, "send results of other tokens; needs a run with audits")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return s.takePart(ctx, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

// takePart joins the run and stays until it is finished, or until ctx ends.
func (s *settings) takePart(ctx context.Context, logger *slog.Logger) (err error) {
	key, err := identity.LoadKeyFile(s.keyPath)
	if err != nil {
		return err
	}
	events, err := event.Open(s.eventsPath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	node, err := p2p.New(ctx, p2p.Options{Key: key, Listen: []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}, Logger: logger})
	if err != nil {
		return err
	}
	store := blob.NewStore(64 << 20)
	defer func() { err = errors.Join(err, node.Close(), store.Close()) }()
	peers := p2pnet.New(node, store, s.runID)
	host, err := tcp.Dial(ctx, tcp.Options{Addr: s.server, RunID: s.runID, Key: key, Addrs: peers.Addrs(), Logger: logger})
	if err != nil {
		return err
	}
	factory := member.NewFactory(member.Options{
		Train: train.Options{RunID: s.runID, TrainerID: key.ID(), Logger: logger},
		OpenData: func(ctx context.Context, run config.Model, of model.Description) (data.Provider, error) {
			return data.New(ctx, run.DataLocations, data.Options{SeqLen: int(run.MaxSeqLen), VocabSize: of.VocabSize, Logger: logger})
		},
	})
	defer func() { err = errors.Join(err, host.Close(), factory.Close()) }()
	joined, err := client.New(client.Options{
		Key: key, RunID: s.runID, Backend: host, Network: peers, Data: factory.Data(),
		NewTrainer: func(ctx context.Context, from checkpoint.Snapshot, run env.Definition) (env.Trainer, error) {
			made, err := factory.Build(ctx, from, run)
			if err != nil {
				return nil, err
			}
			return s.throttle(made), nil
		},
		Initial: initial, FinalWait: -1, Events: events, Logger: logger,
	})
	if err != nil {
		return err
	}
	return joined.Run(ctx)
}

// throttle returns a trainer that takes its time.
func (s *settings) throttle(made env.Trainer) env.Trainer {
	slow := &trainer{Trainer: made, each: s.each}
	if auditor, ok := made.(env.Auditor); ok {
		return &audited{trainer: slow, Auditor: auditor, cheats: s.cheats}
	}
	return slow
}

// initial returns the run's starting model.
func initial(_ context.Context, from coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	if from.Kind != coordinator.CheckpointDummy {
		return checkpoint.Snapshot{}, fmt.Errorf("the run's initial model has kind %v, want Dummy", from.Kind)
	}
	return dummy.Model(), nil
}
