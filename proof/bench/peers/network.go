package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/psyche-go/psyche/proof/testbed"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

func (l link) process() testbed.Link {
	return testbed.Link{Delay: time.Duration(l.Delay), Rate: 1_000_000 * l.Mbits, LossPerMille: l.Loss}
}

// settings returns the text of a system's state.toml for a run of one epoch, with the learning
// rates of the whole run.
func (b *bench) settings(s system, exchanges int) ([]byte, error) {
	state, err := os.ReadFile(s.State)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	keys := map[string]any{
		"config.total_steps":                       exchanges,
		"config.rounds_per_epoch":                  exchanges,
		"model.LLM.lr_schedule.Cosine.total_steps": s.Exchanges,
		"model.LLM.checkpoint.Local.path":          b.model,
	}
	maps.Copy(keys, s.Set)
	return testbed.Override(state, keys)
}

func (b *bench) state(s system, exchanges int) (config.Run, error) {
	text, err := b.settings(s, exchanges)
	if err != nil {
		return config.Run{}, err
	}
	return config.ParseState(s.State, text)
}

// newOwn creates the network of a Psyche run. The last place is for the server.
func (b *bench) newOwn(s system, dir string, places []testbed.Place, exchanges int) (*testbed.Network, error) {
	state, err := b.settings(s, exchanges)
	if err != nil {
		return nil, err
	}
	n := &testbed.Network{Bin: b.bin, Dir: dir, RunID: runID}
	if err := n.NewServer(places[members], state); err != nil {
		return nil, err
	}
	for _, place := range places[:members] {
		if _, err := n.NewMember(place, "--threads", "1", "--micro-batch-size", strconv.Itoa(microBatch)); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// ownRun runs a Psyche system for the given number of rounds.
func (b *bench) ownRun(ctx context.Context, s system, places []testbed.Place, exchanges int) (m measurement, err error) {
	dir, err := os.MkdirTemp(b.out, "own-")
	if err != nil {
		return m, err
	}
	n, err := b.newOwn(s, dir, places, exchanges)
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := watchSent(ctx, places[:members])
	if err = n.StartAll(ctx); err == nil {
		err = n.AwaitMembers()
	}
	cancel()
	n.AwaitAll()
	traffic := <-sent
	if err != nil {
		return m, fmt.Errorf("%w (logs are in %s)", err, dir)
	}
	run, err := b.state(s, exchanges)
	if err != nil {
		return m, err
	}
	m.Sequences = int(run.Config.GlobalBatchSizeStart)
	for i, one := range n.Members {
		m.CPU = append(m.CPU, one.CPU().Seconds())
		rounds, digest, err := roundsOf(one)
		if err != nil {
			return m, fmt.Errorf("%w (logs are in %s)", err, dir)
		}
		m.Digests = append(m.Digests, digest)
		if i == 0 {
			m.Points = rounds.points()
			m.Sent = traffic.between(rounds.at[2], rounds.at[rounds.last]) / float64(rounds.last-2)
		}
	}
	return m, os.RemoveAll(dir)
}

// roundTimes are the times at which a member saw rounds start.
type roundTimes struct {
	at   map[int]time.Time
	last int
}

// points returns a point for each round except the last, whose end is not the start of another
// round.
func (r roundTimes) points() (all []point) {
	for _, step := range slices.Sorted(maps.Keys(r.at)) {
		all = append(all, point{Step: step - 1, Seconds: r.at[step].Sub(r.at[1]).Seconds()})
	}
	return all
}

// roundsOf returns the times at which a member saw rounds start, and its last digest.
func roundsOf(member *testbed.Node) (r roundTimes, digest string, err error) {
	r.at = map[int]time.Time{}
	for e, err := range event.Read(member.Events()) {
		if err != nil {
			return r, "", err
		}
		switch body := e.Body.(type) {
		case event.State:
			if step := int(body.Step); body.RunState == "RoundTrain" && r.at[step].IsZero() {
				r.at[step], r.last = e.Time, max(r.last, step)
			}
		case event.Finished:
			digest = body.Digest
		}
	}
	if len(r.at) < 4 || r.at[1].IsZero() || r.at[2].IsZero() {
		return r, "", fmt.Errorf("%s saw %d rounds, want at least 4, with steps 1 and 2", member.Name, len(r.at))
	}
	return r, digest, nil
}

// sentAt is the traffic that each member had sent at a time.
type sentAt struct {
	at    time.Time
	bytes float64 // mean
}

type traffic []sentAt

// watchSent samples the traffic of members until ctx ends. On loopback it is not counted.
func watchSent(ctx context.Context, places []testbed.Place) <-chan traffic {
	done := make(chan traffic, 1)
	go func() {
		var seen traffic
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			now := sentAt{at: time.Now()}
			for _, p := range places {
				if p.Sent != nil {
					now.bytes += float64(p.Sent()) / float64(len(places))
				}
			}
			seen = append(seen, now)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		done <- seen
	}()
	return done
}

// between returns the traffic between two times.
func (t traffic) between(from, to time.Time) float64 {
	at := func(when time.Time) float64 {
		i, _ := slices.BinarySearchFunc(t, when, func(s sentAt, when time.Time) int { return s.at.Compare(when) })
		return t[min(i, len(t)-1)].bytes
	}
	return at(to) - at(from)
}
