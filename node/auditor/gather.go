package auditor

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/env"
)

const (
	// A request for a part ends after roundTrips plus the time to transfer the part at slowestPart.
	roundTrips = 10 * time.Second
	// slowestPart is the rate, in bytes per second, at which a part is still expected to arrive: a
	// sixteenth of 0.25 Mbit/s, for a link that also carries results and requests of other members.
	slowestPart = 2 << 10
	// otherHolders is the number of members other than the trainer that are asked at the same time.
	// Since it is large, a few members that do not answer cannot stop this client from asking the
	// rest. otherPause is the time between two of these requests.
	otherHolders = 8
	otherPause   = 250 * time.Millisecond
	// otherLater is the longest time after which a member other than the trainer is asked again if
	// it answered that it is busy. After a number (patience) of such answers, this client asks a
	// different member.
	otherLater = time.Second
	patience   = 5
	// A client checks its requests at every event, and at least several times a second. If it has
	// not done so for stallTime, its process was busy or suspended.
	stallTime = 3 * time.Second
	// earlyTime is the time after which an auditor judges by the parts that have arrived so far.
	earlyTime = 40 * time.Second
)

// errNotPart means that bytes from a peer are not a missing part of the opening.
var errNotPart = errors.New("not a part of this opening")

// gathering collects the parts of one opening. Every part is verified separately: the Merkle roots in
// the results determine its bytes, so any member may send it. The client asks the trainer and some
// other members at the same time.
type gathering struct {
	trainer asker
	others  [otherHolders]asker
	parts   [][]byte       // by position among the chunks of the case; nil: missing
	chunks  []audit.Opened // decoded parts
	since   time.Time      // when the newest part arrived, or this client started to ask; zero: it does not ask
	step    uint32         // step of the running round at the time since
	looked  time.Time      // when this client last checked its requests
	some    bool           // a part has arrived
	busy    bool           // the trainer's last answer was that it is busy
	next    int            // index, modulo their number, of the next other member to ask
	start   time.Time      // earliest time to ask the next other member
}

// asker asks one member at a time for one part at a time.
type asker struct {
	poll
	holder identity.ID
	chosen bool
	laters int // consecutive answers that the holder is busy
	failed int // consecutive requests without a part
}

// pause records that the client stops asking, because the next phase of the case starts.
func (g *gathering) pause() { g.since = time.Time{} }

// look records that the client checks its requests. A long time without checks does not count as
// silence of the trainer: this machine was busy, and answers may wait to be read.
func (g *gathering) look(now time.Time, step uint32) {
	switch gap := now.Sub(g.looked); {
	case g.since.IsZero():
		g.since, g.step = now, step
	case gap > stallTime:
		g.since = g.since.Add(gap)
	}
	g.looked = now
}

// reset drops all parts.
func (g *gathering) reset(count int) {
	g.parts, g.chunks = make([][]byte, count), make([]audit.Opened, count)
}

// missing returns the positions of the missing parts.
func (g *gathering) missing() uint64 {
	set := allParts(len(g.parts))
	for i, part := range g.parts {
		if part != nil {
			set &^= 1 << i
		}
	}
	return set
}

// size returns the number of bytes of the parts that have arrived.
func (g *gathering) size() (bytes int) {
	for _, part := range g.parts {
		bytes += len(part)
	}
	return bytes
}

// partReader verifies parts of one opening. It is used outside the loop.
type partReader struct {
	shapes audit.Shapes
	claim  audit.Claim
	chunks []uint32
	drawn  []uint32
	differ bool // the trainer's tokens differ from this client's: only parts with a receipt for them are accepted
	tokens data.Batch
	check  func(audit.Claim) audit.Fault
}

// verifiedPart is a part of an opening that matches the roots of the result.
type verifiedPart struct {
	position int // position among the chunks of the case
	bytes    []byte
	chunk    audit.Opened
	fault    audit.Fault // rule that the chunk breaks
}

// read verifies a part.
func (r *partReader) read(bytes []byte) (verifiedPart, error) {
	shown, err := decodeDisclosure(bytes)
	if err != nil {
		return verifiedPart{}, err
	}
	claim := r.claim
	if claim.Opening, err = audit.DecodeOpening(shown.Opening, r.shapes); err != nil {
		return verifiedPart{}, err
	}
	if len(claim.Opening.Chunks) != 1 || r.differ && !excuses(shown, r.tokens, claim.Header) {
		return verifiedPart{}, errNotPart
	}
	chunk := claim.Opening.Chunks[0]
	for i, wanted := range r.chunks {
		if chunk.Chunk == wanted && claim.Binds(r.shapes, r.chunks[i:i+1]) {
			return verifiedPart{i, bytes, chunk, r.check(claim)}, nil
		}
	}
	return verifiedPart{}, errNotPart
}

// wanted converts a set of positions among the chunks of the case to the set of positions among the
// drawn chunks.
func (r *partReader) wanted(missing uint64) (set uint64) {
	for i, chunk := range r.chunks {
		if missing>>i&1 == 0 {
			continue
		}
		for j, drawn := range r.drawn {
			if drawn == chunk {
				set |= 1 << j
			}
		}
	}
	return set
}

// positionOf returns the position of a chunk of the case among the drawn chunks.
func (r *partReader) positionOf(i int) int { return bits.TrailingZeros64(r.wanted(1 << i)) }

// getOpening collects the opening from this client's store, its trainer, and other members. A part
// that breaks a rule ends the case.
func (a *Auditor) getOpening(q *auditCase, m manner) {
	g := &q.gathered
	if g.trainer.requests == 0 {
		q.asked = a.Client.State().Progress
	}
	if len(g.parts) != len(q.chunks) {
		g.reset(len(q.chunks))
	}
	now := a.Tasks.Now()
	g.look(now, a.Client.State().Progress.Step)
	auditor := a.Engine.Auditor()
	reader := &partReader{
		shapes: auditor.Shapes(), claim: q.claim, chunks: q.chunks, drawn: q.drawn, differ: q.differ, tokens: q.tokens, check: auditor.CheckLight,
	}
	if a.takeKept(q, reader); q.phase != waitsForOpening || q.Trainer == a.me {
		return
	}
	if m.accuses && !q.judgedEarly && g.size() > 0 && now.Sub(g.trainer.first) >= earlyTime {
		a.opened(q, reader)
		return
	}
	g.trainer.holder = identity.ID(q.Trainer)
	a.askHolder(q, &g.trainer, reader)
	var others []identity.ID
	for i := range g.others {
		switch other := &g.others[i]; {
		case !other.due(now):
		case other.chosen:
			a.askHolder(q, other, reader)
		case !now.Before(g.start):
			if others == nil {
				others = m.others()
			}
			if a.choose(g, other, others) {
				g.start = now.Add(otherPause)
				a.askHolder(q, other, reader)
			}
		}
	}
}

// choose selects the next member for an asker, in turn. It reports false if all other members are
// being asked.
func (a *Auditor) choose(g *gathering, of *asker, others []identity.ID) bool {
	for range others {
		id := others[g.next%len(others)]
		g.next++
		if id != g.trainer.holder && !slices.ContainsFunc(g.others[:], func(o asker) bool { return o.chosen && o.holder == id }) {
			of.holder, of.chosen, of.laters = id, true, 0
			return true
		}
	}
	return false
}

// askHolder asks a member for a missing part, unless a request is in flight or the member should be
// asked later.
func (a *Auditor) askHolder(q *auditCase, of *asker, r *partReader) {
	g := &q.gathered
	holder, wanted, isTrainer := of.holder, r.wanted(g.missing()), of == &g.trainer
	of.ask(a.Tasks, partTime(a.Engine.Auditor()), func(ctx context.Context) func() {
		found, later, err := a.askParts(ctx, holder, q.resultID, wanted, r)
		return func() {
			now := a.Tasks.Now()
			of.failed++
			if isTrainer {
				g.busy = err == nil && later > 0
			} else {
				later = min(later, otherLater)
			}
			switch {
			case len(found) > 0:
				of.again, of.laters, of.failed, g.start = now, 0, 0, now
				for _, v := range found {
					a.received(q, r, v)
				}
			case err != nil:
				of.again, of.chosen = now.Add(of.pause()), false
			case later > 0:
				of.laters++
				of.again, of.chosen = now.Add(later), of.laters < patience
			}
		}
	})
}

// pause returns the time between a failed request and the next one.
func (a *asker) pause() time.Duration { return min(leastPause<<min(a.failed-1, 10), time.Second) }

// takeKept uses parts that another case of this client has received.
func (a *Auditor) takeKept(q *auditCase, r *partReader) {
	kept := a.openings.parts(q.resultID)
	for i := range r.chunks {
		if p := r.positionOf(i); q.gathered.parts[i] == nil && p < len(kept) && kept[p] != nil {
			if v, err := r.read(kept[p]); err == nil {
				a.received(q, r, v)
			}
		}
	}
}

// askParts asks a member for wanted parts, and verifies them. A positive later means that the member
// has such parts but is busy, and should be asked again after that time. If a part is invalid,
// askParts returns the parts before it and an error.
func (a *Auditor) askParts(ctx context.Context, from identity.ID, key resultID, wanted uint64, r *partReader) (found []verifiedPart, later time.Duration, err error) {
	limit := min(bits.OnesCount64(wanted), mostParts) * (4 + maxPart(r.shapes))
	answer, err := a.Network.Request(ctx, from, OpeningProtocol, partRequest{key, wanted}.encode(), limit)
	if err != nil {
		return nil, 0, err
	}
	if later, is := decodeLater(answer); is {
		return nil, max(later, soonestLater), nil
	}
	parts, err := decodeAnswer(answer)
	for _, part := range parts {
		v, err := r.read(part)
		if err != nil {
			return found, 0, err
		}
		found = append(found, v)
	}
	return found, 0, err
}

// received stores a verified part, so that other members can get it from here. The last missing part
// completes the opening.
func (a *Auditor) received(q *auditCase, r *partReader, v verifiedPart) {
	g := &q.gathered
	if q.phase != waitsForOpening || v.position >= len(g.parts) || g.parts[v.position] != nil || a.rateIsOver(q) {
		return
	}
	g.parts[v.position], g.chunks[v.position] = v.bytes, v.chunk
	g.since, g.step, g.some = a.Tasks.Now(), a.Client.State().Progress.Step, true
	if q.Trainer != a.me {
		a.openings.Add(q.resultID, len(r.drawn), r.positionOf(v.position), v.bytes)
	}
	if v.fault != audit.FaultNone {
		q.culprit = r.positionOf(v.position)
	}
	if v.fault != audit.FaultNone || g.missing() == 0 {
		a.opened(q, r)
	}
}

// opened starts the next phase of a case with the parts that have arrived, or ends the case if they
// break a rule.
func (a *Auditor) opened(q *auditCase, r *partReader) {
	g := &q.gathered
	claim := q.claim
	claim.Opening = audit.Opening{Step: claim.Header.Step, Trainer: claim.Header.Trainer, Previous: claim.Header.Previous}
	var chunks []uint32
	for i, part := range g.parts {
		if part != nil {
			claim.Opening.Chunks = append(claim.Opening.Chunks, g.chunks[i])
			chunks = append(chunks, g.chunks[i].Chunk)
		}
	}
	q.early, q.chunks = len(chunks) < len(q.chunks), chunks
	g.pause()
	encoded, err := claim.Opening.Encode(r.shapes)
	if err != nil {
		q.end(unclear, "%v", err)
		return
	}
	fault := r.check(claim)
	q.opening, q.claim = encoded, claim
	switch {
	case fault != audit.FaultNone:
		q.end(faulty, "%s", fault.Meaning())
	case q.differ:
		q.end(wrongData, "the data server signed different tokens for the trainer and for this client, so the server is dishonest")
		a.Log.Error("a data server gave two members different tokens for the same batch", "step", q.Step, "batch", q.result.Batch, "trainer", identity.ID(q.Trainer).Short())
	case q.tokens.Sequences == nil:
		q.next(waitsForTokens)
	default:
		q.next(waitsForEngine)
	}
}

// partTime returns the time limit of one request for a part.
func partTime(of env.Auditor) time.Duration {
	return roundTrips + time.Duration(partSize(of))*time.Second/slowestPart
}

// partSize returns the maximum size of a part on the network, in bytes. A simulated trainer, whose
// model is tiny, returns the size for the model that it represents.
func partSize(of env.Auditor) int {
	if sized, ok := of.(interface{ PartSize() int }); ok {
		return sized.PartSize()
	}
	return maxPart(of.Shapes())
}

// excuses reports whether the data server of these tokens signed the tokens of a result's header
// for its trainer.
func excuses(e disclosure, tokens data.Batch, h codec.Header) bool {
	receipt := *tokens.Receipt
	receipt.Hash, receipt.Signature = h.Batch, e.Receipt
	return receipt.Verify()
}
