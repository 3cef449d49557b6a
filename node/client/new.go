package client

import (
	"github.com/psyche-go/psyche/base/quota"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/models"
	"github.com/psyche-go/psyche/node/modelsync"
)

// New checks the options and returns a client that has not started anything.
func New(o Options) (*Node, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	log := o.Logger.With("client", o.Key.ID().Short())
	tasks := &env.Tasks{Runtime: o.Runtime}
	if o.Runtime == nil {
		tasks.Runtime = newGoroutines(tasks)
	}
	n := &Node{
		Options: o,
		tasks:   tasks,
		run:     newView(o.Key, o.CompletionTimeout),
		member: membership{Member: core.New(core.Options{
			ID: coordinator.ClientID(o.Key.ID()), Name: o.Name, Folder: o.CheckpointDir != "", AcceptLoss: o.AcceptLoss, Checks: o.CheckRun != nil, FinalWait: o.FinalWait,
		})},
		rounds: roundStates{of: make(map[uint32]*roundState)},
		store:  exchange.NewStore(o.Network.Drop),
		report: &reporter{dir: o.CheckpointDir, events: o.Events, log: log, network: o.Network, backend: o.Backend},
	}
	n.engine = engine{Jobs: &n.member.Jobs, outlook: &n.member.Outlook, tasks: tasks}
	n.engine.signing.folder = o.folder()
	n.engine.reader = &reader{tasks: tasks, jobs: n.engine.Jobs, data: o.Data, log: log, fail: n.fail, batches: make(map[assign.BatchID]*reading)}
	n.actions = &submitter{tasks: tasks, backend: o.Backend, log: log, id: n.run.me, Actions: &n.member.Actions}
	n.gossip = &gossipReader{
		tasks: tasks, network: o.Network, announcements: o.Announcements, cache: n.store.Cache,
		received: make(chan announcement, receivedRoom), waiting: quota.New(maxPushedEach, maxPushedFromAll), misbehaved: o.Misbehaved, log: log,
	}
	n.store.NeededBy(n.rounds.eachBlob)
	n.auditor = newAuditor(n)
	n.models.Models = modelsync.NewModels(n.store, &modelsync.Options{
		Network: o.Network, Tasks: tasks, Folder: o.folder(), Log: log,
		ParameterRequests: o.ParameterRequests, Downloads: o.Downloads, Emit: n.report.emit,
		NewTrainer: o.NewTrainer, Initial: o.Initial, Archive: o.Archive,
	})
	n.fetcher = fetch.New(fetch.Options{
		ID: n.run.me, Tasks: tasks, Blobs: o.Network, Owner: fetched{n.store, n.report, &n.rounds, &n.models.copies.shares}, Log: log, Limit: o.Downloads,
	})
	n.models.copies = intermediates{
		Copies: models.Copies{Folder: o.CheckpointDir != "", Large: n.models.Large},
		tasks:  tasks, jobs: n.engine.Jobs, folder: o.folder(), log: log, save: keep.Folder.SaveIntermediate,
	}
	n.saver = keep.NewSaver(keep.Options{
		Folder: o.folder(), Keep: o.KeepCheckpoints, Saved: o.Saved, MakeRoom: o.MakeRoom, Tasks: tasks, Emit: n.report.emit, Log: log,
		Card: func(s *coordinator.State, step uint32) checkpoint.Card {
			return n.report.ledger.Card(s, n.run.hash, step)
		},
		InPlace: func(digest [32]byte, dir string) {
			if n.run.state.RunState != coordinator.Finished { // after the end of the run, no training needs the memory
				n.models.InFolder(digest, dir)
			}
		},
	})
	n.models.snapshotter = snapshotter{
		network: o.Network, run: &n.run, engine: &n.engine, rounds: &n.rounds,
		models: n.models.Models, copies: &n.models.copies.Copies, saver: n.saver, store: n.store, failed: func(step uint32, err error) { n.step(core.Applied{Step: step, Err: err}) },
	}
	n.models.holds = holdings{n.models.Models, &n.models.copies.Copies, n.saver}
	n.member.Holdings = &n.models.holds
	return n, nil
}
