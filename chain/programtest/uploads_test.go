package programtest

import (
	"github.com/psyche-go/psyche/core/coordinator"
)

// fullUploads makes clients of all ages report uploads to full lists.
func fullUploads(r *pair, seed uint64) error {
	g := newGenerator(seed, 8)
	genesis := coordinator.Genesis{RunID: "uploads", Host: g.ids[0], Config: crowdConfig, Model: crowdModel, Progress: coordinator.Progress{Epoch: 2, Step: 40, DataIndex: 100}}
	if code, err := r.genesis(genesis); code != 0 || err != nil {
		return err
	}
	l := lateRun{generator: g, r: r}
	for range 20 {
		l.loadUploads()
		for range 6 {
			known := append([]coordinator.Recorded{{Step: 39, Digest: clientID(39)}}, r.s.Earlier...)
			report := oneOf(g, known...)
			l.send(l.id(), coordinator.ReportUpload{Step: report.Step, Digest: report.Digest, Place: coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket"}})
		}
	}
	return l.err
}

// loadUploads adds pending clients to the run, and reports of these and of other clients, with few
// different steps and ages.
func (l *lateRun) loadUploads() {
	s := l.r.s.Clone()
	s.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Origin: coordinator.CheckpointHub, Repo: "repo", Revision: "main", Digest: clientID(39), Step: 39}
	s.Earlier, s.Uploads, s.Pending = nil, nil, nil
	for step := uint32(36); step < 39; step++ {
		if !l.rarely(3) {
			s.Earlier = append(s.Earlier, coordinator.Recorded{Step: step, Digest: clientID(int(step))})
		}
	}
	ages := []uint32{0, 20, 21, 21, 1<<32 - 1}
	for _, id := range l.ids[l.IntN(3):] {
		s.Pending = append(s.Pending, coordinator.Client{ID: id, HoldsModel: true, Nonce: l.nonce, ProbationUntil: oneOf(l.generator, ages...)})
	}
	gone := oneOf(l.generator, 2, 9, 100)
	for _, id := range l.shuffled()[:oneOf(l.generator, 3, 4, 4, 4)] {
		if l.rarely(gone) {
			id = strangerID(len(s.Uploads))
		}
		step := 36 + uint32(l.IntN(4))
		s.Uploads = append(s.Uploads, coordinator.Upload{Reporter: id, Step: step, Digest: clientID(int(step)), Since: oneOf(l.generator, ages...), Place: coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket"}})
	}
	if l.err == nil && s.Check() == nil {
		l.err = l.r.load(s)
	}
}

// manyCheckpoints records more checkpoints than a run remembers.
func manyCheckpoints(r *pair) error {
	c := &crowd{r: r, now: 100 * second}
	config, model := crowdConfig, crowdModel
	config.RoundsPerEpoch, model.ColdStartWarmupSteps = 1, 0
	if _, err := r.genesis(coordinator.Genesis{RunID: "many", Host: clientID(0), Config: config, Model: model}); err != nil {
		return err
	}
	for i := range 2 {
		c.must(clientID(i), coordinator.Join{})
	}
	for epoch := range uint32(coordinator.MaxEarlier + 3) {
		c.tick(second, coordinator.WaitingForMembers)
		c.tick(4*second, coordinator.Warmup)
		for i := range 2 {
			c.must(clientID(i), coordinator.Ready{Epoch: epoch})
		}
		c.tick(second, coordinator.RoundTrain)
		for i := range 2 {
			c.must(clientID(i), c.proof(0))
		}
		c.tick(second, coordinator.RoundWitness)
		c.tick(0, coordinator.Cooldown)
		for i := range 2 {
			c.must(clientID(i), coordinator.ReportCheckpoint{Step: r.s.Progress.Step, Digest: clientID(int(epoch))})
		}
		c.tick(second, coordinator.WaitingForMembers)
	}
	if len(r.s.Earlier) != coordinator.MaxEarlier {
		c.fail("%d checkpoints are remembered", len(r.s.Earlier))
	}
	return c.err
}
