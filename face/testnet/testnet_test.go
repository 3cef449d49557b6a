package testnet

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

func testIDs() []identity.ID { return []identity.ID{{1}, {2}, {3}} }

func testRun() config.Run {
	var run config.Run
	run.Config.TotalSteps = 10
	run.Config.InitMinClients = 2
	run.Model.MaxSeqLen = 8
	return run
}

func at(second int, body event.Body) event.Event {
	return event.Event{Time: time.Unix(int64(second), 0), Body: body}
}

func TestTrackerGathersTheRun(t *testing.T) {
	ids := testIDs()
	a, b := ids[0].String(), ids[1].String()
	tracker := newTracker(ids, testRun())
	state := func(second int, runState string, step uint32) event.Event {
		return at(second, event.State{RunState: runState, Step: step, Members: []string{a, b}, Elected: []string{b}})
	}
	for _, step := range []struct {
		id string
		e  event.Event
	}{
		{a, at(0, event.Started{})},
		{a, state(1, "RoundTrain", 1)},
		{a, at(2, event.Trained{Step: 1, Loss: 4, Tokens: 100})},
		{b, at(2, event.Trained{Step: 1, Loss: 2, Tokens: 300})},
		{a, at(3, event.Applied{Step: 1, Counted: 1, OwnCounted: true, Lost: []event.LostBatch{{Batch: event.Batch{0, 4}, Owner: b}}})},
		{b, at(3, event.Applied{Step: 1, Counted: 1, Lost: []event.LostBatch{{Batch: event.Batch{0, 4}, Owner: b}}})},
		{a, at(4, event.Wire{Step: 1, P2PSent: 1000, PayloadSent: 400})},
		{b, at(4, event.Wire{Step: 1, P2PSent: 500, PayloadSent: 200, ModelReceived: 300})},
		{b, at(5, event.Started{})}, // a second life counts from zero
		{b, at(6, event.Wire{Step: 2, P2PSent: 100, PayloadSent: 50})},
		{b, at(6, event.Ready{Source: "peers"})},
		{b, at(6, event.Rejoined{Step: 1})},
		{a, at(7, event.Checkpoint{Step: 2, Digest: "d1", Dir: "a-2"})},
		{b, at(7, event.Checkpoint{Step: 2, Digest: "d1"})},
	} {
		tracker.add(step.id, step.e)
	}

	tracker.remark("client-%d killed", 2)
	p := tracker.progress()
	if want := []string{"client-2 rejoined in round 1, with the model of step 0 from its peers", "client-2 killed"}; !slices.Equal(p.Notes, want) {
		t.Errorf("notes: got %q, want %q", p.Notes, want)
	}
	if p.State.Step != 1 || p.State.RunState != "RoundTrain" || p.Newest().Loss != 2.5 || p.Tokens != 400 {
		t.Errorf("progress: got %+v", p)
	}
	if p.Clients[0].Witness || !p.Clients[1].Witness || p.Clients[2].Member || p.Clients[1].Sent != 600 {
		t.Errorf("clients: got %+v", p.Clients)
	}
	s := tracker.summary()
	if s.Rounds != 1 || s.LostBatches != 1 || s.ModelSyncBytes != 300 || s.Checkpoint != "a-2" {
		t.Errorf("summary: got %+v", s)
	}
	if want := uint64((1000 + 600 - 300) / 2); s.WireBytesPerClientRound != want {
		t.Errorf("wire bytes per client and round: got %d, want %d", s.WireBytesPerClientRound, want)
	}
	if !s.Clients[1].Rejoined || s.Clients[0].Rejoined || s.Clients[0].RoundsCounted != 1 || s.Clients[1].RoundsCounted != 0 || s.Clients[0].Tokens != 100 || s.Clients[1].Tokens != 300 {
		t.Errorf("clients: got %+v", s.Clients)
	}
}

// TestResumedClientsSayWhatTheyLoaded checks that a resumed run reports the model that each client
// loaded, as the client itself reports it.
func TestResumedClientsSayWhatTheyLoaded(t *testing.T) {
	ids := testIDs()
	tracker := newTracker(ids, testRun())
	tracker.since = time.Unix(10, 0)
	for i, e := range []event.Event{
		at(5, event.Ready{Epoch: 1, Step: 8, Source: "peers"}), // before it was interrupted
		at(11, event.Ready{Epoch: 2, Step: 8, Source: "disk"}),
		at(11, event.Rejoined{Epoch: 2, Step: 9}),
		at(12, event.Ready{Epoch: 2, Source: "initial"}),
		at(13, event.Ready{Epoch: 3, Step: 12, Source: "held"}),
	} {
		tracker.add(ids[i/3].String(), e)
	}
	want := []string{"client-1 continues with the model of step 8 from its disk", "client-2 continues with the run's initial model"}
	if got := tracker.progress().Notes; !slices.Equal(got, want) {
		t.Errorf("notes: got %q, want %q", got, want)
	}
}

// TestCompleteRuns distinguishes clients without the final model from clients with different
// models.
func TestCompleteRuns(t *testing.T) {
	for name, test := range map[string]struct {
		ends []event.Finished
		want error
	}{
		"all have it":             {[]event.Finished{{Digest: "d"}, {Digest: "d"}, {Digest: "d"}}, nil},
		"one ended without":       {[]event.Finished{{Digest: "d"}, {}, {Digest: "d"}}, ErrIncomplete},
		"none is recorded":        {[]event.Finished{{Digest: "d", Unrecorded: true}, {Digest: "d"}, {Digest: "d"}}, ErrIncomplete},
		"two models":              {[]event.Finished{{Digest: "d"}, {Digest: "e"}, {Digest: "d"}}, ErrReplicasDiffer},
		"two models, one without": {[]event.Finished{{Digest: "d"}, {Digest: "e"}, {}}, ErrReplicasDiffer},
	} {
		tracker := newTracker(testIDs(), testRun())
		for i, end := range test.ends {
			id := tracker.ids[i]
			tracker.add(id, at(i, event.Checkpoint{Step: 2, Digest: "another one"})) // differs from the final model of the run
			tracker.add(id, at(i, end))
		}
		if err := tracker.summary().complete(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		} else if err != nil {
			golden.Message(t, name, err)
		}
	}
}

// TestTrackerSumsPayments sums the payments of all lives of clients on a chain.
func TestTrackerSumsPayments(t *testing.T) {
	ids := testIDs()
	a, b := ids[0].String(), ids[1].String()
	tracker := newTracker(ids, testRun())
	for _, e := range []struct {
		id   string
		body event.Body
	}{
		{a, event.Started{}},
		{a, event.Paid{Transactions: 1, Lamports: 5000, Rent: 70}},
		{a, event.Paid{Transactions: 3, Lamports: 15_000, Ticks: 1, Rent: 70}},
		{a, event.Trained{Step: 1, Tokens: 8}},
		{a, event.Started{}}, // a second life counts from zero
		{a, event.Paid{Transactions: 2, Lamports: 10_000, Ticks: 1, OutOfTurn: 1}},
		{a, event.Trained{Step: 2, Tokens: 8}},
		{b, event.Paid{Transactions: 3, Lamports: 16_000}},
	} {
		tracker.add(e.id, at(1, e.body))
	}
	s := tracker.summary()
	want := ChainSummary{Transactions: 8, Lamports: 41_000, PerRound: 4, LamportRound: 20_500, Ticks: 2, OutOfTurn: 1, Rent: 70}
	if s.Chain == nil || *s.Chain != want || s.Clients[0].Transactions != 5 || s.Clients[1].Lamports != 16_000 {
		t.Errorf("got %+v and %+v, want %+v", s.Chain, s.Clients, want)
	}
	var out strings.Builder
	s.Chain.print(&out, s.Clients)
	golden.Compare(t, "payments.txt", out.String())
}

// TestChainChecks checks that options that a chain does not support are refused.
func TestChainChecks(t *testing.T) {
	good := Options{Chain: Chain{Used: true, SlotMs: 400}}
	if err := good.Chain.check(good); err != nil {
		t.Error(err)
	}
	for name, options := range map[string]Options{
		"killed server": {Chain: Chain{Used: true, SlotMs: 400, Validator: "v"}, Faults: Faults{KillServerAtStep: 1}},
		"no slot time":  {Chain: Chain{Used: true}},
	} {
		golden.Message(t, name, options.Chain.check(options))
	}
}

func TestTrackerKeepsTheNewestState(t *testing.T) {
	tracker := newTracker(testIDs(), testRun())
	id := testIDs()[0].String()
	tracker.add(id, at(5, event.State{RunState: "RoundTrain", Step: 3}))
	if tracker.add(id, at(4, event.State{RunState: "RoundWitness", Step: 2})) {
		t.Error("a state of an earlier round changed the phase")
	}
	if tracker.add(id, at(6, event.State{RunState: "RoundTrain", Step: 3})) {
		t.Error("the same phase again counted as a change")
	}
	if !tracker.add(id, at(7, event.State{RunState: "RoundWitness", Step: 3})) {
		t.Error("the next phase did not count as a change")
	}
}

// TestSummaryHasHeldOutClaims checks that the summary has the newest claims about the held-out loss, although the
// newest state has none, and that it prints them.
func TestSummaryHasHeldOutClaims(t *testing.T) {
	tracker := newTracker(testIDs(), testRun())
	id := testIDs()[0].String()
	claims := &event.HeldOut{Step: 2, Digest: "ab", Loss: event.Claims{Count: 3, Median: 2.5, Spread: 0.25}}
	tracker.add(id, at(5, event.State{RunState: "Cooldown", Step: 3, HeldOut: claims}))
	tracker.add(id, at(6, event.State{RunState: "WaitingForMembers", Step: 3, Epoch: 1}))
	s := tracker.summary()
	if s.HeldOutClaimed != claims {
		t.Fatalf("claims: %+v, want %+v", s.HeldOutClaimed, claims)
	}
	var out strings.Builder
	if s.Print(&out); !strings.Contains(out.String(), "\n  held-out claims    2.500 ± 0.250: step 2, 3 members\n") {
		t.Errorf("no claims in\n%s", &out)
	}
}

func TestFaultScriptStrikesOnce(t *testing.T) {
	script := newFaultScript(Faults{KillAtStep: 3, KillServerAtStep: 5})
	train := func(step uint32) blow { return script.due(event.State{RunState: "RoundTrain", Step: step}) }
	if b := train(2); b.client || b.server {
		t.Errorf("round 2: %+v", b)
	}
	if b := script.due(event.State{RunState: "RoundWitness", Step: 3}); b.client {
		t.Error("struck between rounds")
	}
	if b := train(4); !b.client || b.server { // round 3 was not seen
		t.Errorf("round 4: %+v", b)
	}
	if b := train(5); b.client || !b.server {
		t.Errorf("round 5: %+v", b)
	}
	if b := train(6); b.client || b.server {
		t.Errorf("round 6: %+v", b)
	}
}

func TestRingAllReduceBytes(t *testing.T) {
	for _, test := range []struct {
		parameters uint64
		members    int
		want       uint64
	}{{1000, 1, 0}, {1000, 2, 4000}, {900, 3, 4800}} {
		if got := ringAllReduceBytes(test.parameters, test.members); got != test.want {
			t.Errorf("%d parameters, %d members: got %d, want %d", test.parameters, test.members, got, test.want)
		}
	}
}

func TestCheckNamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "program")
	data := filepath.Join(dir, "data")
	model := filepath.Join(dir, "model")
	write := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	options := Options{NumClients: 1, ConfigPath: "configs/x", ServerBinary: binary, ClientBinary: binary}
	run := testRun()
	expect := func(name string) {
		t.Helper()
		golden.Message(t, name, check(options, run))
	}
	expect("no timeout")
	options.Timeout = time.Hour
	expect("too few clients")
	options.NumClients = 3
	expect("no binary")
	write(binary)
	expect("no checkpoint, dummy data")
	run.Model.DataLocations = []config.DataLocation{{Local: &config.LocalData{Path: data}}}
	expect("no data")
	write(filepath.Join(data, "train.ds"))
	expect("no checkpoint")
	run.Model.Checkpoint.Local = &config.LocalCheckpoint{Path: model}
	expect("no model")
	write(filepath.Join(model, "config.json"))
	if err := check(options, run); err != nil {
		t.Errorf("nothing is missing: %v", err)
	}
	options.Faults = Faults{AllowedToKill: []int{4}}
	expect("victim that does not exist")
}

func TestServerThatEndsIsAnError(t *testing.T) {
	n := &network{server: &child.Process{Name: "server", Log: filepath.Join(t.TempDir(), "log"), Program: "/bin/sh", Args: []string{"-c", "echo bye"}}}
	if err := n.server.Start(); err != nil {
		t.Fatal(err)
	}
	golden.Message(t, "server", n.superviseHost(t.Context(), n.server))
}

func TestVictimsAreAllowed(t *testing.T) {
	faults := Faults{AllowedToKill: []int{2, 3}}
	got := faults.victims(4, 9, newRandom(1, 0))
	slices.Sort(got)
	if !slices.Equal(got, []int{1, 2}) {
		t.Errorf("got %v, want clients 2 and 3", got)
	}
}

// TestTrackerKnowsTrials checks that the newest trials and each ejection are reported once,
// whichever client reports them.
func TestTrackerKnowsTrials(t *testing.T) {
	ids := testIDs()
	a, b := ids[0].String(), ids[1].String()
	tracker := newTracker(ids, testRun())
	open := []event.OpenTrial{{Accused: b, Accuser: a, Fault: "wrong result", Jury: 2, Guilty: 1}}
	out := event.Ejected{Client: b, Until: 4, Reason: "a jury found it guilty"}
	stranger := event.Ejected{Client: "stranger-of-long-name", Until: 2, Reason: "by the main authority"}
	tracker.add(a, at(2, event.Trials{Open: open}))
	tracker.add(b, at(1, event.Trials{})) // as the client saw it a second before
	tracker.add(a, at(3, out))
	tracker.add(b, at(4, out))
	tracker.add(b, at(4, stranger))
	p := tracker.progress()
	if len(p.Trials) != 1 || p.Trials[0] != open[0] || !slices.Equal(p.Ejected, []event.Ejected{out, stranger}) {
		t.Errorf("trials %+v, ejections %+v", p.Trials, p.Ejected)
	}
	if want := []string{"client-2 is ejected until epoch 4: a jury found it guilty", "stranger is ejected until epoch 2: by the main authority"}; !slices.Equal(p.Notes, want) {
		t.Errorf("notes: got %q, want %q", p.Notes, want)
	}
	if p.NameOf(b) != "client-2" || p.NameOf("xy") != "xy" {
		t.Errorf("names %q and %q", p.NameOf(b), p.NameOf("xy"))
	}
	tracker.add(b, at(5, event.Trials{}))
	if p := tracker.progress(); len(p.Trials) != 0 {
		t.Errorf("still open: %+v", p.Trials)
	}
}

// TestTrackerKnowsClients checks the activities of clients, as far as events and the testnet's own
// kills show them.
func TestTrackerKnowsClients(t *testing.T) {
	ids := testIDs()
	a, b, c := ids[0].String(), ids[1].String(), ids[2].String()
	tracker := newTracker(ids, testRun())
	state := func(second int, step uint32, members ...string) event.Event {
		return at(second, event.State{RunState: "RoundTrain", Epoch: 1, Step: step, Members: members, Elected: []string{a}, Uncounted: []string{b}, Idle: []string{b}, Batches: 2})
	}
	of := func(i int) ClientProgress { return tracker.progress().Clients[i] }
	see := func(id string, events ...event.Event) {
		for _, e := range events {
			tracker.add(id, e)
		}
	}
	see(a, state(10, 1, a, b, c), state(20, 2, a, b, c), state(30, 3, a, b, c), at(30, event.Ready{Epoch: 1}))
	see(a, at(31, event.Wire{P2PSent: 1000}), at(33, event.Wire{P2PSent: 3000}))
	see(a, at(34, event.Trained{Step: 3, Loss: 2, Tokens: 600, Seconds: 6}), at(34, event.ResultSent{Step: 3}))
	see(b, at(34, event.ResultSent{Step: 2}), at(34, event.Audit{Step: 1, Trainer: a, Outcome: "passed"}))
	if p := tracker.progress(); p.Results != 1 || p.Audits["passed"] != 1 || !p.Since.Equal(time.Unix(30, 0)) || p.MinClients != 2 || p.State.TotalSteps != 10 {
		t.Errorf("progress: %+v", p)
	}
	if got := of(0); !got.Ready || !got.Witness || got.Uncounted || got.Speed != 100 || got.Share != 0.6 || got.SentRate != 500 || got.LossStep != 3 {
		t.Errorf("client-1: %+v", got)
	}
	if got := of(1); !got.Idle || !got.Uncounted || got.Ready {
		t.Errorf("client-2: %+v", got)
	}

	see(a, at(35, event.ResultsHeld{Step: 3, Held: 2, Batches: 2}), at(36, event.Transfer{What: event.TransferUpload, Bytes: 1, Total: 2}))
	see(c, at(36, event.Desynchronised{}), at(36, event.Transfer{What: event.TransferModel, Bytes: 1, Total: 2}))
	if got := tracker.progress().Results; got != 2 {
		t.Errorf("%d results are known, want the number that a client has", got)
	}
	if first, third := of(0), of(2); first.Uploads.Total != 2 || first.Arrives.Total != 0 || !third.Lost || third.Arrives.Bytes != 1 {
		t.Errorf("client-1: %+v; client-3: %+v", first, third)
	}
	see(a, at(37, event.Transfer{What: event.TransferUpload, Bytes: 2, Total: 2}))
	see(c, at(37, event.Ready{Epoch: 1}))
	if first, third := of(0), of(2); first.Uploads.Total != 0 || third.Lost || third.Arrives.Total != 0 || !third.Ready {
		t.Errorf("nothing moves, but client-1: %+v; client-3: %+v", first, third)
	}

	see(a, state(40, 4, a))
	see(c, at(40, event.Desynchronised{Reason: "dropped from the epoch"}))
	if p := tracker.progress(); p.Clients[2].Lost || !p.Clients[2].Dropped || !slices.Contains(p.Notes, "client-3 is no longer a member: dropped from the epoch") {
		t.Errorf("dropped: %+v, notes %q", p.Clients[2], p.Notes)
	}
	tracker.killed(ids[1])
	if got := of(1); !got.Down || !got.Dropped || got.Member {
		t.Errorf("killed: %+v", got)
	}
	tracker.restarted(ids[1])
	see(b, at(41, event.Started{}))
	if got := of(1); got.Down || got.Dropped || got.Restarts != 1 {
		t.Errorf("restarted: %+v", got)
	}
	see(c, at(42, event.Ejected{Client: c, Until: 3}), at(42, event.Failed{Error: "no"}))
	see(a, at(42, event.Finished{}))
	if first, third := of(0), of(2); !third.Ejected || !third.GaveUp || !first.Ended {
		t.Errorf("client-1: %+v; client-3: %+v", first, third)
	}
	see(a, at(50, event.State{RunState: "WaitingForMembers", Epoch: 3}))
	if got := of(2); got.Ejected || got.Dropped {
		t.Errorf("a different epoch: %+v", got)
	}
}
