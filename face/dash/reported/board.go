package reported

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/record/event"
)

// Limits of a Board.
const (
	maxPoints  = 4096
	maxMembers = 512
	maxTasks   = 64
	maxScores  = 1000 // per task
	maxNotices = 300
	maxEnds    = 8 // kinds of audit results
)

// Point is the losses of one step, or of several consecutive steps.
type Point struct {
	Step    uint32  `json:"s"` // first step
	Steps   uint32  `json:"n"` // number of steps
	Sum     float64 `json:"-"`
	Losses  uint32  `json:"-"`
	Seconds float64 `json:"-"` // computing time, summed over members
	Loss    float64 `json:"l"` // mean; set only by Points
}

// Member is the newest report of a member.
type Member struct {
	ID       string  `json:"id"`
	Step     uint32  `json:"step"`
	Loss     float64 `json:"loss"`     // −1: no valid loss
	Speed    float64 `json:"speed"`    // tokens per second of computing
	Memory   uint64  `json:"memory"`   // bytes
	Sent     uint64  `json:"sent"`     // bytes to peers
	Received uint64  `json:"received"` // bytes from peers
	Paid     uint64  `json:"paid"`     // lamports
	Trained  uint64  `json:"trained"`  // results
	Seconds  float64 `json:"seconds"`  // computing time

	Audits map[string]uint64 `json:"audits,omitempty"` // number of audits that it reports, by their result

	Arrives *event.Transfer `json:"arrives,omitempty"` // download of a model in progress
	Uploads *event.Transfer `json:"uploads,omitempty"` // upload of a checkpoint in progress
}

// Score is a model's result in a task.
type Score struct {
	Step  uint32  `json:"s"` // step of the model
	Value float64 `json:"v"` // share of correct answers, or another metric of the task
}

// Notice is a member's note about itself or a peer.
type Notice struct {
	Time    int64  `json:"t"` // Unix, milliseconds
	Member  string `json:"member"`
	Kind    string `json:"kind"`
	Step    uint32 `json:"step"`
	Subject string `json:"subject,omitempty"`
	Text    string `json:"text"`
}

// Board collects the reports of a run's members. Its methods are safe for concurrent use.
type Board struct {
	mu      sync.RWMutex
	version uint64
	each    uint32
	points  map[uint32]*Point // by step/each
	members map[string]*Member
	tasks   map[string][]Score
	notices []Notice
}

// New returns an empty board.
func New() *Board {
	return &Board{each: 1, points: map[uint32]*Point{}, members: map[string]*Member{}, tasks: map[string][]Score{}}
}

// Shown is a copy of a board's contents.
type Shown struct {
	Points  []Point            `json:"points"`
	Members []Member           `json:"members"`
	Tasks   map[string][]Score `json:"tasks"`
	Notices []Notice           `json:"notices"`
}

// Version returns a number that increases with every change.
func (b *Board) Version() uint64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.version
}

// Show returns the board's contents, with at most n points.
func (b *Board) Show(n int) Shown {
	b.mu.RLock()
	defer b.mu.RUnlock()
	shown := Shown{Points: []Point{}, Members: []Member{}, Tasks: maps.Clone(b.tasks), Notices: slices.Clone(b.notices)}
	keys := slices.Sorted(maps.Keys(b.points))
	each := max(1, (len(keys)+n-1)/n)
	for i, key := range keys {
		if i%each == 0 {
			shown.Points = append(shown.Points, *b.points[key])
			continue
		}
		shown.Points[len(shown.Points)-1].join(b.points[key])
	}
	for i := range shown.Points {
		p := &shown.Points[i]
		p.Loss = p.Sum / float64(p.Losses)
	}
	for _, m := range b.members {
		shown.Members = append(shown.Members, *m)
	}
	slices.SortFunc(shown.Members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return shown
}

// Moving returns the members that are downloading a model or uploading a checkpoint, ordered by id.
func (b *Board) Moving() (moving []Member) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, m := range b.members {
		if m.Arrives != nil || m.Uploads != nil {
			moving = append(moving, *m)
		}
	}
	slices.SortFunc(moving, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return moving
}

func (p *Point) join(next *Point) {
	p.Steps = next.Step + next.Steps - p.Step
	p.Sum += next.Sum
	p.Losses += next.Losses
	p.Seconds += next.Seconds
}

// See processes an event of a member.
func (b *Board) See(member string, e event.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.version++
	m, known := b.members[member]
	if !known {
		if len(b.members) == maxMembers {
			return
		}
		m = &Member{ID: member, Loss: -1}
		b.members[member] = m
	}
	note := func(step uint32, subject, text string) {
		if len(b.notices) == maxNotices {
			b.notices = slices.Delete(b.notices, 0, maxNotices/8)
		}
		b.notices = append(b.notices, Notice{e.Time.UnixMilli(), member, e.Body.Kind(), step, subject, text})
	}
	switch body := e.Body.(type) {
	case event.Trained:
		b.trained(m, body)
	case event.Wire:
		m.Sent, m.Received = body.P2PSent, body.P2PReceived
	case event.Paid:
		m.Paid = body.Lamports
	case event.Evaluated:
		b.evaluated(body)
	case event.Audit:
		m.audited(body)
	case event.Accused:
		note(body.Step, body.Client, body.Fault+": "+body.Detail)
	case event.Transfer:
		m.moves(body)
	case event.Ready:
		m.Arrives = nil
	case event.Started, event.Finished:
		m.Arrives, m.Uploads = nil, nil
	case event.Desynchronised:
		note(body.Step, "", body.Reason)
	case event.Rejoined:
		note(body.Step, "", "")
	case event.Rejected:
		note(body.Step, body.From, body.Reason)
	case event.Equivocation:
		note(body.Step, body.From, "signed two results for one batch")
	case event.Misbehaved:
		note(m.Step, body.Peer, body.Fault+": "+body.Detail)
	case event.Failed:
		m.Arrives, m.Uploads = nil, nil
		note(m.Step, "", body.Error)
	}
}

// audited counts an audit. It replaces the map, because callers of Show may hold the old one.
func (m *Member) audited(a event.Audit) {
	if _, known := m.Audits[a.Outcome]; !known && len(m.Audits) == maxEnds {
		return
	}
	m.Audits = maps.Clone(m.Audits)
	if m.Audits == nil {
		m.Audits = map[string]uint64{}
	}
	m.Audits[a.Outcome]++
}

// moves updates the progress of a transfer. It removes a complete transfer.
func (m *Member) moves(t event.Transfer) {
	moving := &t
	if t.Bytes >= t.Total {
		moving = nil
	}
	switch t.What {
	case event.TransferUpload:
		m.Uploads = moving
	case event.TransferModel, event.TransferResults, event.TransferDownload:
		m.Arrives = moving
	}
}

func (b *Board) trained(m *Member, t event.Trained) {
	loss := float64(t.Loss)
	finite := !math.IsNaN(loss) && !math.IsInf(loss, 0)
	m.Step, m.Memory, m.Loss = t.Step, max(m.Memory, t.Memory), -1
	m.Trained++
	if t.Seconds > 0 && !math.IsInf(t.Seconds, 0) {
		m.Seconds += t.Seconds
		m.Speed = float64(t.Tokens) / t.Seconds
	}
	if !finite {
		return
	}
	m.Loss = loss
	p, known := b.points[t.Step/b.each]
	if !known {
		if len(b.points) == maxPoints {
			b.merge()
		}
		if p = b.points[t.Step/b.each]; p == nil {
			p = &Point{Step: t.Step / b.each * b.each, Steps: b.each}
			b.points[t.Step/b.each] = p
		}
	}
	p.Sum += loss
	p.Losses++
	p.Seconds += t.Seconds
}

// merge merges pairs of points.
func (b *Board) merge() {
	b.each *= 2
	merged := make(map[uint32]*Point, maxPoints)
	for _, p := range b.points {
		key := p.Step / b.each
		into, known := merged[key]
		if !known {
			into = &Point{Step: key * b.each, Steps: b.each}
			merged[key] = into
		}
		into.Sum += p.Sum
		into.Losses += p.Losses
		into.Seconds += p.Seconds
	}
	b.points = merged
	if len(b.points) > maxPoints/2+1 && b.each < 1<<30 {
		b.merge()
	}
}

// evaluated adds a score. It keeps a task's scores in the order of steps, and the newest for each
// step.
func (b *Board) evaluated(e event.Evaluated) {
	for metric, value := range e.Scores {
		task := e.Task + "/" + metric
		if _, known := b.tasks[task]; !known && len(b.tasks) == maxTasks || math.IsNaN(value) || math.IsInf(value, 0) {
			continue
		}
		scores := b.tasks[task]
		at, found := slices.BinarySearchFunc(scores, e.Step, func(s Score, step uint32) int { return cmp.Compare(s.Step, step) })
		if found {
			scores = slices.Clone(scores)
			scores[at].Value = value
		} else {
			scores = slices.Insert(slices.Clone(scores), at, Score{e.Step, value})
		}
		if len(scores) > maxScores {
			scores = scores[1:]
		}
		b.tasks[task] = scores
	}
}

// Follow processes the events of a member's log until ctx ends. boardOf returns the board for the
// log's run, or nil to ignore the log.
func Follow(ctx context.Context, path string, boardOf func(runID string) *Board, logger *slog.Logger) {
	var board *Board
	var member string
	for e, err := range event.Follow(ctx, path) {
		if err != nil {
			logger.Warn("cannot read the rest of an event log; new events are not shown", "file", path, "error", err)
			return
		}
		if started, ok := e.Body.(event.Started); ok {
			member, board = started.ID, nil
			if started.Role == "client" {
				board = boardOf(started.RunID)
			}
		}
		if board != nil {
			board.See(member, e)
		}
	}
}
