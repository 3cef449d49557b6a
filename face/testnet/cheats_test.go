package testnet

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// TestCheckCheats checks that options that cannot show anything are refused before a process
// starts.
func TestCheckCheats(t *testing.T) {
	there := filepath.Join(t.TempDir(), "psyche-cheat")
	if err := os.WriteFile(there, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	good := Options{NumClients: 6, Cheats: []Cheat{{3, "negated"}, {4, "copy"}}, CheatBinary: there, ConfigPath: "configs/x"}
	for name, c := range map[string]struct {
		change func(o *Options)
		audits uint8
		ok     bool
	}{
		"all is there":      {func(*Options) {}, 34, true},
		"no client cheats":  {func(o *Options) { *o = Options{} }, 0, true},
		"no client audits":  {func(*Options) {}, 0, false},
		"a resumed run":     {func(o *Options) { o.Resume = "x" }, 34, false},
		"a chain":           {func(o *Options) { o.Chain.Used = true }, 34, false},
		"no program":        {func(o *Options) { o.CheatBinary += "x" }, 34, false},
		"nobody":            {func(o *Options) { o.Cheats = []Cheat{{7, "copy"}} }, 34, false},
		"one twice":         {func(o *Options) { o.Cheats = []Cheat{{3, "copy"}, {3, "noise"}} }, 34, false},
		"as many as honest": {func(o *Options) { o.Cheats = []Cheat{{1, "copy"}, {2, "copy"}, {3, "copy"}} }, 34, false},
	} {
		o, run := good, testRun()
		c.change(&o)
		run.Config.VerificationPercent = c.audits
		err := checkCheats(o, run)
		if c.ok && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !c.ok {
			golden.Message(t, name, err)
		}
	}
}

// TestStoryOfACheat checks the reported story: its events, their order, and the seconds until the
// cheat was detected and ejected.
func TestStoryOfACheat(t *testing.T) {
	ids := testIDs()
	a, b, c := ids[0].String(), ids[1].String(), ids[2].String()
	tracker := newTracker(ids, testRun())
	tracker.cheats[b] = &cheating{attack: "negated"}
	for _, step := range []struct {
		id string
		e  event.Event
	}{
		{a, at(1, event.ResultSent{Step: 1})},
		{b, at(2, event.ResultSent{Step: 1})},
		{b, at(3, event.ResultSent{Step: 2})},
		{a, at(3, event.Audit{Trainer: c, Step: 1, Outcome: "passed"})},
		{b, at(4, event.Audit{Trainer: b, Step: 1, Outcome: "faulty"})}, // it audits itself
		{a, at(5, event.Audit{Trainer: b, Step: 1, Outcome: "faulty", Detail: "why"})},
		{c, at(5, event.Audit{Trainer: b, Step: 2, Outcome: "faulty"})},
		{a, at(6, event.Accused{Client: b, Step: 1, Fault: "wrong result"})},
		{c, at(6, event.Accused{Client: b, Step: 2, Fault: "wrong result"})}, // the first accusation is enough
		{a, at(8, event.Ejected{Client: b, Until: 2, Reason: "a jury found it guilty", Step: 9})},
		{c, at(7, event.Voted{Accused: b, Step: 1, Guilty: true})}, // read after the ejection
		{c, at(9, event.Voted{Accused: b, Step: 2, Guilty: true})},
		{b, at(7, event.Voted{Accused: b, Step: 1, Guilty: false})},
		{a, at(9, event.Accused{Client: c, Step: 8, Fault: "wrong result"})},
		{b, at(9, event.Voted{Accused: c, Step: 8, Guilty: true, Detail: "why"})},
		{a, at(10, event.Applied{Step: 1, Counted: 3})},
		{a, at(11, event.Applied{Step: 2, Counted: 2, Lost: []event.LostBatch{{Owner: b}}})},
		{b, at(12, event.Applied{Step: 3, Counted: 2})},
	} {
		tracker.add(step.id, step.e)
	}
	p := tracker.progress()
	want := []string{
		"client-2 sends its first false result in round 1: the negative of its result",
		"client-1 computes round 1 of client-2 again: the result is false (why)",
		"client-1 accuses client-2, and a jury computes round 1 again",
		"client-2 is ejected until epoch 2: a jury found it guilty; guilty: client-3; not guilty: client-2 (itself a cheat); 6.0 s and 8 rounds after its first false result",
		"client-1 accuses client-3, and a jury computes round 8 again",
		"juror client-2 finds client-3 guilty of round 8 (why)",
	}
	if !slices.Equal(p.Notes, want) {
		t.Errorf("notes: got %q\nwant %q", p.Notes, want)
	}
	if p.Clients[1].Attack != "negated" || p.Clients[0].Attack != "" {
		t.Errorf("clients %+v", p.Clients)
	}

	trials := seen(ids[0], ids[1], true)
	tracker.tell(trials)
	if want := (CheatSummary{Client: "client-2", Attack: "negated", First: 1, Sent: 2, Counted: 1, Found: 3, Ejected: 6, Step: 9, Accusation: 4}); !slices.Equal(trials.Cheats, []CheatSummary{want}) {
		t.Errorf("cheats %+v, want %+v", trials.Cheats, want)
	}
	if err := trials.complete(); err != nil {
		t.Errorf("it ended as it should: %v", err)
	}
}

// seen returns the trials of a log in which entry 4 is an accusation and entry 5 the deciding vote.
func seen(accuser, accused [32]byte, guilty bool) *Trials {
	trials := &Trials{accusedOf: make(map[string][]accusation), ejected: make(map[string]ejection)}
	var s coordinator.State
	trials.see(4, follow.Record{Kind: follow.KindAction, Action: wire.SignedAction{Action: coordinator.Accuse{Client: accused, Step: 1}}}, &s)
	loser := coordinator.Ejection{Client: accused, Until: 2, Reason: coordinator.FoundGuilty}
	if !guilty {
		loser = coordinator.Ejection{Client: accuser, Until: 2, Reason: coordinator.AccusedWrongly}
	}
	s.Authority.Ejections = []coordinator.Ejection{loser}
	trials.see(5, follow.Record{Kind: follow.KindAction, Action: wire.SignedAction{Action: coordinator.Vote{Client: accused, Step: 1, Guilty: guilty}}}, &s)
	return trials
}

// TestRunsWithCheatsThatFail checks that a run ends with an error if a cheat is not ejected, or
// if an honest member is accused or ejected.
func TestRunsWithCheatsThatFail(t *testing.T) {
	ids := testIDs()
	for name, c := range map[string]struct {
		trials *Trials
		cheat  int
	}{
		"no cheat was found":          {seen(ids[0], [32]byte{9}, true), 1},
		"an honest client is ejected": {seen(ids[0], ids[2], true), 1},
		"the accuser is out":          {seen(ids[0], ids[1], false), 1},
		"a cheat that was refuted":    {seen(ids[1], ids[2], false), 1},
	} {
		tracker := newTracker(ids, testRun())
		tracker.cheats[tracker.ids[c.cheat]] = &cheating{attack: "copy"}
		tracker.tell(c.trials)
		s := Summary{Trials: c.trials}
		err := s.complete()
		if !errors.Is(err, ErrCheats) {
			t.Errorf("%s: %v, want ErrCheats", name, err)
		}
		golden.Message(t, name, err)
	}
}
