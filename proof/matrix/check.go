package main

import (
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/ledger"
)

// account is the combined record of all members' events.
type account struct {
	announced map[event.Batch]string // by member
	replicas  map[uint32]string
	digests   map[string][]string // of the final models, with the members that have each
	losses    map[uint32][]float64
	lost      map[event.Batch]bool
	applied   map[uint32]bool
	evaluated int
}

// check verifies the log of the run and compares it with the members' events.
func (p *play) check(log string) error {
	r, err := readRecord(log)
	if err != nil {
		return err
	}
	p.checkEnd(r)
	p.checkData(r)
	p.checkHonest(r)
	a := &account{
		announced: map[event.Batch]string{}, replicas: map[uint32]string{}, digests: map[string][]string{},
		losses: map[uint32][]float64{}, lost: map[event.Batch]bool{}, applied: map[uint32]bool{},
	}
	for _, m := range p.members {
		if !m.Started() {
			continue
		}
		if err := p.checkMember(r, a, m); err != nil {
			return err
		}
	}
	for _, step := range r.steps {
		if !a.applied[step] && !isMissing(r, step) {
			p.found("lost", "no member applied step %d", step)
		}
	}
	p.checkDigests(r, a)
	p.checkLoss(a)
	if p.longest, err = longestPhase(p.members[0].Events()); err != nil {
		return err
	}
	return p.checkExtras(a)
}

// checkEnd requires that the run ended with the model of its last step, and that the model contains
// all counted results.
func (p *play) checkEnd(r *record) {
	steps, _ := p.row.steps()
	s := &r.final
	if s.RunState != coordinator.Finished {
		p.found("unfinished", "the log ends in %v of step %d, before the end of the run", s.RunState, s.Progress.Step)
	}
	for _, l := range s.RollbackGaps {
		// The last steps of a rollback gap counted nothing if they had no quorum of witnesses, as when an
		// epoch ends for lack of witnesses.
		for one := r.plans[l.Last]; one != nil && !one.quorum() && l.Last >= l.First; one = r.plans[l.Last] {
			l.Last--
		}
		if l.Last < l.First {
			continue
		}
		p.found("lost", "the run's model lacks the counted steps %d to %d; %s", l.First, l.Last, p.during(l))
	}
	if s.RunState == coordinator.Finished && int(s.Model.Checkpoint.Step) != steps {
		p.found("lost", "the newest recorded checkpoint has step %d, but the run ended at step %d", s.Model.Checkpoint.Step, steps)
	}
	if len(s.Authority.Ejections) > 0 {
		p.found("ejected", "%d members were ejected: %+v", len(s.Authority.Ejections), s.Authority.Ejections)
	}
}

// during describes what happened to members in lost steps.
func (p *play) during(l coordinator.RollbackGap) string {
	names := map[string][]string{}
	for _, m := range p.members {
		m.mu.Lock()
		for _, t := range m.troubles {
			if l.First <= t.step+1 && t.step <= l.Last+1 {
				happened := fmt.Sprintf("%s in step %d", t.reason, t.step)
				names[happened] = append(names[happened], m.Name)
			}
		}
		m.mu.Unlock()
	}
	if len(names) == 0 {
		return "no member had an incident"
	}
	var all []string
	for _, happened := range slices.Sorted(maps.Keys(names)) {
		all = append(all, strings.Join(names[happened], ", ")+": "+happened)
	}
	return strings.Join(all, "; ")
}

// checkData requires each step once and in order. The positions and the fresh sequences of each step must follow the
// previous step's, and each position must be in one batch. If lost sequences return, no sequence may be given up.
func (p *play) checkData(r *record) {
	next, fresh := uint64(0), uint64(0)
	for i, step := range r.steps {
		if step != uint32(i+1) {
			p.found("data", "round %d of the log has step %d", i+1, step)
			return
		}
		one := r.plans[step]
		p.batches += len(one.assignments)
		if one.round.DataIndex != fresh {
			p.found("data", "the fresh sequences of step %d begin at %d, but those of the previous step ended at %d", step, one.round.DataIndex, fresh)
		}
		fresh = one.round.NextData()
		for _, a := range one.assignments {
			if a.Batch.Start != next {
				p.found("data", "step %d: batch %v does not begin at position %d", step, a.Batch, next)
			}
			next = a.Batch.End
		}
	}
	totals := r.book.Totals()
	if kept := totals[ledger.Counted] + totals[ledger.Waiting]; p.row.has("returns", "on") && kept != fresh {
		p.found("data", "%d of %d sequences count or wait: %v", kept, fresh, totals)
	}
	p.retried = next - fresh
}

// checkHonest checks that only the slanderer accused members, and that only absent members were
// dropped.
func (p *play) checkHonest(r *record) {
	for offence, accuser := range r.accused {
		if p.slanderer != nil && accuser == p.slanderer.Key.ID().String() {
			continue
		}
		p.found("accused", "%s was accused of its result of step %d", p.nameOf(offence.id), offence.step)
	}
	for offence := range r.dropped {
		if m := p.memberOf(offence.id); m == nil || m.excuse(offence.step, absent) == "" {
			p.found("dropped", "%s was dropped in step %d without an incident", p.nameOf(offence.id), offence.step)
		}
	}
}

func (p *play) memberOf(id string) *member {
	for _, m := range p.members {
		if m.Key.ID().String() == id {
			return m
		}
	}
	return nil
}

func (p *play) nameOf(id string) string {
	if m := p.memberOf(id); m != nil {
		return m.Name
	}
	return id
}

// checkMember reads the events of a member's lives.
func (p *play) checkMember(r *record, a *account, m *member) error {
	var ended *event.Finished
	var saved event.Checkpoint
	for e, err := range event.Read(m.Events()) {
		if err != nil {
			return err
		}
		switch body := e.Body.(type) {
		case event.Started:
			ended = nil
		case event.ResultSent:
			p.checkSent(r, a, m, body)
		case event.Trained:
			a.losses[body.Step] = append(a.losses[body.Step], float64(body.Loss))
		case event.Applied:
			p.checkApplied(r, a, m, body)
		case event.Audit:
			if body.Outcome == "faulty" || body.Outcome == "silent" {
				p.found("accused", "%s audited step %d of %s: %s, %s", m.Name, body.Step, p.nameOf(body.Trainer), body.Outcome, body.Detail)
			}
		case event.Voted:
			if body.Guilty && m != p.slanderer {
				p.found("accused", "%s voted that %s is guilty: %s", m.Name, p.nameOf(body.Accused), body.Detail)
			}
		case event.Evaluated:
			a.evaluated++
		case event.Rejected, event.Equivocation, event.Failed:
			p.found("fault", "%s: %s: %+v", m.Name, body.Kind(), body)
		case event.Misbehaved:
			if peer := p.memberOf(body.Peer); peer == nil || peer.excuse(math.MaxUint32-2, absent) == "" {
				p.found("fault", "%s: %s: %+v", m.Name, body.Kind(), body)
			}
		case event.Desynchronised:
			if m.excuse(body.Step, absent) == "" {
				p.found("fault", "%s lost the model in step %d: %s", m.Name, body.Step, body.Reason)
			}
		case event.Checkpoint:
			saved = body
		case event.Finished:
			ended = &body
		}
	}
	if _, left := m.life(); left {
		return nil
	}
	if ended == nil {
		p.found("digest", "%s did not see the end of the run", m.Name)
		return nil
	}
	if ended.Unrecorded {
		p.found("digest", "%s ended with a model that no quorum reported", m.Name)
	}
	a.digests[ended.Digest] = append(a.digests[ended.Digest], m.Name)
	p.checkSaved(m, ended, saved)
	return nil
}

// checkSaved requires that a member's final model is on its disk.
func (p *play) checkSaved(m *member, ended *event.Finished, saved event.Checkpoint) {
	if saved.Digest != ended.Digest || saved.Dir == "" {
		p.found("saved", "%s ended with the model of step %d, but its newest saved model has step %d", m.Name, ended.Step, saved.Step)
		return
	}
	snapshot, err := checkpoint.ReadDir(saved.Dir)
	if err != nil {
		p.found("saved", "%s: %v", m.Name, err)
		return
	}
	if digest := snapshot.Manifest().Digest(); hex.EncodeToString(digest[:]) != ended.Digest {
		p.found("saved", "%s: %s has the model %.8x, want %.8s", m.Name, saved.Dir, digest, ended.Digest)
	}
}

// checkSent requires that a result comes from the batch's owner and is the only one.
func (p *play) checkSent(r *record, a *account, m *member, sent event.ResultSent) {
	if owner, _ := r.plans[sent.Step].owner(sent.Batch); owner != m.Key.ID().String() {
		p.found("data", "%s announced batch %v of step %d, which is assigned to %q", m.Name, sent.Batch, sent.Step, p.nameOf(owner))
	}
	if other, twice := a.announced[sent.Batch]; twice {
		p.found("data", "batch %v of step %d was announced by both %s and %s", sent.Batch, sent.Step, other, m.Name)
	}
	a.announced[sent.Batch] = m.Name
}

// checkApplied requires that every batch of a step counted, or was lost for a known reason.
func (p *play) checkApplied(r *record, a *account, m *member, applied event.Applied) {
	one := r.plans[applied.Step]
	if one == nil {
		p.found("data", "%s applied step %d, which is not in the log", m.Name, applied.Step)
		return
	}
	a.applied[applied.Step] = true
	if applied.Counted+len(applied.Lost) != len(one.assignments) {
		p.found("data", "%s, step %d: %d batches counted and %d lost, want %d in total", m.Name, applied.Step, applied.Counted, len(applied.Lost), len(one.assignments))
	}
	for _, lost := range applied.Lost {
		owner, warming := one.owner(lost.Batch)
		if owner != lost.Owner {
			p.found("data", "%s, step %d: lost batch %v is assigned to %s, not to %s", m.Name, applied.Step, lost.Batch, p.nameOf(owner), p.nameOf(lost.Owner))
			continue
		}
		if a.lost[lost.Batch] {
			continue
		}
		a.lost[lost.Batch] = true
		p.lost[p.reason(r, applied.Step, owner, warming)]++
	}
	if replica, known := a.replicas[applied.Step]; known && replica != applied.Replica {
		p.found("digest", "step %d: the replica of %s differs from the other replicas", applied.Step, m.Name)
	}
	a.replicas[applied.Step] = applied.Replica
}

// reason returns why a batch did not count. An unknown reason is a finding.
func (p *play) reason(r *record, step uint32, owner string, warming bool) string {
	m := p.memberOf(owner)
	switch {
	case warming:
		return "probation or warm-up"
	case m != nil && m.excuse(step, present) != "":
		return m.Name + ": " + m.excuse(step, present)
	case !r.plans[step].quorum():
		return p.noQuorum(r, step)
	case r.wasLate(owner, step): // a slow machine is acceptable, unless it costs more than a batch
		return p.nameOf(owner) + ": late"
	}
	p.found("data", "step %d: the batch of %s was lost, although this member had no incident", step, p.nameOf(owner))
	return "unknown reason"
}

// noQuorum returns why too few witnesses sent proofs. An unknown reason is a finding.
func (p *play) noQuorum(r *record, step uint32) string {
	for _, id := range r.plans[step].elected {
		if m := p.memberOf(id); m != nil && m.excuse(step, present) != "" {
			return fmt.Sprintf("no quorum of witnesses, %s: %s", m.Name, m.excuse(step, present))
		}
	}
	if !p.row.has("starved", "busy") {
		p.found("data", "step %d has no quorum of witnesses, although none of them had an incident", step)
	}
	return "no quorum of witnesses"
}

// checkDigests requires that all members have the model that the run recorded.
func (p *play) checkDigests(r *record, a *account) {
	recorded := hex.EncodeToString(r.final.Model.Checkpoint.Digest[:])
	for digest, holders := range a.digests {
		switch {
		case digest == "":
			p.found("digest", "%v ended without the final model", holders)
		case digest != recorded:
			p.found("digest", "%v ended with the model %.8s, but the run recorded %.8s", holders, digest, recorded)
		}
	}
}

// checkLoss requires that the loss of the last steps is lower than that of the first.
func (p *play) checkLoss(a *account) {
	const steps = 3
	last, _ := p.row.steps()
	mean := func(first int) (loss float64) {
		n := 0
		for step := first; step < first+steps; step++ {
			for _, l := range a.losses[uint32(step)] {
				loss += l
				n++
			}
		}
		return loss / float64(n)
	}
	if first, end := mean(1), mean(last-steps+1); !(end < first) || math.IsNaN(first) {
		p.found("loss", "the loss did not decrease: %.4f at first, %.4f at the end", first, end)
	}
}

// isMissing reports whether the run lost a step.
func isMissing(r *record, step uint32) bool {
	for _, l := range r.final.RollbackGaps {
		if l.First <= step && step <= l.Last {
			return true
		}
	}
	return false
}
