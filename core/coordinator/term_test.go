package coordinator

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// finishRounds plays n rounds without lost results.
func (r *run) finishRounds(n int) {
	r.t.Helper()
	for range n {
		r.without(nil)
	}
}

// dropAgain lets a member return and miss a round, so that it is dropped.
func (r *run) dropAgain(name string) {
	r.t.Helper()
	r.must(name, Return{Epoch: r.Progress.Epoch})
	r.finishRounds(1)
	r.without(nil, name)
	r.finishRounds(1)
}

// TestDroppedFourTimes checks a run of one epoch of 60 rounds with five members. Member e is on a
// busy machine. It is dropped four times in the first term, and has a seat again in the later terms.
func TestDroppedFourTimes(t *testing.T) {
	config := longConfig()
	config.RoundsPerEpoch, config.TotalSteps, config.InitMinClients, config.MinClients = 60, 60, 5, 2
	r := newRun(t, config, "a", "b", "c", "d", "e")
	r.without(nil, "e")
	r.without(nil, "e")
	r.finishRounds(1)
	for range MaxReturns {
		r.dropAgain("e")
	}
	if !slices.ContainsFunc(r.Epoch.Exited, func(c Client) bool { return c.ID == clientID("e") && c.State == Dropped && c.Returns == MaxReturns }) {
		t.Fatalf("e was not dropped four times: %s", r.String())
	}
	out := r.Progress.Step
	for r.CurrentRound().Height < TermRounds {
		if r.MayReturn(clientID("e")) {
			t.Fatalf("e may return in step %d of the term in which it used up its returns", r.Progress.Step)
		}
		r.refused("e", Return{}, ErrFull)
		r.finishRounds(1)
	}
	back := r.Progress.Step
	r.must("e", Return{})
	r.finishRounds(1)
	if m, ok := r.Member(clientID("e")); !ok || m.Lateness != OnTime || m.Returns != 1 {
		t.Fatalf("e is not back on time: %s", r.String())
	}
	r.without(nil, "e") // one finding in the new term only makes it late
	for r.RunState == RoundTrain {
		r.finishRounds(1)
	}
	if m, ok := r.Member(clientID("e")); !ok || m.State != Healthy {
		t.Errorf("e is out at the end: %s", r.String())
	}
	t.Logf("dropped for the fourth time in step %d, back in step %d of %d", out, back, config.TotalSteps)
}

// TestForgivenOnesShowLife checks a late member that crashes before a new term begins. At the end
// of the epoch it is dropped for its silence, and the other members record the checkpoint.
func TestForgivenOnesShowLife(t *testing.T) {
	for _, crashed := range []bool{false, true} {
		config := longConfig()
		config.RoundsPerEpoch = TermRounds + 1
		r := newRun(t, config, "a", "b", "c")
		r.finishRounds(TermRounds - 2)
		r.without(nil, "c")
		r.silent = clientID("c")
		r.round() // last round of the term, in which c sends no proof
		if m, _ := r.Member(clientID("c")); m.State != Healthy || m.Lateness != OnTime || m.Active {
			t.Fatalf("not forgiven: %+v", m)
		}
		if !crashed {
			r.silent = ClientID{}
		}
		r.round()
		for _, name := range []string{"a", "b"} {
			r.must(name, ReportCheckpoint{Step: r.Progress.Step, Digest: clientID("x")})
		}
		r.until(WaitingForMembers)
		if r.IsPending(clientID("c")) == crashed {
			t.Errorf("crashed %t: c is still a member: %t", crashed, !crashed)
		}
		if r.Model.Checkpoint.Digest != clientID("x") {
			t.Errorf("crashed %t: no checkpoint", crashed)
		}
	}
}

// TestTerms plays long epochs in which members are late, leave and return at random. It checks that
// a member can return at most MaxReturns times in a term, and that it is late only after a finding
// in the same term.
func TestTerms(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	rapid.Check(t, func(rt *rapid.T) {
		config := longConfig()
		config.RoundsPerEpoch, config.InitMinClients, config.MinClients = 2*TermRounds+8, uint16(len(names)), 1
		config.VerificationPercent = rapid.SampledFrom([]uint8{0, 30}).Draw(rt, "audits")
		r := newRun(t, config, names...)
		book := termBook{returns: make(map[string]int), late: make(map[string]bool)}
		for r.RunState == RoundTrain && r.Progress.Epoch == 0 {
			lost := ""
			for _, name := range names {
				switch rapid.IntRange(0, 9).Draw(rt, name) {
				case 0:
					lost = name
				case 1:
					if r.isHealthy(clientID(name)) && r.HealthyCount() > 4 {
						r.must(name, Withdraw{Client: clientID(name)})
					}
				case 2, 3, 4:
					book.tryReturn(rt, r, name)
				}
			}
			r.without(nil, lost)
			book.compare(rt, r)
		}
	})
}

// termBook counts the events of the running term.
type termBook struct {
	term    uint32
	returns map[string]int
	late    map[string]bool
}

// compare checks the lateness and the returns of members after a round.
func (b *termBook) compare(t *rapid.T, r *run) {
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	if r.RunState != RoundTrain {
		return
	}
	if term := r.CurrentRound().Height / TermRounds; term != b.term {
		b.term = term
		clear(b.returns)
		clear(b.late)
	}
	for i := range r.Epoch.Clients {
		m := &r.Epoch.Clients[i]
		name := nameOf(m.ID)
		b.late[name] = b.late[name] || m.Lateness == FoundLate
		if late := m.Lateness != OnTime; late != b.late[name] || int(m.Returns) != b.returns[name] {
			t.Fatalf("step %d, term %d: %s is late: %t, want %t; returns: %d, want %d", r.Progress.Step, b.term, name, late, b.late[name], m.Returns, b.returns[name])
		}
	}
}

// tryReturn sends a Return and checks that only two kinds of members are refused: members of the running
// round, and members that have returned MaxReturns times in the term.
func (b *termBook) tryReturn(t *rapid.T, r *run, name string) {
	left, may := indexOf(r.Epoch.Exited, clientID(name)) >= 0, r.MayReturn(clientID(name))
	r.nonce++
	err := r.Apply(clientID(name), r.nonce, Return{Epoch: r.Progress.Epoch})
	want := error(nil)
	switch {
	case left && b.returns[name] >= MaxReturns:
		want = ErrFull
	case !left && r.isHealthy(clientID(name)):
		want = ErrDuplicate
	case !left:
		want = ErrNotMember
	default:
		b.returns[name]++
	}
	if !errors.Is(err, want) || left && may != (want == nil) {
		t.Fatalf("step %d: return %d of %s: %v, want %v; may return: %t", r.Progress.Step, b.returns[name], name, err, want, may)
	}
}
