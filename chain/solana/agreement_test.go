package solana

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/chain/layout"
)

// shown returns an observation of a whole account. The parameter fork selects a history and body a
// state.
func shown(slot, sequence uint64, fork, body byte) sighting {
	return sighting{
		claim: claim{sequence, [32]byte{fork, byte(sequence)}}, slot: slot, looked: true,
		account: &layout.Account{}, body: [32]byte{body, byte(sequence)},
	}
}

// headOf returns an observation of a head.
func headOf(slot, sequence uint64, fork byte) sighting {
	s := shown(slot, sequence, fork, 0)
	s.account, s.body = nil, [32]byte{}
	return s
}

// TestAgreement plays observations of endpoints, one per line, and checks the accepted state after
// each: "endpoint slot sequence fork body -> sequence fork". The body "-" means an observation of
// the head alone.
func TestAgreement(t *testing.T) {
	for name, test := range map[string]struct {
		endpoints int
		script    string
	}{
		"one endpoint is believed": {1, `
			0 10 1 a a -> 1 a
			0 11 2 a a -> 2 a
			0 11 1 a a -> 2 a
			0 12 1 a a -> 1 a`},
		"two of two have to agree": {2, `
			0 10 1 a a -> 0 -
			1 10 1 a a -> 1 a
			0 11 2 a a -> 1 a
			1 12 2 a a -> 2 a`},
		"two of three are enough": {3, `
			0 10 1 a a -> 0 -
			2 10 1 a a -> 1 a
			1 11 2 a a -> 1 a
			2 12 2 a a -> 2 a`},
		"a later look at an earlier state counts": {3, `
			0 10 1 a a -> 0 -
			1 10 1 a a -> 1 a
			0 11 2 a a -> 1 a
			0 12 3 a a -> 1 a
			1 11 2 a a -> 2 a
			1 12 3 a a -> 3 a`},
		"heads are not enough": {3, `
			0 10 1 a - -> 0 -
			1 10 1 a - -> 0 -
			2 10 1 a a -> 0 -
			1 11 1 a a -> 1 a`},
		"the same history with another state": {3, `
			0 10 5 a a -> 0 -
			1 10 5 a b -> 0 -
			2 10 5 a a -> 5 a`},
		"one invents a history": {3, `
			0 10 1 a a -> 0 -
			1 10 1 a a -> 1 a
			2 99 9 x x -> 1 a
			0 11 2 a a -> 1 a
			1 11 2 a a -> 2 a
			2 999 1 x x -> 2 a`},
		"one shows an old state in new slots": {3, `
			0 10 3 a a -> 0 -
			1 10 3 a a -> 3 a
			2 50 1 a a -> 3 a
			2 60 1 a a -> 3 a`},
		"a rollback of most": {3, `
			0 10 3 a a -> 0 -
			1 10 3 a a -> 3 a
			2 10 3 a a -> 3 a
			0 11 2 a a -> 3 a
			1 11 2 a a -> 2 a
			2 12 2 a a -> 2 a
			0 12 3 b b -> 2 a
			1 12 3 b b -> 3 b`},
		"no rollback to slots that are past": {3, `
			0 10 3 a a -> 0 -
			1 10 3 a a -> 3 a
			0 9 2 a a -> 3 a
			1 9 2 a a -> 3 a
			2 9 2 a a -> 3 a`},
		"an endpoint that was away is no rollback": {3, `
			0 10 2 a a -> 0 -
			1 10 2 a a -> 2 a
			0 11 3 a a -> 2 a
			1 11 3 a a -> 3 a
			2 10 2 a a -> 3 a
			2 11 2 a a -> 3 a
			2 12 3 a a -> 3 a`},
		"another history at once after a rollback": {3, `
			0 10 3 a a -> 0 -
			1 10 3 a a -> 3 a
			0 14 5 b b -> 3 a
			2 14 5 b b -> 5 b`},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			a := newAgreement(test.endpoints, time.Minute, now)
			for line := range strings.Lines(strings.TrimSpace(test.script)) {
				var endpoint int
				var slot, sequence, want uint64
				var fork, body, wantFork string
				if _, err := fmt.Sscanf(strings.TrimSpace(line), "%d %d %d %s %s -> %d %s", &endpoint, &slot, &sequence, &fork, &body, &want, &wantFork); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				s := headOf(slot, sequence, fork[0])
				if body != "-" {
					s = shown(slot, sequence, fork[0], body[0])
				}
				a.observe(endpoint, s, now)
				a.decide(now)
				a.confirm()
				expected := claim{want, [32]byte{wantFork[0], byte(want)}}
				if want == 0 {
					expected = claim{}
				}
				if a.accepted.claim != expected {
					t.Fatalf("after %q: %d of fork %q", strings.TrimSpace(line), a.accepted.sequence, a.accepted.head[0])
				}
			}
		})
	}
}

func TestAgreementWants(t *testing.T) {
	now := time.Unix(0, 0)
	a := newAgreement(3, time.Minute, now)
	if order, wanted := a.wants(); !wanted || len(order) != 3 {
		t.Error("nothing is known, but no state is requested")
	}
	a.observe(0, shown(10, 1, 'a', 'a'), now)
	a.observe(1, shown(10, 1, 'a', 'a'), now)
	a.decide(now)
	if _, wanted := a.wants(); wanted {
		t.Error("everything is known, but a state is requested")
	}
	a.observe(2, headOf(11, 2, 'a'), now)
	if order, wanted := a.wants(); !wanted || order[0] != 2 {
		t.Errorf("asks %v, wanted %v", order, wanted)
	}
	a.witnesses[2].fault = invented
	if order, wanted := a.wants(); wanted || order[2] != 2 {
		t.Errorf("an endpoint with a fault is followed: asks %v, wanted %v", order, wanted)
	}
}

func TestFaults(t *testing.T) {
	begin := time.Unix(0, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	for name, test := range map[string]struct {
		show func(a *agreement, second int) // the third endpoint; all other endpoints are honest
		want fault
	}{
		"honest":        {func(a *agreement, i int) { a.observe(2, shown(uint64(i+1), uint64(i+1), 'a', 'a'), at(i)) }, noFault},
		"a second late": {func(a *agreement, i int) { a.observe(2, shown(uint64(i+1), uint64(max(i, 1)), 'a', 'a'), at(i)) }, noFault},
		"a bit ahead":   {func(a *agreement, i int) { a.observe(2, shown(uint64(i+2), uint64(i+2), 'a', 'a'), at(i)) }, noFault},
		"old":           {func(a *agreement, i int) { a.observe(2, shown(uint64(i+1), 1, 'a', 'a'), at(i)) }, outdated},
		"invented":      {func(a *agreement, i int) { a.observe(2, shown(uint64(i+1), uint64(i+5), 'x', 'x'), at(i)) }, invented},
		"another head":  {func(a *agreement, i int) { a.observe(2, shown(uint64(i+1), uint64(i+1), 'x', 'x'), at(i)) }, invented},
		"another state": {func(a *agreement, i int) { a.observe(2, shown(uint64(i+1), uint64(i+1), 'a', 'x'), at(i)) }, invented},
		"silent":        {func(*agreement, int) {}, silent},
		"nothing there": {func(a *agreement, _ int) { a.forget(2) }, silent},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgreement(3, 15*time.Second, begin)
			reported := map[fault]int{}
			for i := range 40 {
				test.show(a, i)
				for e := range 2 {
					a.observe(e, shown(uint64(i+1), uint64(i+1), 'a', 'a'), at(i))
				}
				if !a.decide(at(i)) {
					t.Fatalf("second %d: nothing new", i)
				}
				for e, f := range a.judge(at(i)) {
					if reported[f]++; e != 2 || i < 14 {
						t.Errorf("second %d: endpoint %d: %q", i, e, f)
					}
				}
			}
			if a.witnesses[2].fault != test.want || test.want != noFault && reported[test.want] != 1 {
				t.Fatalf("fault %q, want %q; reported %v", a.witnesses[2].fault, test.want, reported)
			}
			a.observe(2, shown(100, 40, 'a', 'a'), at(41))
			if changes := a.judge(at(41)); test.want != noFault && changes[2] != noFault || a.witnesses[2].fault != noFault {
				t.Errorf("a fault of an endpoint that agrees with the others: %v", changes)
			}
		})
	}
}

// TestMemoryIsBounded checks that memory is bounded even if an endpoint invents one state after
// another.
func TestMemoryIsBounded(t *testing.T) {
	now := time.Unix(0, 0)
	a := newAgreement(1, time.Minute, now)
	for i := range uint64(10 * maxChain) {
		a.observe(0, shown(i, i+1, 'a', 'a'), now)
		a.decide(now)
	}
	accounts := 0
	for _, s := range a.witnesses[0].chain {
		if s.account != nil {
			accounts++
		}
	}
	if len(a.witnesses[0].chain) > maxChain || accounts > 4 || len(a.retired) > maxChain {
		t.Errorf("%d sightings, %d accounts, %d retired", len(a.witnesses[0].chain), accounts, len(a.retired))
	}
}
