package sim

import (
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// How long honest members keep what audits and trials need, and how long they wait before they call
// a trainer silent.
const (
	auditedRounds = 12 // newest finished rounds of whose results one is drawn
	keptRounds    = 32 // that members remember; what is younger than keptTime they do as well
	keptTime      = 240 * second
	resend        = second     // before a member sends again what has had no effect
	askAgain      = 4 * second // between two questions for one opening
	leastAsks     = 5          // before anybody is called silent
	aliveRounds   = 3          // newest finished rounds in one of which a silent trainer has to have sent a result
)

// patience is how long somebody asks for an opening before it calls its trainer silent.
type patience struct {
	time   int64
	rounds uint32
}

var (
	auditorsPatience = patience{60 * second, 6}
	jurorsPatience   = patience{30 * second, 4}
)

// result is what is audited: what a trainer sent in a step.
type result struct {
	step    uint32
	trainer coordinator.ClientID
}

// finished is what a member knows of a round that is over.
type finished struct {
	at   int64                  // when it came to know it
	held []coordinator.ClientID // whose results a quorum of the witnesses holds
}

// audited names a round that is over, in one history.
type audited struct {
	seed [32]byte
	step uint32
}

// court is what a process keeps for audits and trials. Everything in it is lost when the process is
// killed. What audits would find is not computed here: who cheats is drawn (machine.cheats), and who
// examines a result comes to know it when its trainer, or somebody else, opens it.
type court struct {
	fresh   uint32              // step of the run when its momentum began as zeros
	made    uint32              // its newest result, as long as it has no opening of it; 0: none
	past    map[uint32]finished // by step
	applied map[uint32]bool     // steps whose results it can examine
	opens   map[result]int64    // openings that it can show, and since when
	heard   map[int]uint32      // per client: newest step of which a result was announced to it
	thrown  uint32              // step of the newest round in which it drew a result to audit
	cases   []*inquiry          // that are not over
	spoke   map[uint32]bool     // steps in which it accused somebody of something that it made up
	asked   map[result]int64    // since when it is asked for an opening
}

func newCourt() court {
	return court{
		past: make(map[uint32]finished), applied: make(map[uint32]bool), opens: make(map[result]int64),
		heard: make(map[int]uint32), spoke: make(map[uint32]bool), asked: make(map[result]int64),
	}
}

// chance draws what a machine does about a step, in so many of a thousand.
func (m *machine) chance(what string, step uint32, perMille uint32) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(what))
	_, _ = h.Write(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, step), m.world.options.Seed))
	_, _ = h.Write(m.id[:])
	return uint32(h.Sum64()>>20)%1000 < perMille
}

// cheats reports whether an audit of the result that the machine sends of a step fails.
func (m *machine) cheats(step uint32) bool {
	return m.roles&(CheatingTrainer|Gang) != 0 && m.chance("cheats", step, 500)
}

func (w *world) machineOf(id coordinator.ClientID) *machine { return w.machines[w.index[[32]byte(id)]] }

// attend lets a process do what it owes to audits and trials in a state that it has got.
func (p *process) attend(s *coordinator.State) {
	if s.Config.VerificationPercent == 0 {
		return
	}
	p.learn(s)
	p.openOwn()
	p.throw(s)
	p.summon(s)
	p.slander(s)
	for _, q := range p.court.cases {
		if !q.busy && p.isOver(s, q) {
			q.over = true
		}
		if !q.busy && !q.over {
			p.pursue(s, q)
		}
	}
	p.court.cases = slices.DeleteFunc(p.court.cases, func(q *inquiry) bool { return q.over && !q.busy })
}

// learn takes note of rounds that are over, and forgets those that nobody asks for any more.
func (p *process) learn(s *coordinator.State) {
	c := &p.court
	for i := range s.Epoch.Rounds {
		round := &s.Epoch.Rounds[i]
		if _, known := c.past[round.Step]; known {
			continue
		}
		if seed, over := s.AuditSeed(round.Step); over {
			c.past[round.Step] = finished{p.world.now, p.world.heldIn(seed, round)}
		}
	}
	for step, f := range c.past {
		if p.isForgotten(s, step, f.at) {
			delete(c.past, step)
			delete(c.applied, step)
		}
	}
	for r, at := range c.opens {
		if p.isForgotten(s, r.step, at) && !isTried(s, r) {
			delete(c.opens, r)
		}
	}
}

// isForgotten reports whether a member keeps nothing of a step any more.
func (p *process) isForgotten(s *coordinator.State, step uint32, since int64) bool {
	if p.world.rules.forgets {
		return step+1 < s.Progress.Step
	}
	return step+keptRounds < s.Progress.Step && p.world.now > since+keptTime
}

func isTried(s *coordinator.State, r result) bool {
	return slices.ContainsFunc(s.Trials, func(t coordinator.Trial) bool { return t.Accused == r.trainer && t.Step == r.step })
}

// heldIn returns whose results a quorum of a round's witnesses holds: those of whose announcements it
// has the commitment. What it says of members alone it can say of who sent nothing. The audit seed
// depends on all that decides it.
func (w *world) heldIn(seed [32]byte, round *coordinator.Round) []coordinator.ClientID {
	key := audited{seed, round.Step}
	held, known := w.held[key]
	if known {
		return held
	}
	for _, a := range w.draws.Assignments(round, w.plan.config) {
		id := round.Members[a.Member]
		var blobs [][32]byte
		for _, s := range w.registry.of(round.Step, a.Batch, identity.ID(id)) {
			blobs = append(blobs, s.announcement.Blob)
		}
		if _, counts := round.Counted(blobs); round.HasQuorum() && counts && !slices.Contains(held, id) {
			held = append(held, id)
		}
	}
	w.held[key] = held
	return held
}

// openOwn makes the opening of the newest own result once its round is over.
func (p *process) openOwn() {
	c := &p.court
	if f, over := c.past[c.made]; c.made != 0 && over {
		if me := coordinator.ClientID(p.machine.id); slices.Contains(f.held, me) {
			c.opens[result{c.made, me}] = p.world.now
		}
		c.made = 0
	}
}

// beginsAnew is called before the momentum changes. It reports whether the run has to know first that
// it begins as zeros: it does not go on from what earlier results of this client show, or nobody could
// open these. The client leaves for that, and takes its seat back.
func (p *process) beginsAnew() bool {
	s, c := p.newest, &p.court
	if s == nil || s.Config.VerificationPercent == 0 || p.world.rules.goesOn {
		return false
	}
	if c.made != 0 { // nobody told it in time what to open of its newest result
		c.fresh, c.made = s.Progress.Step, 0
	}
	me := coordinator.ClientID(p.machine.id)
	member, ok := s.Member(me)
	if !ok || member.OptimizerSince >= c.fresh {
		return false
	}
	p.sendAside(coordinator.Withdraw{Client: me})
	return true
}

// loses notes that the momentum is zeros.
func (p *process) losesMomentum() {
	p.court.fresh, p.court.made = 0, 0
	if p.newest != nil {
		p.court.fresh = p.newest.Progress.Step
	}
	clear(p.court.applied)
}

// shows reports whether a process that is asked shows the opening of a result.
func (p *process) shows(asker *process, r result) bool {
	m := p.machine
	if _, has := p.court.opens[r]; !has {
		return false
	}
	if p.court.asked[r] == 0 {
		p.court.asked[r] = p.world.now
	}
	own := r.trainer == coordinator.ClientID(m.id)
	switch {
	case m.lies(Gang):
		return asker.machine.lies(Gang)
	case !own:
		return true
	case m.lies(CheatingTrainer) && m.cheats(r.step) && m.chance("opens", r.step, 500):
		return false
	case m.lies(Silent):
		return p.isSoSilent(asker, r)
	case m.lies(Fleeing) && m.chance("flees", r.step, 500):
		p.sendAside(coordinator.Withdraw{Client: coordinator.ClientID(m.id)})
		return false
	}
	return true
}

// isSoSilent is how a trainer is silent: some open to nobody, some late, some to one half of those that
// ask.
func (p *process) isSoSilent(asker *process, r result) bool {
	switch p.machine.index % 3 {
	case 0:
		return false
	case 1:
		return p.world.now >= p.court.asked[r]+20*second
	default:
		return (asker.machine.index+int(r.step))%2 == 0
	}
}
