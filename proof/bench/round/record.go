package main

import (
	"fmt"
	"iter"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// span is a period in which a process did one thing.
type span struct {
	part     string
	from, to time.Time
}

// clientRound has the times of a client's events in one round. A zero time means that the event was
// not recorded.
type clientRound struct {
	epoch       uint32
	start       time.Time // the client sees RoundTrain
	end         time.Time // it sees the next round, or the epoch's end
	trained     span
	tokens      int
	sequences   uint64
	resultSent  time.Time
	held        time.Time // it has every result
	fetched     span      // fetch of the last result
	witnessSent time.Time // the host has acknowledged its proof
}

// clientRecord is the events of a client.
type clientRecord struct {
	rounds map[uint32]*clientRound
	spans  []span // of computation
	wire   []wireAt
	phases []phaseAt
	kinds  map[string]bool // of spans
	heard  bool            // wrote at least one ResultsHeld
}

// wireAt is the transferred bytes at a time.
type wireAt struct {
	at   time.Time
	wire event.Wire
}

// phaseAt is the time at which a process saw a phase of the run start.
type phaseAt struct {
	at       time.Time
	runState string
	epoch    uint32
	step     uint32
}

// Names of relevant run states.
const (
	stateTrain    = "RoundTrain"
	stateWitness  = "RoundWitness"
	stateCooldown = "Cooldown"
	stateWarmup   = "Warmup"
)

// readClient collects the events of a client.
func readClient(events iter.Seq2[event.Event, error]) (*clientRecord, error) {
	c := &clientRecord{rounds: map[uint32]*clientRound{}, kinds: map[string]bool{}}
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		c.add(e)
	}
	if len(c.rounds) == 0 {
		return nil, fmt.Errorf("read a client's events: no round")
	}
	return c, nil
}

func (c *clientRecord) add(e event.Event) {
	switch body := e.Body.(type) {
	case event.State:
		c.see(e.Time, body)
	case event.Trained:
		r := c.round(body.Step)
		r.trained = endingAt(e.Time, partTrain, body.Seconds)
		r.tokens, r.sequences = body.Tokens, body.Batch[1]-body.Batch[0]
		c.spans = append(c.spans, r.trained)
	case event.Applied:
		c.spans = append(c.spans, endingAt(e.Time, partApply, body.Seconds))
	case event.Span:
		c.kinds[body.Part] = true
		c.spans = append(c.spans, endingAt(e.Time, body.Part, body.Seconds))
	case event.ResultSent:
		c.round(body.Step).resultSent = e.Time
	case event.ResultsHeld:
		c.heard = true
		r := c.round(body.Step)
		r.held, r.fetched = e.Time, endingAt(e.Time, partFetch, body.FetchSeconds)
	case event.WitnessSent:
		c.round(body.Step).witnessSent = e.Time
	case event.Wire:
		c.wire = append(c.wire, wireAt{e.Time, body})
	}
}

// see records the start of a phase.
func (c *clientRecord) see(at time.Time, s event.State) {
	if n := len(c.phases); n > 0 {
		last := c.phases[n-1]
		if last.runState == s.RunState && last.step == s.Step && last.epoch == s.Epoch {
			return
		}
		inRound := last.runState == stateTrain || last.runState == stateWitness
		if inRound && (s.Step != last.step || s.RunState != stateTrain && s.RunState != stateWitness) {
			c.round(last.step).end = at
		}
	}
	c.phases = append(c.phases, phaseAt{at, s.RunState, s.Epoch, s.Step})
	if s.RunState == stateTrain {
		r := c.round(s.Step)
		r.epoch = s.Epoch
		if r.start.IsZero() {
			r.start = at
		}
	}
}

func (c *clientRecord) round(step uint32) *clientRound {
	r := c.rounds[step]
	if r == nil {
		r = &clientRound{}
		c.rounds[step] = r
	}
	return r
}

// inner reports whether a round is between two other rounds of its epoch, and the client saw all
// three start: the first round of an epoch has nothing to apply, the last ends in Cooldown.
func (c *clientRecord) inner(step uint32) bool {
	before, r, after := c.rounds[step-1], c.rounds[step], c.rounds[step+1]
	for _, other := range []*clientRound{before, r, after} {
		if other == nil || other.start.IsZero() || other.epoch != r.epoch {
			return false
		}
	}
	return r.end.Equal(after.start)
}

func endingAt(end time.Time, part string, seconds float64) span {
	return span{part, end.Add(-time.Duration(seconds * float64(time.Second))), end}
}

// hostRecord is the events of the server.
type hostRecord struct {
	train, witness map[uint32]time.Time // publication times of these phases, by step
	over           map[uint32]time.Time // publication time of the state after a step's round
	commits        []span
	last           event.State
}

// readHost collects the events of the server.
func readHost(events iter.Seq2[event.Event, error]) (*hostRecord, error) {
	h := &hostRecord{train: map[uint32]time.Time{}, witness: map[uint32]time.Time{}, over: map[uint32]time.Time{}}
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		switch body := e.Body.(type) {
		case event.State:
			h.see(e.Time, body)
		case event.Span:
			if body.Part == partCommit {
				h.commits = append(h.commits, endingAt(e.Time, partCommit, body.Seconds))
			}
		}
	}
	if len(h.train) == 0 {
		return nil, fmt.Errorf("read the server's events: no round began")
	}
	return h, nil
}

func (h *hostRecord) see(at time.Time, s event.State) {
	if h.last.RunState == s.RunState && h.last.Step == s.Step {
		return
	}
	if h.last.RunState == stateWitness || h.last.RunState == stateTrain && s.Step != h.last.Step {
		h.over[h.last.Step] = at
	}
	switch s.RunState {
	case stateTrain:
		h.train[s.Step] = at
	case stateWitness:
		h.witness[s.Step] = at
	}
	h.last = s
}
