package client

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/coordinator"
)

// duties are what a member does, in a run with audits, that others can rely on results: it opens its
// own, looks at those of others when it has time, and votes in trials. Nothing of it is due: who is
// slow, or was away, looks at less.
type duties struct {
	past     audits.Past
	depot    *audits.Depot
	openings *audits.Openings
	dice     audits.Dice
	chain    *chain              // nil: this client has no result that another could go on from
	seeds    map[uint32][32]byte // that say what is opened of results, by their step
	fresh    uint32              // the run must know that the optimizer began not before this step

	thrown   uint32 // step of the round of the newest throw
	reviews  map[audits.Key]*review
	looked   map[audits.Key]bool // at results of the newest rounds: they are not drawn again
	sound    soundness
	sameData map[coordinator.ClientID]bool // whether a trainer read the same tokens as this client
	trials   map[audits.Key]*jury
}

// resultShare is the part of the memory for results that those kept for audits may take.
const resultShare = 4

// newDuties sets up what is kept for audits.
func newDuties(o *Options, log *slog.Logger) *duties {
	folder := o.folder()
	var own, parent string
	if folder.Dir != "" {
		parent = filepath.Join(folder.Dir, "audits-"+folder.ID.Short())
		own = filepath.Join(parent, folder.Name())
		if err := audits.Sweep(parent); err != nil {
			log.Warn("remove what an earlier process kept for audits", "err", err)
		}
	}
	return &duties{
		depot: audits.NewDepot(parent, o.ResultMemory/resultShare), openings: audits.NewOpenings(o.Key.ID(), own),
		seeds: make(map[uint32][32]byte), reviews: make(map[audits.Key]*review), looked: make(map[audits.Key]bool),
		sameData: make(map[coordinator.ClientID]bool), trials: make(map[audits.Key]*jury),
	}
}

// duty is a client as far as it does its duties.
type duty struct{ *Node }

// auditor returns the trainer where results are audited, else nil.
func (n duty) auditor() env.Auditor {
	if auditor, ok := n.engine.trainer.(env.Auditor); ok && n.engine.built.Audited {
		return auditor
	}
	return nil
}

// chain returns what ties the own results together; nil where nothing is audited.
func (n duty) chain() *chain {
	auditor, d := n.auditor(), n.seat.duties
	if auditor != nil && (d.chain == nil || d.chain.auditor != auditor) {
		d.chain = &chain{me: n.run.myself(), auditor: auditor, openings: d.openings, now: n.tasks.Now, emit: n.report.emit, log: n.report.log}
	}
	return d.chain
}

// forgetMomentum notes that the momentum begins as zeros.
func (d *duties) forgetMomentum(step uint32) { d.chain, d.fresh = nil, step }

// look takes over what a newer state says: before anything is done about it, as what is to be opened
// has to be known before the next result is made.
func (n duty) look() {
	d, s := n.seat.duties, n.run.state
	if s.Config.VerificationPercent == 0 {
		return
	}
	d.fresh, d.thrown = min(d.fresh, s.Progress.Step), min(d.thrown, s.Progress.Step+1) // the host may have gone back
	for i := range s.Epoch.Rounds {
		if seed, ok := s.AuditSeed(s.Epoch.Rounds[i].Step); ok {
			d.seeds[s.Epoch.Rounds[i].Step] = seed
		}
	}
	needed := d.needed(s.Progress.Step)
	for step := range d.seeds {
		_, kept := d.past.Round(step)
		if !kept && step+coordinator.StoredRounds < min(needed, s.Progress.Step) || step > s.Progress.Step {
			delete(d.seeds, step)
		}
	}
	d.openings.Prune(s.Progress.Step, needed, n.tasks.Now())
	n.findTrials()
}

// needed returns the step from which on rounds are needed for open trials, or the given one.
func (d *duties) needed(step uint32) uint32 {
	for key := range d.trials {
		step = min(step, key.Step)
	}
	return step
}

// goOn decides about the own newest result and opens it. It reports whether the next one, of that
// step, can be made.
func (n duty) goOn(step uint32) bool {
	c, d := n.chain(), n.seat.duties
	if c == nil {
		return true
	}
	l := c.look()
	if l.step == 0 || l.step >= step {
		return n.begins()
	}
	switch l = n.follow(c); {
	case !l.decided:
		return false
	case l.held && (l.failed || !l.drawn && d.seeds[l.step] == [32]byte{} && n.run.state.RoundOfStep(l.step) == nil):
		// Nobody can be shown this result any more: others have to know that it is not for want of will.
		d.fresh = max(d.fresh, min(l.step+1, n.run.state.Progress.Step))
		return n.begins()
	}
	return (!l.held || l.drawn) && n.begins()
}

// follow finds out what became of the own newest result, and opens it.
func (n duty) follow(c *chain) link {
	l := c.look()
	if l.step != 0 && !l.decided {
		n.decide(c, l.step)
	}
	if l.step != 0 && !l.drawn {
		n.draw(c, l.step)
	}
	return c.look()
}

// decide finds out whether the own result of a step is held, once its round is over.
func (n duty) decide(c *chain, step uint32) {
	l := n.rounds.of[step]
	if l == nil && n.replica != nil && step < n.run.state.Progress.Step {
		n.restart(step)
	}
	if l == nil || !l.Final {
		return
	}
	o := l.Judge(n.tasks.Now(), false)
	if l.over.IsZero() {
		l.over = n.tasks.Now()
	}
	held, known := l.IsHeld(l.commitment, o)
	// What is not known is what the others find as well, once they apply the round: they may hear more.
	waited := n.tasks.Now().Sub(l.over) > unsurePatience && (n.replica == nil || n.replica.step >= step)
	if announced := l.commitment != [32]byte{}; known || !announced || waited {
		c.decide(step, held && announced)
	}
}

// restart begins with a momentum of zeros: what became of the newest result cannot be known any more.
func (n duty) restart(step uint32) {
	if !n.engine.idle() {
		return
	}
	n.report.log.Warn("it is not known what became of the own result: the momentum begins anew", "step", step)
	trainer, now := n.engine.trainer, n.run.state.Progress.Step
	n.engine.start(opPrepare, 0, func(ctx context.Context) func() {
		err := trainer.ResetOptimizer(ctx)
		return func() {
			if err == nil {
				n.seat.duties.forgetMomentum(now)
			}
		}
	})
}

// draw has the own result of a step opened once its seed is known.
func (n duty) draw(c *chain, step uint32) {
	d, l := n.seat.duties, n.rounds.of[step]
	seed, known := d.seeds[step]
	if !known || l == nil {
		return
	}
	var before *audits.Senders
	if step > l.EpochStart {
		round, found := d.past.Round(step - 1)
		if !found {
			return // not applied yet
		}
		before = round.Senders
	}
	c.draw(step, seed, before)
	n.tasks.Spawn(func(context.Context) func() {
		c.open()
		return func() {}
	})
}

// begins reports whether the run knows since when the optimizer remembers, and makes it know where it
// does not: who leaves and takes its seat back has a new one. An earlier process of this client has
// made results otherwise, and whoever audits this one's would take it for a cheat.
func (n duty) begins() bool {
	if n.run.clientOf(n.run.myself()).OptimizerSince >= n.seat.duties.fresh {
		return true
	}
	n.errands.submit("withdraw", n.run.state.Progress.Step, coordinator.Withdraw{Client: n.run.myself()}, func() {
		n.report.log.Info("the momentum begins anew: leaving for a moment, so that the run knows it")
	})
	return false
}

// attend does what there is to do. It is called after every event.
func (n duty) attend() {
	d := n.seat.duties
	if n.run.state.Config.VerificationPercent == 0 || n.auditor() == nil {
		return
	}
	n.follow(n.chain()) // although no training waits for that
	for _, key := range slices.SortedFunc(maps.Keys(d.trials), audits.Key.Compare) {
		n.judge(d.trials[key])
	}
	n.audit()
}

// weights returns the newest step that is applied to the trainer's weights; false while they are of
// no step.
func (n duty) weights() (step uint32, ok bool) {
	switch m := n.models.Held; {
	case n.replica != nil:
		return n.replica.step, !n.replica.closing
	case m != nil && n.holdsNewest():
		return m.Step, true
	}
	return 0, false
}

// holdsNewest reports whether the trainer's weights are those of the epoch that this client was in last.
func (n duty) holdsNewest() bool {
	rounds := n.seat.duties.past.Rounds(1)
	return len(rounds) > 0 && rounds[0].Step == n.models.Held.Step
}

// keep takes over what is kept of a round that was applied.
func (n duty) keep(r *record, err error) {
	d := n.seat.duties
	if err != nil {
		for _, result := range r.round.Results {
			d.depot.Drop(result.Commitment)
		}
		n.report.log.Warn("the results of a round are not kept: this client audits nothing of it", "step", r.round.Step, "err", err)
		return
	}
	r.round.At = n.tasks.Now()
	d.depot.Drop(d.past.Add(r.round, d.needed(r.round.Step))...)
}

// forget forgets all rounds: the model that follows does not go on from there.
func (d *duties) forget() { d.depot.Drop(d.past.Forget()...) }

// clientOf returns what the run knows of a client, the zero value of one that it does not.
func (v *view) clientOf(id coordinator.ClientID) coordinator.Client {
	for _, clients := range [][]coordinator.Client{v.state.Epoch.Clients, v.state.Epoch.Exited, v.state.Pending, v.state.Departed} {
		if i := slices.IndexFunc(clients, func(c coordinator.Client) bool { return c.ID == id }); i >= 0 {
			return clients[i]
		}
	}
	return coordinator.Client{}
}
