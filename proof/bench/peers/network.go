package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/proof/bench/process"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

func (l link) process() process.Link {
	return process.Link{Delay: time.Duration(l.Delay), Rate: 1_000_000 * l.Mbits, LossPerMille: l.Loss}
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
	return process.Override(state, keys)
}

func (b *bench) state(s system, exchanges int) (config.Run, error) {
	text, err := b.settings(s, exchanges)
	if err != nil {
		return config.Run{}, err
	}
	return config.ParseState(s.State, text)
}

// ownNetwork is a Psyche server and its members as processes.
type ownNetwork struct {
	bench        *bench
	dir          string
	places       []process.Place // of the members, and of the server
	host         *process.Process
	address, key string
	members      []*process.Process
}

// startOwn starts a Psyche run. To end it, cancel the context and wait for all processes.
func (b *bench) startOwn(ctx context.Context, s system, dir string, places []process.Place, exchanges int) (*ownNetwork, error) {
	n := &ownNetwork{bench: b, dir: dir, places: places}
	text, err := b.settings(s, exchanges)
	if err != nil {
		return n, err
	}
	state := filepath.Join(dir, "state.toml")
	if err := os.WriteFile(state, text, 0o644); err != nil {
		return n, err
	}
	home, err := process.Folder(dir, "server")
	if err != nil {
		return n, err
	}
	own, err := server.HostKey(home, rand.Reader)
	if err != nil {
		return n, err
	}
	port, err := process.FreePort()
	if err != nil {
		return n, err
	}
	place := places[members]
	n.address, n.key = net.JoinHostPort(place.Address, strconv.Itoa(port)), own.ID().String()
	n.host, err = process.Start(ctx, place, "server", filepath.Join(home, "server.log"), filepath.Join(b.bin, "psyche"),
		"server", "run", "--state", state, "--run-id", runID, "--save-state-dir", home, "--events-dir", home,
		"--server-addr", place.Address, "--server-port", strconv.Itoa(port))
	if err != nil {
		return n, err
	}
	for i := range members {
		key, err := identity.Generate(rand.Reader)
		if err != nil {
			return n, err
		}
		home, err := process.Folder(dir, fmt.Sprintf("member-%d", i))
		if err != nil {
			return n, err
		}
		if err := identity.SaveKeyFile(filepath.Join(home, "identity.json"), key); err != nil {
			return n, err
		}
		one, err := n.startMember(ctx, i)
		if err != nil {
			return n, err
		}
		n.members = append(n.members, one)
	}
	return n, nil
}

// startMember starts or restarts a member.
func (n *ownNetwork) startMember(ctx context.Context, i int) (*process.Process, error) {
	home := filepath.Join(n.dir, fmt.Sprintf("member-%d", i))
	return process.Start(ctx, n.places[i], fmt.Sprintf("member %d", i), filepath.Join(home, fmt.Sprintf("client-%d.log", time.Now().UnixNano())),
		filepath.Join(n.bench.bin, "psyche-client"), "train", "--run-id", runID, "--server-addr", n.address, "--server-key", n.key,
		"--identity-secret-key-path", filepath.Join(home, "identity.json"), "--events-dir", home, "--allow-local-paths",
		"--checkpoint-dir", filepath.Join(home, "checkpoints"), "--bind-p2p-address", n.places[i].Address,
		"--threads", "1", "--micro-batch-size", strconv.Itoa(microBatch))
}

// wait waits for the end of the server, after members have ended.
func (n *ownNetwork) wait() {
	for _, one := range n.members {
		<-one.Ended()
	}
	if n.host != nil {
		<-n.host.Ended()
	}
}

// ownRun runs a Psyche system for the given number of rounds.
func (b *bench) ownRun(ctx context.Context, s system, places []process.Place, exchanges int) (m measurement, err error) {
	dir, err := os.MkdirTemp(b.out, "own-")
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := watchSent(ctx, places[:members])
	n, err := b.startOwn(ctx, s, dir, places, exchanges)
	if err == nil {
		for _, one := range n.members {
			err = errors.Join(err, one.Wait())
		}
	}
	cancel()
	n.wait()
	traffic := <-sent
	if err != nil {
		return m, fmt.Errorf("%w (logs are in %s)", err, dir)
	}
	run, err := b.state(s, exchanges)
	if err != nil {
		return m, err
	}
	m.Sequences = int(run.Config.GlobalBatchSizeStart)
	for i, one := range n.members {
		m.CPU = append(m.CPU, one.CPU().Seconds())
		rounds, digest, err := n.rounds(i)
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

// rounds returns the times at which a member saw rounds start, and its last digest.
func (n *ownNetwork) rounds(i int) (r roundTimes, digest string, err error) {
	r.at = map[int]time.Time{}
	for e, err := range event.Read(filepath.Join(n.dir, fmt.Sprintf("member-%d", i), "events.jsonl")) {
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
		return r, "", fmt.Errorf("member %d saw %d rounds, want at least 4, with steps 1 and 2", i, len(r.at))
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
func watchSent(ctx context.Context, places []process.Place) <-chan traffic {
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
