package tui

import (
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// Limits of a display's memory.
const (
	lossesKept = 4096
	linesKept  = 50 // of a log, or of events
)

// Peer is a connected member with the traffic of its connection.
type Peer struct {
	ID             string
	Sent, Received uint64
	Relayed        bool
}

// Line is a line of the log.
type Line struct {
	At    time.Time
	Level slog.Level
	Text  string
}

// point is the loss of a step.
type point struct {
	step uint32
	loss float64
}

// rated is a peer with its rates, in bytes per second.
type rated struct {
	Peer
	in, out float64
	absent  bool // there is no connection
}

// seen is everything that a client's display shows, computed from events.
type seen struct {
	newest
	run
	id        string  // key of the client
	losses    []point // of its results
	lost      int
	model     uint64         // bytes of received models
	arriving  event.Transfer // of the model
	uploading event.Transfer
	audits    map[string]int // by this client, by result
	evaluated map[string]event.Evaluated
	ended     string // how the run or the client ended; empty: it runs
	failed    bool
	metrics   map[string]float64
	peers     []rated
	warnings  []Line
}

// newest has the newest event of each kind.
type newest struct {
	trained  event.Trained
	sent     event.ResultSent
	gradient event.Gradient
	held     event.ResultsHeld
	witness  event.WitnessSent
	applied  event.Applied
	ready    event.Ready
	saved    event.Checkpoint
	uploaded event.Uploaded
	audit    event.Audit
}

func (n *newest) see(body event.Body) {
	switch body := body.(type) {
	case event.Trained:
		n.trained = body
	case event.ResultSent:
		n.sent = body
	case event.Gradient:
		n.gradient = body
	case event.ResultsHeld:
		n.held = body
	case event.WitnessSent:
		n.witness = body
	case event.Applied:
		n.applied = body
	case event.Ready:
		n.ready = body
	case event.Checkpoint:
		n.saved = body
	case event.Uploaded:
		n.uploaded = body
	case event.Audit:
		n.audit = body
	}
}

// follower collects the data of the display. Its methods never wait for the terminal.
type follower struct {
	mu        sync.Mutex
	seen      seen
	countedAt time.Time // time of the last peer count
}

// see processes an event. It is an argument for event.Log's Watch.
func (f *follower) see(e event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &f.seen
	s.newest.see(e.Body)
	s.run.see(e)
	if text := warningOf(e.Body); text != "" {
		f.warn(Line{e.Time, slog.LevelWarn, text})
	}
	switch body := e.Body.(type) {
	case event.Trained:
		if loss := float64(body.Loss); !math.IsNaN(loss) && !math.IsInf(loss, 0) {
			s.losses = append(s.losses, point{body.Step, loss})
			s.losses = s.losses[max(0, len(s.losses)-lossesKept):]
		}
	case event.Applied:
		s.lost += len(body.Lost)
	case event.Ready:
		s.arriving = event.Transfer{}
	case event.Wire:
		s.model = body.ModelReceived
	case event.Transfer:
		if body.What == event.TransferUpload {
			s.uploading = body
		} else {
			s.arriving = body
		}
	case event.Evaluated:
		s.evaluated = maps.Clone(s.evaluated)
		if s.evaluated == nil {
			s.evaluated = map[string]event.Evaluated{}
		}
		s.evaluated[body.Task] = body
	case event.Audit:
		s.audits = maps.Clone(s.audits)
		if s.audits == nil {
			s.audits = map[string]int{}
		}
		s.audits[body.Outcome]++
	case event.Finished:
		s.ended = "the run is finished"
	case event.Failed:
		s.ended, s.failed = body.Error, true
	}
}

// warningOf returns the warning that an event causes; empty if it causes none.
func warningOf(body event.Body) string {
	switch body := body.(type) {
	case event.Desynchronised:
		return "the model is lost: " + body.Reason
	case event.Misbehaved:
		return short(body.Peer) + " " + body.Fault + ": " + body.Detail
	case event.Accused:
		return "accused " + short(body.Client) + " (" + body.Fault + "): " + body.Detail
	}
	return ""
}

// take adds a line of the log.
func (f *follower) take(line Line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.warn(line)
}

// warn adds a line to the displayed warnings.
func (f *follower) warn(line Line) {
	f.seen.warnings = append(f.seen.warnings, line)
	f.seen.warnings = f.seen.warnings[max(0, len(f.seen.warnings)-linesKept):]
}

// count computes the rates of peers from their byte counts.
func (f *follower) count(peers []Peer, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	took := now.Sub(f.countedAt).Seconds()
	before := map[string]rated{}
	for _, p := range f.seen.peers {
		before[p.ID] = p
	}
	next := make([]rated, len(peers))
	for i, p := range peers {
		next[i].Peer = p
		if old, known := before[p.ID]; known && took > 0 && p.Sent >= old.Sent && p.Received >= old.Received {
			const weight = 0.5 // of the new value, because single rates fluctuate
			next[i].out = old.out + weight*(float64(p.Sent-old.Sent)/took-old.out)
			next[i].in = old.in + weight*(float64(p.Received-old.Received)/took-old.in)
		}
	}
	f.seen.peers, f.countedAt = next, now
}

// now returns the data to show.
func (f *follower) now() seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.seen
	s.run = f.seen.copied()
	s.losses, s.peers, s.warnings = slices.Clone(s.losses), slices.Clone(s.peers), slices.Clone(s.warnings)
	return s
}

// short returns the beginning of an id.
func short(id string) string { return id[:min(8, len(id))] }
