package testnet

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// ClientProgress is the progress of one client.
type ClientProgress struct {
	Name      string
	ID        string
	Member    bool // a healthy member of the epoch
	Witness   bool // elected in the running round
	Uncounted bool // its results of the running round do not count: it is on probation, or its optimizer warms up
	Idle      bool // does not train in the running round, and has time for audits
	Ready     bool // it holds the epoch's model
	Dropped   bool // it was a member of the epoch and no longer is
	Lost      bool // it lost the run's model as a member, and has not recovered it yet
	Ejected   bool // the rules currently exclude it
	Down      bool // its process was killed and has not been restarted yet
	Ended     bool // it saw the end of the run
	GaveUp    bool // its process ended with an error
	Loss      float64
	LossStep  uint32  // 0: it has not trained yet
	Speed     float64 // tokens per second of its newest computation; 0: not known, or not a member
	Share     float64 // fraction of a round that its computation took; 0 also if Speed is 0
	Sent      uint64  // bytes on the wire to its peers, over all lives of its process
	SentRate  float64 // bytes per second, over the newest rounds; for members
	Restarts  int
	Attack    string // attack of a cheat; empty: honest

	Arrives event.Transfer // model download in progress; zero: none
	Uploads event.Transfer // checkpoint upload in progress
}

// clientRecord collects one client's events.
type clientRecord struct {
	life
	saved
	before traffic // by earlier lives

	trained        map[uint32]trainedRound
	newest         event.Trained
	announced      uint32 // step of the newest announced result
	sentResults    int    // announced results
	held           event.ResultsHeld
	applied        map[uint32]appliedRound
	lostBatches    map[event.Batch]bool // in rounds that it applied
	restarts       int
	rejoined       bool
	desynchronised int
	final          event.Finished

	readyEpoch    uint32      // epoch of its newest Ready
	loaded        event.Ready // the newest
	modelReported bool        // in a resumed run: the client's starting model was reported
	down          bool
}

// saved describes a client's newest checkpoint, and the newest that is in a folder.
type saved struct {
	digest         string
	checkpointStep uint32
	checkpointDir  string
	savedStep      uint32 // of checkpointDir
}

// life records what one process of a client did, from its start to its end.
type life struct {
	traffic
	sentTime time.Time // of the newest event.Wire
	sentRate float64

	ready            bool // it sent Ready
	seated           bool // it was a member of the epoch
	lost             bool
	back             bool // it reported its return
	ended, gaveUp    bool
	arrives, uploads event.Transfer
}

// traffic counts bytes and payments.
type traffic struct {
	sent    uint64
	payload uint64
	model   uint64
	paid    event.Paid
}

func (t traffic) plus(u traffic) traffic {
	return traffic{
		sent: t.sent + u.sent, payload: t.payload + u.payload, model: t.model + u.model,
		paid: event.Paid{
			Transactions: t.paid.Transactions + u.paid.Transactions, Ticks: t.paid.Ticks + u.paid.Ticks, OutOfTurn: t.paid.OutOfTurn + u.paid.OutOfTurn,
			Lamports: t.paid.Lamports + u.paid.Lamports, Rent: t.paid.Rent + u.paid.Rent,
		},
	}
}

// total returns the counts of all processes of the client.
func (c *clientRecord) total() traffic { return c.before.plus(c.traffic) }

// trainedRound and appliedRound are stored for each round until the run is over, so they are small.
type trainedRound struct {
	loss   float64 // nats per token
	tokens int
}

type appliedRound struct {
	counts, own, attested bool     // any result, and the client's result, which may be attested without counting
	lost                  []string // clients whose results did not count
}

// see processes an event of the client.
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
		applied := appliedRound{counts: body.Counted > 0, own: body.OwnCounted, attested: body.OwnAttested}
		for _, batch := range body.Lost {
			c.lostBatches[batch.Batch] = true
			applied.lost = append(applied.lost, batch.Owner)
		}
		c.applied[body.Step] = applied
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

// begin starts the record of the client's next process.
func (c *clientRecord) begin() { c.before, c.life = c.total(), life{} }

// wire processes totals of the current life.
func (c *clientRecord) wire(at time.Time, w event.Wire) {
	const weight = 0.5 // of the new value, because single rounds differ
	if took := at.Sub(c.sentTime).Seconds(); !c.sentTime.IsZero() && took > 0 && w.P2PSent >= c.sent {
		c.sentRate += weight * (float64(w.P2PSent-c.sent)/took - c.sentRate)
	}
	c.sentTime = at
	c.sent, c.payload, c.model = w.P2PSent, w.PayloadSent, w.ModelReceived
}

// moves updates the progress of a transfer. It removes a complete transfer.
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

// clientProgress returns the progress of the client with an index.
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
		Sent:      c.total().sent,
		Restarts:  c.restarts,
		Arrives:   c.arrives,
		Uploads:   c.uploads,
	}
	if cheat := t.cheats[id]; cheat != nil {
		p.Attack = cheat.attack
	}
	p.Dropped = c.seated && !p.Member
	if !p.Member || c.down { // its earlier activity is outdated
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

// roundSeconds returns the average duration of the newest rounds; 0: not known.
func (t *tracker) roundSeconds() float64 {
	if len(t.stepEnded) < 2 {
		return 0
	}
	first, last := t.stepEnded[0], t.stepEnded[len(t.stepEnded)-1]
	return last.at.Sub(first.at).Seconds() / float64(last.step-first.step)
}

// results returns the number of known results of the running round.
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
			most = max(most, c.held.Held) // counts clients outside of the network too
		}
	}
	return min(max(known, most), max(t.state.Batches, most))
}
