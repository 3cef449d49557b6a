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

// Bounds of what a display keeps.
const (
	lossesKept   = 4096
	warningsKept = 50
)

// Peer is a member that a connection exists to, and what it has carried.
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

// rated is a peer with its rates, bytes per second.
type rated struct {
	Peer
	in, out float64
}

// seen is everything that a client's display shows. It is a projection of events.
type seen struct {
	runID, id string
	state     event.State
	since     time.Time // of the phase
	losses    []point
	trained   event.Trained
	sent      event.ResultSent
	gradient  event.Gradient
	held      event.ResultsHeld
	witness   event.WitnessSent
	applied   event.Applied
	lost      int
	ready     event.Ready
	model     uint64 // bytes of models that were received
	saved     event.Checkpoint
	uploaded  event.Uploaded
	arriving  event.Transfer // of the model
	uploading event.Transfer
	court     court
	audits    map[string]int // own ones, by outcome
	audit     event.Audit    // the newest
	evaluated map[string]event.Evaluated
	ended     string
	figures   map[string]float64
	peers     []rated
	names     names
	warnings  []Line
}

// follower gathers what is shown. Its methods never wait for the terminal.
type follower struct {
	mu    sync.Mutex
	seen  seen
	asked time.Time // when the peers were counted
}

// See takes an event, as a function for event.Log's Watch.
func (f *follower) See(e event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &f.seen
	switch body := e.Body.(type) {
	case event.State:
		if body.RunState != s.state.RunState || body.Step != s.state.Step && body.RunState != "WaitingForMembers" {
			s.since = e.Time
		}
		s.state = body
	case event.Trained:
		s.trained = body
		if loss := float64(body.Loss); !math.IsNaN(loss) && !math.IsInf(loss, 0) {
			s.losses = append(s.losses, point{body.Step, loss})
			s.losses = s.losses[max(0, len(s.losses)-lossesKept):]
		}
	case event.ResultSent:
		s.sent = body
	case event.Gradient:
		s.gradient = body
	case event.ResultsHeld:
		s.held = body
	case event.WitnessSent:
		s.witness = body
	case event.Applied:
		s.applied = body
		s.lost += len(body.Lost)
	case event.Ready:
		s.ready, s.arriving = body, event.Transfer{}
	case event.Wire:
		s.model = body.ModelReceived
	case event.Checkpoint:
		s.saved = body
	case event.Transfer:
		if body.What == event.TransferUpload {
			s.uploading = body
		} else {
			s.arriving = body
		}
	case event.Uploaded:
		s.uploaded = body
	case event.Evaluated:
		s.evaluated = maps.Clone(s.evaluated)
		if s.evaluated == nil {
			s.evaluated = map[string]event.Evaluated{}
		}
		s.evaluated[body.Task] = body
	case event.Desynchronised:
		f.warn(Line{e.Time, slog.LevelWarn, "the model is lost: " + body.Reason})
	case event.Misbehaved:
		f.warn(Line{e.Time, slog.LevelWarn, short(body.Peer) + " " + body.Fault + ": " + body.Detail})
	case event.Accused:
		f.warn(Line{e.Time, slog.LevelWarn, "accused " + short(body.Client) + " (" + body.Fault + "): " + body.Detail})
	case event.Trial:
		f.warn(Line{e.Time, slog.LevelWarn, "trial of " + short(body.Accused) + ", accused by " + short(body.Accuser) + " (" + body.Fault + "): " + body.What})
	case event.Trials, event.Ejected:
		s.court.see(body)
	case event.Named:
		s.names = s.names.with(body)
	case event.Audit:
		s.audit, s.audits = body, maps.Clone(s.audits)
		if s.audits == nil {
			s.audits = map[string]int{}
		}
		s.audits[body.Outcome]++
	case event.Finished:
		s.ended = "the run is finished"
	case event.Failed:
		s.ended = body.Error
	}
}

// take is for a log.
func (f *follower) take(line Line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.warn(line)
}

// warn adds a line to those that are shown.
func (f *follower) warn(line Line) {
	f.seen.warnings = append(f.seen.warnings, line)
	f.seen.warnings = f.seen.warnings[max(0, len(f.seen.warnings)-warningsKept):]
}

// count takes the bytes of peers, and makes rates of what is new.
func (f *follower) count(peers []Peer, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	took := now.Sub(f.asked).Seconds()
	before := map[string]rated{}
	for _, p := range f.seen.peers {
		before[p.ID] = p
	}
	next := make([]rated, len(peers))
	for i, p := range peers {
		next[i].Peer = p
		if old, known := before[p.ID]; known && took > 0 && p.Sent >= old.Sent && p.Received >= old.Received {
			const weight = 0.5 // of what is new: rates of single moments jump
			next[i].out = old.out + weight*(float64(p.Sent-old.Sent)/took-old.out)
			next[i].in = old.in + weight*(float64(p.Received-old.Received)/took-old.in)
		}
	}
	f.seen.peers, f.asked = next, now
}

// now returns what is to be shown.
func (f *follower) now() seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.seen
	s.losses, s.peers, s.warnings = slices.Clone(s.losses), slices.Clone(s.peers), slices.Clone(s.warnings)
	return s
}

// short is the beginning of an id.
func short(id string) string { return id[:min(8, len(id))] }
