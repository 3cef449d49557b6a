package sim

import (
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/psyche-go/psyche/coordinator"
)

// resend is how long a member waits before it sends again what has had no effect.
const resend = second / 2

// patience is how long a verifier waits for a trainer to open.
const patience = 2 * second

// court is what a process owes to audits and trials, and what it keeps for its own. Everything in
// it is lost when the process is killed. What audits would find is not computed here: who cheats is
// drawn (machine.cheats, machine.invents), and honest members come to know it as they would.
type court struct {
	trained []uint32                       // steps of which it can open its results
	sealed  []uint32                       // steps of which it can open its prints
	asked   map[uint32]int64               // step of an audit: since when it asks the trainer
	refused map[uint32]bool                // step of an audit: the trainer did not open
	sent    map[coordinator.ClientID]int64 // when it sent what it owes to a trial
	about   map[uint32]int64               // when it sent what it owes to an audit
	awaited map[duty]int64                 // a verifier's part: since when it is asked to reveal
}

func newCourt() court {
	return court{
		asked: make(map[uint32]int64), refused: make(map[uint32]bool), sent: make(map[coordinator.ClientID]int64),
		about: make(map[uint32]int64), awaited: make(map[duty]int64),
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

// invents reports whether the machine makes up what it seals as the verifier of a step.
func (m *machine) invents(step uint32) bool {
	return m.roles&(LazyVerifier|Gang) != 0 && m.chance("invents", step, 500)
}

// hides reports whether the machine does not reveal what it sealed as the verifier of a step.
func (m *machine) hides(step uint32) bool {
	return m.lies(LazyVerifier) && m.chance("hides", step, 300)
}

// isGuilty reports whether what a client is accused of is true, if it opens.
func (w *world) isGuilty(t *coordinator.Trial) bool {
	accused := w.machineOf(t.Accused)
	if t.Fault.OfVerifier() {
		return accused.invents(t.Step)
	}
	return accused.cheats(t.Step - 1)
}

func (w *world) machineOf(id coordinator.ClientID) *machine { return w.machines[w.index[[32]byte(id)]] }

// opensTo reports whether a machine that is asked opens what it did in a step, as the trainer or as
// the verifier of it.
func (m *machine) opensTo(p *process, step uint32, prints bool) bool {
	w, to := m.world, m.process
	if to == nil || !w.healed && (w.cut[m.index] > 0 || w.cut[p.machine.index] > 0) {
		return false
	}
	if m.lies(Gang) || m.lies(CheatingTrainer) && m.cheats(step) && m.chance("opens", step, 500) {
		return false
	}
	if prints {
		return !m.hides(step) && slices.Contains(to.court.sealed, step)
	}
	return slices.Contains(to.court.trained, step)
}

// attend lets a process do what it owes to audits and trials in a state that it has just got.
func (p *process) attend(s *coordinator.State) {
	if s.Config.VerificationPercent == 0 || s.CurrentRound() == nil {
		return
	}
	for _, audit := range p.audits(s) {
		p.audit(s, audit)
	}
	p.intrude(s)
	for step := s.Progress.Step - min(s.Progress.Step, coordinator.AccuseRounds); step <= s.Progress.Step; step++ {
		p.accuse(s, step)
	}
	for i := range s.Epoch.Trials {
		trial := s.Epoch.Trials[i]
		switch me := coordinator.ClientID(p.machine.id); {
		case trial.Accused == me:
			p.defend(s, &trial)
		case trial.IsJuror(me) && !trial.HasVoted(me) && trial.MayVote(s.Progress.Step):
			p.vote(&trial)
		}
	}
}

// intrude has slanderers seal in rounds in which they train, and accuse who audits somebody else.
func (p *process) intrude(s *coordinator.State) {
	step, me := s.Progress.Step, coordinator.ClientID(p.machine.id)
	if !p.machine.lies(Slanderer) || p.world.now < p.court.about[step]+resend {
		return
	}
	docket := p.world.dockets.of(s, step)
	if _, audits := docket.audit(me); audits {
		return
	}
	p.court.about[step] = p.world.now
	p.sendAside(coordinator.SealVerdict{Step: step, Seal: [32]byte{1}})
	for _, id := range s.CurrentRound().Members {
		if audit, audits := docket.audit(id); audits && audit.Trainer != me {
			p.sendAside(coordinator.Accuse{Step: step, Client: id, Fault: coordinator.FaultPrints})
			return
		}
	}
}

// audit seals, asks, and gives a verdict. Lazy verifiers do nothing at all in a third of the rounds.
func (p *process) audit(s *coordinator.State, a coordinator.Audit) {
	m := p.machine
	if a.Judged || p.world.now < p.court.about[a.Step]+resend || m.roles&LazyVerifier != 0 && m.chance("idles", a.Step, 300) {
		return
	}
	p.court.about[a.Step] = p.world.now
	if hurries := m.roles&LazyVerifier != 0 && m.chance("hurries", a.Step, 300); hurries && p.court.asked[a.Step] == 0 {
		p.court.asked[a.Step] = p.world.now
		p.sendAside(coordinator.Verdict{Step: a.Step, Passed: true}) // without a seal
		return
	}
	if !a.Sealed {
		p.court.sealed = append(p.court.sealed, a.Step)
		p.sendAside(coordinator.SealVerdict{Step: a.Step, Seal: [32]byte{1}})
		return
	}
	if p.court.asked[a.Step] == 0 {
		p.court.asked[a.Step] = p.world.now
	}
	opened := p.world.machineOf(a.Trainer).opensTo(p, a.Step-1, false)
	if !opened && p.world.now < p.court.asked[a.Step]+patience && s.Progress.Step == a.Step {
		return
	}
	p.court.refused[a.Step] = !opened
	p.sendAside(coordinator.Verdict{Step: a.Step, Passed: opened && !p.world.machineOf(a.Trainer).cheats(a.Step-1), Body: [32]byte{1}})
}

// accuse accuses whom an audit found wanting, and who should have audited the same, or the own
// result, and shows no work. Slanderers, and the gang, accuse whom they can.
func (p *process) accuse(s *coordinator.State, step uint32) {
	me := coordinator.ClientID(p.machine.id)
	if p.world.now < p.court.about[step]+resend {
		return
	}
	docket := p.world.dockets.of(s, step)
	for _, verifier := range docket.auditors(me) {
		if p.accuseVerifier(s, step, verifier) {
			return
		}
	}
	audit, ok := docket.audit(me)
	if !ok || !audit.Judged {
		return
	}
	for _, fellow := range docket.auditors(audit.Trainer) {
		if fellow != me && p.accuseVerifier(s, step, fellow) {
			return
		}
	}
	trainer := p.world.machineOf(audit.Trainer)
	switch refused, known := p.court.refused[step]; {
	case known && refused && !p.machine.lies(Gang):
		p.accuseOf(s, step, audit.Trainer, coordinator.FaultUnopened)
	case p.suspects(trainer, known && trainer.cheats(step-1), step):
		if !p.machine.lies(Gang) || p.machine.chance("fault", step, 700) {
			p.accuseOf(s, step, audit.Trainer, coordinator.FaultResult)
		} else {
			p.accuseOf(s, step, audit.Trainer, coordinator.FaultUnopened)
		}
	}
}

// accuseOf accuses a member of a fault, if it may.
func (p *process) accuseOf(s *coordinator.State, step uint32, id coordinator.ClientID, fault coordinator.Fault) bool {
	a := coordinator.Accuse{Step: step, Client: id, Fault: fault}
	if s.MayAccuse(coordinator.ClientID(p.machine.id), a) != nil {
		return false
	}
	p.court.about[step] = p.world.now
	p.sendAside(a)
	return true
}

// accuseVerifier accuses a verifier of the step that reveals what it made up, or reveals nothing for
// a while.
func (p *process) accuseVerifier(s *coordinator.State, step uint32, id coordinator.ClientID) bool {
	other := p.world.machineOf(id)
	shown := other.opensTo(p, step, true)
	if p.suspects(other, shown && other.invents(step), step) && p.accuseOf(s, step, id, coordinator.FaultPrints) {
		return true
	}
	member, ok := p.world.dockets.of(s, step).now.MemberIndex(id)
	if shown || !ok || !s.RoundOfStep(step).Judged.Has(member) || p.machine.lies(Gang) {
		return false
	}
	asked := duty{step, id}
	if p.court.awaited[asked] == 0 {
		p.court.awaited[asked] = p.world.now
	}
	return p.world.now >= p.court.awaited[asked]+patience && p.accuseOf(s, step, id, coordinator.FaultUnrevealed)
}

// suspects reports whether a process says that another machine cheated: because it did, or in spite
// of that it did not.
func (p *process) suspects(other *machine, did bool, step uint32) bool {
	switch {
	case p.machine.lies(Gang):
		return !other.lies(Gang) && p.machine.chance("slander", step, 400)
	case p.machine.lies(Slanderer):
		return did || p.machine.chance("slander", step, 500)
	case p.machine.lies(LazyVerifier) && p.machine.invents(step):
		return false
	default:
		return did
	}
}

// defend opens. Who cannot, because it was started again since, gives up its seat.
func (p *process) defend(s *coordinator.State, t *coordinator.Trial) {
	m := p.machine
	if len(t.Jury) == 0 || t.Opening != [32]byte{} || s.Progress.Step > t.OpenUntil() || p.world.now < p.court.sent[t.Accused]+resend {
		return
	}
	can := slices.Contains(p.court.trained, t.Step-1)
	if t.Fault.OfVerifier() {
		can = slices.Contains(p.court.sealed, t.Step)
	}
	p.court.sent[t.Accused] = p.world.now
	switch {
	case m.roles&(Gang|CheatingTrainer) != 0 && m.chance("defends", t.Step, 400):
	case can:
		p.sendAside(coordinator.Open{Step: t.Step, Blob: [32]byte{1}})
	default:
		p.sendAside(coordinator.Withdraw{Client: t.Accused})
	}
}

// vote votes. Honest jurors find out; where nothing is opened they ask the accused itself.
func (p *process) vote(t *coordinator.Trial) {
	if p.world.now < p.court.sent[t.Accused]+resend {
		return
	}
	p.court.sent[t.Accused] = p.world.now
	m, accused := p.machine, p.world.machineOf(t.Accused)
	step, prints := t.Step-1, t.Fault.OfVerifier()
	if prints {
		step = t.Step
	}
	guilty := p.world.isGuilty(t) || t.Opening == [32]byte{} && !accused.opensTo(p, step, prints)
	switch {
	case m.lies(Gang):
		guilty = !accused.lies(Gang)
		if accused.lies(Gang) && m.chance("abstains", t.Step, 500) {
			return
		}
	case m.lies(Slanderer):
		guilty = true
	case m.lies(LazyVerifier):
		if m.chance("abstains", t.Step, 300) {
			return
		}
		guilty = m.chance("guesses", t.Step, 500)
	}
	p.sendAside(coordinator.Vote{Step: t.Step, Client: t.Accused, Guilty: guilty, Body: [32]byte{1}})
}
