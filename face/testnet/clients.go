package testnet

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// ClientProgress is what is known of one client.
type ClientProgress struct {
	Name      string
	ID        string
	Member    bool // a healthy member of the epoch
	Witness   bool // elected in the running round
	Uncounted bool // its results of the running round do not count: it is on probation, or its optimizer warms up
	Idle      bool // it trains nothing in the running round, and has the time for audits
	Ready     bool // it holds the epoch's model
	Dropped   bool // it was a member of the epoch, and is none any more
	Lost      bool // it lost the run's model as a member, and does not have it back yet
	Ejected   bool // the rules keep it out for now
	Down      bool // its process was killed, and the next one has not begun
	Ended     bool // it saw the end of the run
	GaveUp    bool // its process ended with an error
	Loss      float64
	LossStep  uint32  // 0: it has trained nothing yet
	Speed     float64 // tokens per second while it computed its newest result; 0: not known, or it is no member
	Share     float64 // of a round that computing it took; so too
	Sent      uint64  // bytes on the wire to its peers, all lives together
	SentRate  float64 // bytes per second, over the newest rounds; of a member
	Restarts  int
	Attack    string // how it cheats; empty: it does not

	Arrives event.Transfer // of a model, as long as it does; zero: nothing does
	Uploads event.Transfer // of a checkpoint
}

// clientRecord gathers one client's events.
type clientRecord struct {
	sentBefore     uint64 // by lives that have ended
	sent           uint64 // by the current one
	sentTime       time.Time
	sentRate       float64
	payloadBefore  uint64
	payload        uint64
	modelBefore    uint64
	model          uint64
	paidBefore     event.Paid
	paid           event.Paid
	trained        map[uint32]trainedRound
	newest         event.Trained
	announced      uint32 // step of its newest result that it announced
	sentResults    int    // that it announced
	held           event.ResultsHeld
	applied        map[uint32]appliedRound
	lostBatches    map[event.Batch]bool // of rounds that it applied
	restarts       int
	rejoined       bool
	desynchronised int
	digest         string // of the newest checkpoint
	checkpointStep uint32
	checkpointDir  string
	savedStep      uint32 // of checkpointDir
	final          event.Finished

	readyEpoch          uint32      // whose model it said to hold
	ready               bool        // it said so in this life
	seated              bool        // it was a member of the epoch in this life
	loaded              event.Ready // the newest
	told                bool        // of a resumed run: it was said what the client goes on with
	lost                bool
	back                bool // it said in this life that it is back
	down, ended, gaveUp bool
	arrives, uploads    event.Transfer
}

// trainedRound and appliedRound are what is kept of each round until the run is over: there may be many.
type trainedRound struct {
	loss   float64 // nats per token
	tokens int
}

type appliedRound struct{ counts, own bool } // some result, and the client's

// see takes in an event of the client.
func (c *clientRecord) see(e event.Event) {
	switch body := e.Body.(type) {
	case event.Started:
		c.begin()
	case event.Trained:
		c.trained[body.Step], c.newest = trainedRound{float64(body.Loss), body.Tokens}, body
	case event.ResultSent:
		c.announced = body.Step
		c.sentResults++
	case event.ResultsHeld:
		c.held = body
	case event.Applied:
		c.applied[body.Step] = appliedRound{body.Counted > 0, body.OwnCounted}
		for _, batch := range body.Lost {
			c.lostBatches[batch.Batch] = true
		}
	case event.Wire:
		c.wire(e.Time, body)
	case event.Paid:
		c.paid = body
	case event.Transfer:
		c.moves(body)
	case event.Ready:
		c.loaded = body
		c.ready, c.readyEpoch, c.lost, c.arrives = true, body.Epoch, false, event.Transfer{}
	case event.Checkpoint:
		c.digest, c.checkpointStep = body.Digest, body.Step
		if body.Dir != "" {
			c.checkpointDir, c.savedStep = body.Dir, body.Step
		}
	case event.Desynchronised:
		c.back = false
		c.desynchronised++
	case event.Rejoined:
		c.lost, c.back, c.rejoined = false, true, true
	case event.Finished:
		c.ended, c.final = true, body
		c.stopMoving()
	case event.Failed:
		c.gaveUp = true
		c.stopMoving()
	}
}

// begin takes in that the client's next life has begun: its counters start from zero.
func (c *clientRecord) begin() {
	c.sentBefore, c.sent = c.sentBefore+c.sent, 0
	c.payloadBefore, c.payload = c.payloadBefore+c.payload, 0
	c.modelBefore, c.model = c.modelBefore+c.model, 0
	c.endPaid()
	c.sentTime, c.sentRate = time.Time{}, 0
	c.ready, c.seated, c.lost, c.back, c.gaveUp, c.ended = false, false, false, false, false, false
	c.stopMoving()
}

// wire takes in totals of the current life.
func (c *clientRecord) wire(at time.Time, w event.Wire) {
	const weight = 0.5 // of what is new: single rounds differ
	if took := at.Sub(c.sentTime).Seconds(); !c.sentTime.IsZero() && took > 0 && w.P2PSent >= c.sent {
		c.sentRate += weight * (float64(w.P2PSent-c.sent)/took - c.sentRate)
	}
	c.sentTime = at
	c.sent, c.payload, c.model = w.P2PSent, w.PayloadSent, w.ModelReceived
}

// moves takes in how far a transfer is; one that is complete is none.
func (c *clientRecord) moves(t event.Transfer) {
	now := t
	if t.Bytes >= t.Total {
		now = event.Transfer{}
	}
	if t.What == event.TransferUpload {
		c.uploads = now
		return
	}
	c.arrives = now
}

func (c *clientRecord) stopMoving() { c.arrives, c.uploads = event.Transfer{}, event.Transfer{} }

// clientProgress returns what is known of the client of an index.
func (t *tracker) clientProgress(i int) ClientProgress {
	id := t.ids[i]
	c := t.clients[id]
	p := ClientProgress{
		Name:      clientName(i),
		ID:        id,
		Member:    slices.Contains(t.state.Members, id),
		Witness:   slices.Contains(t.state.Elected, id),
		Uncounted: slices.Contains(t.state.Uncounted, id),
		Idle:      slices.Contains(t.state.Idle, id),
		Ready:     c.ready && c.readyEpoch == t.state.Epoch,
		Lost:      c.lost,
		Ejected:   slices.ContainsFunc(t.ejected, func(e event.Ejected) bool { return e.Client == id && e.Until > t.state.Epoch }),
		Down:      c.down,
		Ended:     c.ended,
		GaveUp:    c.gaveUp,
		Loss:      float64(c.newest.Loss),
		LossStep:  c.newest.Step,
		Sent:      c.sentBefore + c.sent,
		Restarts:  c.restarts,
		Arrives:   c.arrives,
		Uploads:   c.uploads,
	}
	if cheat := t.cheats[id]; cheat != nil {
		p.Attack = cheat.attack
	}
	p.Dropped = c.seated && !p.Member
	if !p.Member || c.down { // what it did is no news
		return p
	}
	p.SentRate = c.sentRate
	if c.newest.Seconds > 0 {
		p.Speed = float64(c.newest.Tokens) / c.newest.Seconds
		if each := t.roundSeconds(); each > 0 {
			p.Share = min(1, c.newest.Seconds/each)
		}
	}
	return p
}

// roundSeconds is how long the newest rounds took on average; 0: not known.
func (t *tracker) roundSeconds() float64 {
	if len(t.stepEnded) < 2 {
		return 0
	}
	first, last := t.stepEnded[0], t.stepEnded[len(t.stepEnded)-1]
	return last.at.Sub(first.at).Seconds() / float64(last.step-first.step)
}

// results returns how many results of the running round are known to somebody.
func (t *tracker) results() (known int) {
	if t.state.Step == 0 {
		return 0
	}
	most := 0
	for _, c := range t.clients {
		if c.announced == t.state.Step {
			known++
		}
		if c.held.Step == t.state.Step {
			most = max(most, c.held.Held) // also of clients that are none of the network's own
		}
	}
	return min(max(known, most), max(t.state.Batches, most))
}
