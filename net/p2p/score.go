package p2p

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
)

// Fault is a kind of misbehaviour of a member.
type Fault string

// Faults and their weights in points.
const (
	FaultWrongBytes Fault = "wrong bytes"     // 50: does not happen by accident
	FaultInvalid    Fault = "invalid message" // 20: a message that no honest member sends
	FaultFlood      Fault = "flood"           // 10: more messages than a member may send
	FaultStall      Fault = "stall"           // 10: sends nothing, or only a few bytes a second
)

func (f Fault) points() float64 {
	switch f {
	case FaultWrongBytes:
		return 50
	case FaultInvalid:
		return 20
	}
	return 10
}

const (
	// avoidedFrom is the number of points from which on a member is asked only if no other is left.
	// maxPenalty is the maximum number of points. Half of a member's points are forgiven every
	// forgiveness.
	avoidedFrom = 20
	maxPenalty  = 400
	forgiveness = 10 * time.Minute

	maxRecords = 1024
	// reportEvery is the minimum time between reports of one member's faults of one kind.
	reportEvery = 10 * time.Second
)

// Penalty is one fault of a member.
type Penalty struct {
	Peer   identity.ID
	Fault  Fault
	Detail string
	Times  int     // number of faults since the last report
	Score  float64 // negative sum of the member's points that are not yet forgiven
}

// conduct is the record of one member's faults. It is kept when the member leaves, so that leaving
// and joining again does not clear it.
type conduct struct {
	points   float64
	grave    float64 // without points for stalls
	at       time.Time
	pardoned time.Time // when a new connection last cleared the points for stalls
	faults   map[Fault]*report
}

// report is the last report of a member's faults of one kind.
type report struct {
	at     time.Time
	unsaid int
}

func (c *conduct) now() float64 {
	if c == nil {
		return 0
	}
	return c.points * c.left()
}

// left returns the fraction of the points that is not forgiven yet.
func (c *conduct) left() float64 {
	return math.Exp2(-float64(time.Since(c.at)) / float64(forgiveness))
}

// records contains the records of all members.
type records struct {
	mu sync.Mutex
	by map[identity.ID]*conduct
}

// add counts a fault and returns the penalty to report, if any.
func (rs *records) add(id identity.ID, fault Fault, detail string) (Penalty, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.by[id]
	if r == nil {
		rs.makeRoom()
		r = &conduct{faults: make(map[Fault]*report)}
		rs.by[id] = r
	}
	r.grave *= r.left()
	if fault != FaultStall {
		r.grave = min(r.grave+fault.points(), maxPenalty)
	}
	r.points = min(r.now()+fault.points(), maxPenalty)
	r.at = time.Now()
	said := r.faults[fault]
	if said == nil {
		said = &report{}
		r.faults[fault] = said
	}
	said.unsaid++
	if time.Since(said.at) < reportEvery {
		return Penalty{}, false
	}
	p := Penalty{Peer: id, Fault: fault, Detail: detail, Times: said.unsaid, Score: -r.points}
	said.at, said.unsaid = time.Now(), 0
	return p, true
}

// makeRoom removes the record with the fewest points.
func (rs *records) makeRoom() {
	if len(rs.by) < maxRecords {
		return
	}
	var minimum identity.ID
	points := math.Inf(1)
	for id, r := range rs.by {
		if now := r.now(); now < points {
			minimum, points = id, now
		}
	}
	delete(rs.by, minimum)
}

// connected forgives all stalls of a member with a new connection: the member may have been
// restarted, or its link may have been down, when it was asked. It does this at most once in every
// forgiveness, because a member that stalls deliberately could also reconnect.
func (rs *records) connected(id identity.ID) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.by[id]
	if r == nil || r.points <= r.grave || time.Since(r.pardoned) < forgiveness {
		return
	}
	r.points, r.pardoned = r.grave, time.Now()
}

func (rs *records) points(id identity.ID) float64 {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.by[id].now()
}

func (rs *records) gravePoints(id identity.ID) float64 {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.by[id]
	if r == nil {
		return 0
	}
	return r.grave * r.left()
}

// Penalise records a fault of a member. The node logs it and calls Options.OnPenalty. The node asks
// penalised members last for blobs, and ignores a member with too many points, not counting points
// for stalls. Points halve every ten minutes.
func (n *Node) Penalise(id identity.ID, fault Fault, detail string) {
	p, report := n.records.add(id, fault, detail)
	if !report {
		return
	}
	level, message := slog.LevelWarn, "p2p: member misbehaves"
	if fault == FaultStall { // an honest member on a slow link also stalls
		level, message = slog.LevelInfo, "p2p: member is slow to send"
	}
	n.logger.Log(context.Background(), level, message, "member", id.Short(), "fault", string(fault), "detail", detail, "times", p.Times, "score", math.Round(p.Score))
	if n.onPenalty != nil {
		n.onPenalty(p)
	}
}

// Score returns a member's score: 0 without penalties, otherwise negative.
func (n *Node) Score(id identity.ID) float64 { return 0 - n.records.points(id) }

// GraveScore is the score without penalties for stalls. An honest member with a slow connection and
// many requests stalls just like a member that stalls deliberately. Stalls therefore only move a
// member to the end of the order for blobs.
func (n *Node) GraveScore(id identity.ID) float64 { return 0 - n.records.gravePoints(id) }

// Avoids reports whether the node prefers other members because of recent misbehaviour.
func (n *Node) Avoids(id identity.ID) bool { return n.records.points(id) >= avoidedFrom }
