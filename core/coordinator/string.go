package coordinator

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// String returns the first eight hexadecimal digits of the ID.
func (id ClientID) String() string {
	digits := strconv.FormatUint(uint64(binary.BigEndian.Uint32(id[:4])), 16)
	return strings.Repeat("0", 8-len(digits)) + digits
}

// String returns the state as text for people and golden files, with one line for the run, the
// checkpoint, each client and each stored round.
func (s *State) String() string {
	p := page{step: s.Progress.Step}
	p.line(s.RunID, ": ", s.RunState.String(), " since ", seconds(s.StateStart),
		", epoch ", num(s.Progress.Epoch), ", step ", num(s.Progress.Step), ", data ", num(s.Progress.DataIndex),
		p.flag(s.PendingPause, ", pause pending"), p.flag(s.PendingResume, ", resume pending"),
		p.flag(s.ColdStart, ", next epoch starts cold"), p.flag(s.Closed, ", closed"))
	p.authority(s)
	p.checkpoint(&s.Model.Checkpoint)
	for i := range s.Uploads {
		u := &s.Uploads[i]
		p.line("upload of ", u.Reporter.String(), ": ", ClientID(u.Digest).String(), " of step ", num(u.Step), " at ", u.Place.String(),
			p.flag(u.Tries > 0, ", tried "+num(uint32(u.Tries))+" times"))
	}
	for _, l := range s.RollbackGaps {
		p.line("not in the model: steps ", num(l.First), " to ", num(l.Last))
	}
	if s.active() || s.RunState == Warmup {
		p.line("epoch from step ", num(s.Epoch.StartStep), ", time ", seconds(s.Epoch.StartTime),
			p.flag(s.Epoch.ColdStart, ", cold start"), p.flag(s.Epoch.LastStep != 0, ", last step "+num(s.Epoch.LastStep)))
	}
	p.clients("member", s.Epoch.Clients)
	p.clients("exited", s.Epoch.Exited)
	p.clients("pending", s.Pending)
	p.clients("departed", s.Departed)
	if len(s.Epoch.Ready) > 0 {
		p.line("ready:", ids(s.Epoch.Ready))
	}
	for i := range s.Epoch.Rounds {
		p.round(&s.Epoch.Rounds[i])
	}
	for i := range s.Trials {
		p.trial(&s.Trials[i])
	}
	if c := s.Epoch.Commit; c.Step != 0 {
		p.line("intermediate checkpoint: step ", num(c.Step), ", ", ClientID(c.Digest).String())
	}
	return p.text.String()
}

// String returns the location in the notation that people use.
func (p Location) String() string {
	text := p.Kind.String() + " " + p.Repo
	if p.Revision != "" {
		text += "@" + p.Revision
	}
	return text
}

// page accumulates lines of text.
type page struct {
	text strings.Builder
	step uint32 // of the run
}

func (p *page) line(parts ...string) {
	for _, part := range parts {
		p.text.WriteString(part)
	}
	p.text.WriteByte('\n')
}

func (p *page) flag(set bool, text string) string {
	if set {
		return text
	}
	return ""
}

// authority writes the authorities of the run, unless the host is the only one.
func (p *page) authority(s *State) {
	a := &s.Authority
	if a.Main != s.Host || a.Join != a.Main || a.Permissioned {
		p.line("main authority ", a.Main.String(), ", join authority ", a.Join.String(), p.flag(a.Permissioned, ", permissioned"))
	}
	for _, e := range a.Ejections {
		p.line("ejected ", e.Client.String(), " until epoch ", num(e.Until), p.flag(e.Reason != ByAuthority, ": "+e.Reason.String()))
	}
	for i := range a.Authorizations {
		x := &a.Authorizations[i]
		p.line("authorization ", num(x.Number), " of ", x.Grantee.String(),
			p.flag(len(x.Delegates) > 0, ", delegates"+ids(x.Delegates)))
	}
}

func (p *page) checkpoint(c *Checkpoint) {
	name := c.Repo
	if c.Revision != "" {
		name += "@" + c.Revision
	}
	if c.Origin == 0 {
		p.line("checkpoint ", c.Kind.String(), " ", name)
		return
	}
	p.line("checkpoint ", c.Kind.String(), " ", ClientID(c.Digest).String(), " of step ", num(c.Step),
		", from ", c.Origin.String(), " ", name)
}

func (p *page) clients(label string, clients []Client) {
	for i := range clients {
		c := &clients[i]
		p.line(label, " ", c.ID.String(),
			p.flag(c.State != Healthy, ", "+c.State.String()),
			p.flag(label == "exited", " in round "+num(c.ExitedHeight)),
			p.flag(c.Lateness == FoundLate || c.Lateness == Late, ", late"),
			p.flag(c.Lateness == Slow, ", slow"),
			p.flag(c.ProbationUntil > p.step, ", on probation until step "+num(c.ProbationUntil)),
			p.flag(c.HoldsModel, ", holds model"),
			p.flag(c.HoldsEarlier != 0, ", holds that of step "+num(c.HoldsEarlier)),
			p.flag(c.Report.Step != 0, ", reported "+ClientID(c.Report.Digest).String()+" of step "+num(c.Report.Step)),
			p.flag(c.HeldOut != 0, ", held-out loss "+num(uint32(c.HeldOut))),
			p.flag(c.Offer != 0, ", level "+num(uint32(c.Level))+" of "+num(uint32(c.Offer))),
			p.flag(c.Excuses > 0, ", excuses "+num(uint32(c.Excuses))),
			p.flag(c.Returns > 0, ", returned"),
			p.flag(c.Complaints > 0, ", complaints "+num(uint32(c.Complaints))),
			p.slots("juror", c.Juror), p.slots("voted", c.Voted))
	}
}

func (p *page) round(r *Round) {
	end := r.DataIndex + uint64(r.BatchSize)
	var witnesses []ClientID
	warming := r.those(&r.Warming)
	for i := range r.Witnesses {
		witnesses = append(witnesses, r.Members[r.Witnesses[i].Member])
	}
	p.line("round ", num(r.Height), ": step ", num(r.Step), ", data [", num(r.DataIndex), ",", num(end), "), members",
		ids(r.Members), ", quorum ", num(r.WitnessesNeeded), " of ", num(r.WitnessesElected), ", witnesses", ids(witnesses),
		p.flag(len(warming) > 0, ", warming"+ids(warming)))
}

// those returns the members of the round that are in a set.
func (r *Round) those(set *MemberSet) (in []ClientID) {
	for i, id := range r.Members {
		if set.Has(i) {
			in = append(in, id)
		}
	}
	return in
}

func (p *page) trial(t *Trial) {
	p.line("trial ", num(uint32(t.Slot)), " of ", t.Accused.String(), ", accused by ", t.Accuser.String(), " in step ", num(t.Since),
		" at ", seconds(t.SinceTime), ": ", t.Fault.String(), " of step ", num(t.Step),
		p.flag(t.Jurors > 0, ", "+num(uint32(t.Jurors))+" jurors, "+num(uint32(t.Guilty))+" guilty, "+num(uint32(t.Innocent))+" innocent"))
}

// slots returns the numbers of the trials whose bits are set, preceded by a label.
func (p *page) slots(label string, bits uint8) string {
	text := ""
	for slot := range uint32(MaxTrials) {
		if bits>>slot&1 == 1 {
			text += " " + num(slot)
		}
	}
	return p.flag(bits != 0, ", "+label+text)
}

func ids(ids []ClientID) string {
	var text strings.Builder
	for _, id := range ids {
		text.WriteString(" " + id.String())
	}
	return text.String()
}

// seconds formats a time in milliseconds as seconds.
func seconds(ms uint64) string {
	text := num(ms / 1000)
	if ms%1000 == 0 {
		return text
	}
	return text + "." + strings.TrimRight(num(1000 + ms%1000)[1:], "0")
}

func num[T uint16 | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }
