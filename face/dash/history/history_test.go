package history_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/history"
)

var troubled = dashtest.Options{RunID: "troubled", Members: 12, Rounds: 40, RoundsPerEpoch: 10, Silent: 4, Hang: 7, Eject: 5, Wrong: 3}

// judged has a member that cheats, and a member that falsely accuses other members.
var judged = dashtest.Options{RunID: "judged", Members: 12, Rounds: 40, RoundsPerEpoch: 20, Audits: 25, Cheat: 4, Slander: 7}

// told returns the history of a run and its entries.
func told(t *testing.T, o dashtest.Options) (*history.History, []history.Entry) {
	t.Helper()
	h, entries := &history.History{}, []history.Entry{}
	err := dashtest.Play(o, func(e history.Entry, s *coordinator.State) error {
		entries = append(entries, e)
		h.See(e, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return h, entries
}

func member(n int) string { return dashtest.Key(n).ID().String() }

func TestHistoryOfMembers(t *testing.T) {
	h, entries := told(t, troubled)
	if len(h.Members) != 12 {
		t.Fatalf("%d members, want 12", len(h.Members))
	}
	for id, m := range h.Members {
		if m.Counted+m.Probation+m.Lost != m.Assigned || m.Assigned == 0 {
			t.Errorf("%s: %d counted and %d lost of %d", id, m.Counted, m.Lost, m.Assigned)
		}
		if m.Witnessed > m.Elected {
			t.Errorf("%s: %d proofs of %d", id, m.Witnessed, m.Elected)
		}
	}
	ejected := h.Members[member(5)]
	if ejected.Ejected != 1 || ejected.Status != "ejected" || ejected.Why != history.WhyEjected {
		t.Errorf("the ejected member: %+v", ejected)
	}
	if a, ok := entries[ejected.Entry].Action.(coordinator.Eject); !ok || identity.ID(a.Client).String() != member(5) {
		t.Errorf("entry %d of its ejection is %+v", ejected.Entry, entries[ejected.Entry])
	}
	hangs := h.Members[member(7)]
	if hangs.Dropped == 0 || hangs.Accused < 2 || hangs.Late == 0 || hangs.Why != history.WhyWitnesses {
		t.Errorf("the member that hangs: %+v", hangs)
	}
	if a, ok := entries[hangs.Entry].Action.(coordinator.HealthCheck); !ok {
		t.Errorf("entry %d of its drop is %+v", hangs.Entry, a)
	}
	if wrong := h.Members[member(3)]; wrong.Disagreed != 4 || wrong.Reports != 4 {
		t.Errorf("the member with a different model: %+v", wrong)
	}
	if clean := h.Members[member(11)]; clean.Disagreed+clean.Dropped+clean.Ejected+clean.Accused+clean.Lost != 0 || clean.Status != "member" {
		t.Errorf("a member that did nothing wrong: %+v", clean)
	}
}

func TestRoundsPhasesAndCheckpoints(t *testing.T) {
	h, _ := told(t, troubled)
	rounds := h.Rounds.At(0, 0, 1000)
	if len(rounds) != 40 {
		t.Fatalf("%d rounds, want 40", len(rounds))
	}
	var tokens uint64
	for i, r := range rounds {
		if r.First != uint32(i+1) || r.Counted > r.Batches || r.Batches == 0 || r.Witnesses > r.Elected {
			t.Errorf("round %d: %+v", i+1, r)
		}
		if r.Spent[coordinator.RoundTrain] == 0 {
			t.Errorf("round %d took no time", i+1)
		}
		tokens += r.Tokens
	}
	if tokens != h.Tokens || tokens == 0 {
		t.Errorf("%d tokens in rounds, %d in all", tokens, h.Tokens)
	}
	var spent, phases uint64
	for _, ms := range h.Spent {
		spent += ms
	}
	for i, p := range h.Phases {
		if i > 0 && h.Phases[i-1].End != p.Start {
			t.Errorf("phase %d begins at %d, but the previous phase ended at %d", i, p.Start, h.Phases[i-1].End)
		}
		if p.End > 0 {
			phases += p.End - p.Start
		}
	}
	if spent != phases || spent != h.Now-h.Began {
		t.Errorf("%d ms in sums, %d in phases, %d by the clock", spent, phases, h.Now-h.Began)
	}
	if len(h.Checkpoints) != 4 || h.Checkpoints[3].Step != 40 {
		t.Errorf("checkpoints: %+v", h.Checkpoints)
	}
	if last := h.Events[len(h.Events)-1]; last.Kind != "finished" {
		t.Errorf("the last event: %+v", last)
	}
}

// TestGoesOnFromAFile checks that a history that was saved in the middle of a run and loaded again
// ends like a history that followed the whole run.
func TestGoesOnFromAFile(t *testing.T) {
	for _, o := range []dashtest.Options{troubled, judged} {
		t.Run(o.RunID, func(t *testing.T) { goesOn(t, o) })
	}
}

func goesOn(t *testing.T, o dashtest.Options) {
	whole, entries := told(t, o)
	kept := &history.History{}
	err := dashtest.Play(o, func(e history.Entry, s *coordinator.State) error {
		kept.See(e, s)
		if e.Number%97 == 5 || int(e.Number) == len(entries)/2 {
			text, err := json.Marshal(kept)
			if err != nil {
				return err
			}
			kept = &history.History{}
			return json.Unmarshal(text, kept)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole, kept); diff != "" {
		t.Error(diff)
	}
}

// TestMarks checks that the marks are the ejections, drops and pauses, from a step on.
func TestMarks(t *testing.T) {
	h, _ := told(t, troubled)
	kinds := map[string]int{}
	for _, e := range h.Marks(0, 100) {
		kinds[e.Kind]++
	}
	if kinds["ejected"] != 1 || kinds["dropped"] < 1 || len(kinds) != 2 {
		t.Errorf("marks %v, want one ejection and drops", kinds)
	}
	if got := h.Marks(5, 100); len(got) != 1 || got[0].Kind != "ejected" || got[0].Step != 5 {
		t.Errorf("from step 5: %+v", got)
	}
	if got := h.Marks(0, 1); len(got) != 1 || got[0].Kind != "ejected" {
		t.Errorf("the newest: %+v", got)
	}
}

// TestMerging checks that any number of rounds gives few stretches, which follow one another and
// keep the sums.
func TestMerging(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := uint32(rapid.IntRange(1, 30_000).Draw(t, "rounds"))
		points := rapid.IntRange(1, 700).Draw(t, "points")
		rounds := history.MakeRounds(n)
		if len(rounds.List) > history.MaxStretches {
			t.Fatalf("%d stretches", len(rounds.List))
		}
		var counted uint64
		next := uint32(1)
		for _, s := range rounds.At(0, 0, points) {
			if s.First != next {
				t.Fatalf("a stretch begins at %d, want %d", s.First, next)
			}
			next += s.Rounds
			counted += s.Counted
		}
		if next != n+1 || counted != uint64(n) || len(rounds.At(0, 0, points)) > points {
			t.Fatalf("%d rounds, %d counted, %d points", next-1, counted, len(rounds.At(0, 0, points)))
		}
	})
}

// TestCrowdsAreForgotten checks that keys that come and go endlessly use no more memory than the
// bounds allow, and that ejected keys are kept longest.
func TestCrowdsAreForgotten(t *testing.T) {
	h := &history.History{}
	state, err := dashtest.Begin(dashtest.Options{RunID: "crowd", Members: 4, Rounds: 4, RoundsPerEpoch: 4})
	if err != nil {
		t.Fatal(err)
	}
	h.See(history.Entry{Time: 1}, &state)
	bad := coordinator.ClientID{0xee}
	state.Authority.Ejections = []coordinator.Ejection{{Client: bad, Until: 2}}
	h.See(history.Entry{Number: 1, Action: coordinator.Eject{Client: bad}}, &state)
	for n := range 3 * history.MaxMembers {
		id := coordinator.ClientID{byte(n), byte(n >> 8), 1}
		h.See(history.Entry{Number: uint64(n + 2), Actor: id, Action: coordinator.Withdraw{Client: id}}, &state)
	}
	if len(h.Members) > history.MaxMembers || len(h.Events) > history.MaxEvents || h.Dropped == 0 {
		t.Errorf("%d members, %d events, %d dropped", len(h.Members), len(h.Events), h.Dropped)
	}
	if m, known := h.Members[identity.ID(bad).String()]; !known || m.Ejected != 1 {
		t.Error("the ejected key is forgotten")
	}
}

// TestFalseClaimIsShownAsFar has a member that claims a loss of a thousandth of a nat. It checks
// that the member is named and that the curve equals the curve of the same run with an honest
// member, within the spread of the honest claims.
func TestFalseClaimIsShownAsFar(t *testing.T) {
	honest, _ := told(t, troubled)
	boasts := troubled
	boasts.Boast = 2
	h, _ := told(t, boasts)
	for i, r := range h.Rounds.List {
		was := honest.Rounds.List[i]
		if r.Claimed != 1 || max(r.Losses, was.Losses)-min(r.Losses, was.Losses) > 1 || r.Spreads > 2 || was.Far != 0 {
			t.Errorf("step %d: %+v, honest %+v", r.First, r, was)
		}
	}
	for id, m := range h.Members {
		if far := id == member(2); far && m.Far != m.Claims || !far && m.Far != 0 || m.Claims != m.Witnessed {
			t.Errorf("%s: far in %d of %d claims", id, m.Far, m.Claims)
		}
	}
	if m := h.Members[member(2)]; m.Claims == 0 || m.ClaimedLoss != 1 || m.ClaimedStep == 0 {
		t.Errorf("the member that boasts: %+v", m)
	}
}

// TestHeldOutOfCheckpoints checks that each checkpoint has the median of the held-out losses that members claim
// for it, and that a false claim, members without a claim, and a claim about another model do not change it.
func TestHeldOutOfCheckpoints(t *testing.T) {
	boasts := troubled
	boasts.Boast, boasts.Wrong = 2, 4
	h, _ := told(t, boasts)
	if len(h.Checkpoints) != 4 {
		t.Fatalf("%d checkpoints, want 4", len(h.Checkpoints))
	}
	for i, c := range h.Checkpoints {
		want := 100 + h.Rounds.List[c.Step-1].Losses
		if off := max(uint64(c.HeldOut), want) - min(uint64(c.HeldOut), want); off > 200 || c.HeldOutClaims != 5 || c.HeldOutFar != 1 || c.HeldOutSpread > 3 {
			t.Errorf("checkpoint %d: %+v, want about %d from 5 claims, one of them far", i, c, want)
		}
	}
}

// TestNamesOfMembers checks that the history has the newest name of each member and the number of
// its name changes, but no name that must not be shown.
func TestNamesOfMembers(t *testing.T) {
	h := &history.History{}
	s, err := dashtest.Begin(troubled)
	if err != nil {
		t.Fatal(err)
	}
	h.See(history.Entry{}, &s)
	ada := coordinator.ClientID(dashtest.Key(1).ID())
	for i, test := range []struct {
		name, want string
		renamed    uint64
	}{
		{"", "", 0}, {"Ada", "Ada", 0}, {"Ada", "Ada", 0}, {"Grace", "Grace", 1}, {"\x1b[2J", "", 2}, {"a\u202eb", "", 2}, {"<b>", "<b>", 2},
	} {
		h.See(history.Entry{Number: uint64(i + 1), Actor: ada, Action: coordinator.Join{Name: test.name}}, &s)
		if m := h.Members[member(1)]; m.Name != test.want || m.Renamed != test.renamed {
			t.Errorf("after the name %q: %q, renamed %d", test.name, m.Name, m.Renamed)
		}
	}
}
