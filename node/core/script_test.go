package core

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// TestScripts runs the scripts of testdata. Each script specifies the decisions of one phase: it passes
// events to a member, and lists the effects. With -rewrite the test replaces the expected output by
// the actual output.
//
//	client [folder] [checks] [accept-loss] [loads]    a new client, which has seen no run; loads: it also looks for
//	                   the model of Warmup and of the running round
//	seen PHASE [epoch=N] [step=N] [model=N] [members=CLIENTS] [waits=CLIENTS] [left=CLIENTS] [ready=CLIENTS]
//	                   the newest state of the run, which trains from the model of a step; without model,
//	                   from its initial model. "me" is the client. The run knows its newest commitment.
//	                   claims=CLIENTS: clients that claimed to hold the model; foreign=CLIENTS: clients
//	                   with a commitment of another process; uploaded: the model is also at a public
//	                   location; definition=TEXT: another definition of the run; start=N: first step of
//	                   the epoch; reported=CLIENTS: clients that reported the run's model, or the model of
//	                   the epoch's last step; ejected=CLIENTS, dropped=CLIENTS: ejected and dropped clients; total=N: the run's last
//	                   step; closed: the authority closed the run; missed: no witness has a result of the
//	                   previous round; shares: shares by speed; offer=N, level=N, offered: the client's offer, its
//	                   level, and whether it has offered in this round; min=N: clients that the run needs to begin; taken=N:
//	                   intermediate checkpoint; since=N, at=N: seconds when the epoch and the phase began; quorum=N: newest round of which a quorum signed the same replica
//	has [FACT]…        what the client has from now on; without facts nothing:
//	                   held=N (the model of a step; wrong: not the run's; trained: by this client), prepared (the optimizer,
//	                   for that model), redefined (the run's configuration), shared (peers can fetch the model),
//	                   checkpoint (it can load the run's model), newest=N, saved=N, file=N (models on its disk)
//	wait TIME          lets time pass
//	answer KIND WITH   the host's answer to an action: ok, duplicate, refused, not-admitted or none
//	check WITH         the newest check passes, fails or is cancelled; old: the check before it passes
//	prepared, entered, lost, sits, leave, left      other events; see seat.go and returning.go
//	loaded WITH        the load ends: ok, no-holder, results-differ, no-room, cancelled or fails
//	replayed WITH      the replay ends: ok or fails
//	applied WITH       the trainer has applied the next round: ok or fails
//	measured [loss=N]  the measurement of a model ends; without a loss it fails
//	mispredicted       the round after the replica ended differently than predicted
//	replica step=N [has=N] [newest=N]    a replica of the running epoch after a step; newest is the newest
//	                   round that the client knows
//	taken              the client has taken the model after the replica's step
//	trains [step=N] [ahead], loads, recomputes, saves, idle      the trainer's work
//
//	round step=N [own=BATCH] [witness] [over] [judges] [proved]    the client is in a round, whose trainers are
//	                   awaited; over: it has ended; proved: the run has the client's proof
//	results from=CLIENTS late=CLIENTS    the trainers with and without a result here; at first all are late
//	underway tokens=N took=TIME [begun=PERCENT [complete=PERCENT]]    a training of the running round
//	trained tokens=N took=TIME [begun=PERCENT [complete=PERCENT]] [cancelled] [rehearsed]    the speed of a
//	                   training that ended
//	accuses step=N     the client examines the members of a round
//
// Further facts:
//
//	on-disk, saving, unwritten=N, failed    the model to report is on the disk; models that are not
//	held-out=TOKENS    of the data on which the client measures models
//	online=CLIENTS     connected clients, after the end of the run
//	batch              the first batch is known, in Warmup
//	tallies=N          the client tallies the rounds from a step on
//	next=BATCH, tokens, lag=N               predicted batch of the next round; the tokens to train are here
//	forbids, signed, later                  reasons not to train: the auditor, a signature of an earlier
//	                   process, weights of a later round
//	leeway=N           how many seconds later than usual the client's result may come
//	whole, pays, speculated                 all results are here; speculation pays, or is complete
//	outstanding=N      the replica should include the results up to a step
//	unknown, missing=N, unsure, claimed, no-room, outvoted, in-vain, recorded, answered
//	                   the outcome of the next round to apply; see applying.go
//	may-take           the trainer may be idle
//	for-leaver=N       newest step after which the client took a model for a client that left
//	hashing, copy=N, megabytes=N, unreported, host-fault
//	                   copies of a leaving client; the host is proved dishonest
//
// Further commands may follow on the lines below a command. At the end, unless the last command is left,
// the client looks at its seat and at its phase, and whether it can leave, as the loop of a client does
// after every event.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s := &script{}
			datadriven.RunTest(t, path, s.run)
		})
	}
}

// script is a member that a file controls. It is also the member's Holdings.
type script struct {
	*Member
	now    time.Time
	facts  map[string]string
	commit [32]byte // newest commitment that the client submitted
	checks []ID
	out    strings.Builder

	missing       time.Time // since when results are
	parts         map[uint32]*Part
	round         coordinator.Round // zero: none
	own           *assign.BatchID
	over, judges  bool
	arrived, late []coordinator.ClientID // trainers with and without a result here

	replica  *Replica
	newest   uint32
	trainer  ID        // 0: idle
	finds    bool      // the client looks for models
	load     Load      // newest
	replay   Replay    // newest
	underway *Underway // nil: no training
}

var me = coordinator.ClientID{'m', 'e'}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	s.out.Reset()
	for line := range strings.Lines(strings.TrimSpace(d.Input)) {
		s.do(t, d)
		next := *d
		d = &next
		var err error
		if d.Cmd, d.CmdArgs, err = datadriven.ParseLine(line); err != nil {
			d.Fatalf(t, "%v", err)
		}
	}
	if s.do(t, d); d.Cmd != "left" && s.state != nil {
		s.look()
	}
	if s.out.Len() == 0 {
		return "nothing\n"
	}
	return s.out.String()
}

// look passes what the loop of a client passes after every event.
func (s *script) look() {
	if s.replica != nil && s.replica.Epoch == (Epoch{}) {
		s.replica.Epoch = EpochOf(s.state)
	}
	s.pass(Look{Trainer: s.model(), Replica: s.replica})
	s.pass(Offering{s.underway, s.parts[s.round.Step], len(s.arrived), max(0, len(s.late)+len(s.arrived)-1)})
	if s.state.RunState == coordinator.RoundTrain || s.state.RunState == coordinator.RoundWitness {
		s.pass(InRound{})
	}
	if p := s.parts[s.round.Step]; p != nil && !s.Leave.Begun() {
		if s.judges {
			s.pass(Urgent{Part: p, Own: s.own != nil, Lag: max(1, s.step("lag")), Leeway: time.Duration(s.step("leeway")) * time.Second, Next: s.next})
		}
		s.train(p)
		if s.pass(Attest{Part: p, Round: &s.round, Results: s, Over: s.over, Judges: s.judges}).Prove {
			s.pass(Proof{coordinator.WitnessRound{Step: s.round.Step}, len(s.arrived), len(s.arrived) + len(s.late)})
		}
	}
	if s.replica != nil && s.fact("outstanding") {
		s.apply()
	}
	if s.fact("unreported") && !s.Leave.Begun() {
		s.pass(Unreported{coordinator.Recorded{Step: s.step("unreported"), Digest: digestOf(s.step("unreported"))}})
	}
	if s.fact("may-take") {
		s.pass(Idle{s.replica, s.copies()})
	}
	if s.finds {
		s.find()
	}
	s.end()
	if s.Leave.Begun() {
		s.leave()
	}
}

// leave passes what the loop of a leaving client passes.
func (s *script) leave() {
	e := Leaving{
		Replica: s.replica, Held: s.held(), InMemory: s.fact("held"), Unreported: s.fact("unreported"), HostFault: s.fact("host-fault"),
		Copies: s.copies(),
	}
	if s.round.Step == s.state.Progress.Step {
		e.Round = &s.round
	}
	s.pass(e)
}

// end passes what the loop of a client passes at the end of an epoch or of the run.
func (s *script) end() {
	switch s.state.RunState {
	case coordinator.Cooldown:
		if s.close() && s.pass(Cooldown{s.held()}).Persist != nil {
			s.pass(Persisted{s.fact("on-disk"), HeldOut{Tokens: int(s.step("held-out")), Last: 30 * time.Second}})
		}
	case coordinator.Finished:
		if s.pass(Over{s.held()}).End {
			return
		}
		connected := make(map[coordinator.ClientID]bool)
		for _, name := range strings.Split(s.facts["online"], ",") {
			connected[idOf(name)] = true
		}
		var unwritten []uint32
		if s.fact("unwritten") {
			unwritten = []uint32{s.step("unwritten")}
		}
		s.pass(Finish{Trainer: s.model(), Closed: s.close(), Saving: s.fact("saving"), Unwritten: unwritten, Failed: s.fact("failed"), Connected: connected})
	default:
		s.close()
	}
}

// begin begins a round, or ends it.
func (s *script) begin(d *datadriven.TestData) {
	step := numberOf(d, "step")
	if s.parts[step] == nil {
		p := NewPart(step, d.HasArg("witness"), s.now)
		s.parts[step], s.round = &p, coordinator.Round{Step: step, Members: []coordinator.ClientID{me}}
		s.arrived, s.late = nil, nil
		for i := range s.state.Epoch.Clients {
			s.late = append(s.late, s.state.Epoch.Clients[i].ID)
		}
	}
	if s.own = nil; d.HasArg("own") {
		own := batchOf(numberOf(d, "own"))
		s.own = &own
	}
	s.over, s.judges = d.HasArg("over"), d.HasArg("judges")
	if d.HasArg("proved") {
		s.round.Witnesses = append(s.round.Witnesses, coordinator.Witness{Member: 0})
	}
}

// close advances the end of an epoch, and reports whether it is complete.
func (s *script) close() bool {
	for {
		switch ready := s.pass(Close{Replica: s.replica, Newest: s.newest, Taken: s.fact("held")}); {
		case ready.Next != nil:
			return false
		case ready.LeaveEpoch:
			s.replica = nil
		default:
			return true
		}
	}
}

func (s *script) do(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	if d.Cmd != "client" && s.Member == nil {
		d.Fatalf(t, "no client")
	}
	switch d.Cmd {
	case "client":
		s.now, s.facts, s.checks, s.commit = time.Unix(1000, 0), make(map[string]string), nil, [32]byte{}
		s.replica, s.newest, s.trainer, s.underway = nil, 0, 0, nil
		s.parts, s.round, s.finds = make(map[uint32]*Part), coordinator.Round{}, d.HasArg("loads")
		s.Member = New(Options{ID: me, Holdings: s, Folder: d.HasArg("folder"), Checks: d.HasArg("checks"), AcceptLoss: d.HasArg("accept-loss"), FinalWait: 30 * time.Second})
	case "seen":
		s.see(d)
	case "has":
		s.facts = make(map[string]string)
		for _, a := range d.CmdArgs {
			s.facts[a.Key] = strings.Join(a.Vals, ",")
		}
	case "wait":
		passed, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.now = s.now.Add(passed)
	case "answer":
		errs := map[string]error{
			"ok": nil, "duplicate": coordinator.ErrDuplicate, "refused": coordinator.ErrWrongEpoch,
			"not-admitted": coordinator.ErrNotAuthorised, "none": errors.New("disconnected"),
		}
		s.pass(Answered{Kind: strings.ReplaceAll(d.CmdArgs[0].Key, "-", " "), Err: errs[d.CmdArgs[1].Key]})
	case "check":
		s.check(d.CmdArgs[0].Key)
	case "round":
		s.begin(d)
	case "results":
		s.arrived, s.late = clientsOf(d, "from"), clientsOf(d, "late")
	case "loaded":
		s.loaded(d.CmdArgs[0].Key)
	case "replayed":
		s.replayed(d.CmdArgs[0].Key == "ok")
	case "applied":
		applied := Applied{Step: s.replica.Step + 1}
		if d.CmdArgs[0].Key == "fails" {
			applied.Err = errors.New("no memory")
		} else {
			s.replica.Step++
		}
		s.pass(applied)
	case "measured":
		w, _ := s.Jobs.Work().(Measure)
		s.Jobs.Done(s.trainer)
		e := Evaluated{Measure: w, Claim: uint16(numberOf(d, "loss")), Sequences: 1}
		if e.Claim == 0 {
			e.Err = errors.New("no memory")
		}
		s.pass(e)
	case "mispredicted":
		s.pass(Mispredicted{s.replica.Step + 1})
	case "accuses":
		s.pass(Accuse{s.parts[numberOf(d, "step")]})
	case "replica":
		s.missing = time.Time{}
		s.replica, s.newest = &Replica{Step: numberOf(d, "step"), Has: numberOf(d, "has")}, numberOf(d, "newest")
	case "taken":
		s.facts = map[string]string{"held": fmt.Sprint(s.replica.Step)}
	case "trains", "loads", "recomputes", "saves":
		works := map[string]Work{"trains": Train{Step: numberOf(d, "step"), Ahead: d.HasArg("ahead")}, "loads": Load{From: s.state.Model.Checkpoint}, "recomputes": Recompute{}, "saves": Keep{}}
		s.trainer = s.Jobs.Start(works[d.Cmd], s.cancelled)
	case "idle":
		s.Jobs.Done(s.trainer)
	case "underway":
		under := s.trainingOf(t, d)
		s.underway = &under
	case "trained":
		s.underway = nil
		s.pass(Measured{s.trainingOf(t, d), !d.HasArg("cancelled"), d.HasArg("rehearsed")})
	case "prepared":
		s.pass(Offering{})
		s.pass(Prepared{Batch: s.fact("batch"), Tokens: s.fact("tokens")})
	case "leave":
		s.pass(Interrupted{5 * time.Second})
	default:
		event, known := map[string]Event{"entered": Entered{}, "lost": Lost{}, "sits": SitDown{s.replica}, "left": Left{}}[d.Cmd]
		if !known {
			d.Fatalf(t, "unknown command")
		}
		s.pass(event)
	}
}

// check passes the result of a check.
func (s *script) check(result string) {
	id, failed := s.checks[len(s.checks)-1], error(nil)
	switch result {
	case "old":
		id = s.checks[len(s.checks)-2]
	case "fails":
		failed = errors.New("too little memory")
	}
	s.pass(Checked{ID: id, Err: failed, Cancelled: result == "cancelled"})
}

// pass passes an event, and lists its effects.
func (s *script) pass(e Event) Ready {
	s.Step(s.now, e)
	ready := s.Ready()
	if ready.Ended != nil {
		names := map[FinalModel]string{ModelRecorded: "the recorded model", ModelUnrecorded: "the unrecorded last model", ModelOld: "an old model", ModelOther: "another model than the run", ModelNone: "no model"}
		fmt.Fprintf(&s.out, "reports the end, with %s\n", names[*ready.Ended])
	}
	for _, said := range ready.Report {
		text := fmt.Sprintf("%+v", said)
		switch said := said.(type) {
		case Reported:
			text = fmt.Sprintf("{Step:%d}", said.Step)
		case Waiting:
			text = []string{"", fmt.Sprintf("for members: %d of %d", said.Have, said.Want), "for a holder", "for the model", "for the host to resume the run", "for the next epoch"}[said.Reason]
		case HeldOutLoss:
			text = fmt.Sprintf("of step %d after %v, %v", said.Step, said.Took, said.Err)
		case ReportedTaken:
			text = fmt.Sprintf("{Step:%d}", said.Step)
		case Accused:
			text = fmt.Sprintf("{Step:%d}", said.Step)
		}
		fmt.Fprintf(&s.out, "reports %s %s\n", strings.TrimPrefix(fmt.Sprintf("%T", said), "core."), text)
	}
	for _, a := range ready.Submit {
		fmt.Fprintf(&s.out, "submits %s\n", s.describe(a.Action))
	}
	for _, started := range ready.Start {
		s.checks = append(s.checks, started.ID)
		fmt.Fprintf(&s.out, "starts %s\n", strings.TrimPrefix(fmt.Sprintf("%T", started.Work), "core."))
	}
	if ready.HeldAll {
		s.out.WriteString("holds all results that can be expected\n")
	}
	if ready.Persist != nil {
		fmt.Fprintf(&s.out, "writes the model of step %d\n", ready.Persist.Step)
	}
	if ready.CancelAhead {
		s.Jobs.Cancel()
	}
	if ready.Included {
		fmt.Fprintf(&s.out, "the weights include step %d\n", e.(Counted).Step)
	}
	if ready.Read != nil {
		fmt.Fprintf(&s.out, "reads batch %d\n", ready.Read.Start)
	}
	if ready.Ask {
		s.out.WriteString("asks the auditor\n")
	}
	if ready.Begin {
		s.out.WriteString("continues the training that began ahead\n")
	}
	s.starts(e, ready.Next)
	if ready.Enter != nil {
		fmt.Fprintf(&s.out, "enters the epoch with the model after step %d\n", ready.Enter.Step)
		s.replica = &Replica{Epoch: EpochOf(s.state), Step: ready.Enter.Step}
	}
	if ready.ReadFirst {
		s.out.WriteString("reads the first batch\n")
	}
	if ready.Preempt > 0 {
		fmt.Fprintf(&s.out, "lets an urgent recomputation run for up to %v\n", ready.Preempt)
	}
	if ready.AskPeers {
		s.out.WriteString("asks peers\n")
	}
	if ready.Desynchronise != "" {
		fmt.Fprintf(&s.out, "is desynchronised: %s\n", ready.Desynchronise)
	}
	s.endsWith(ready)
	s.Advance()
	return ready
}

// describe describes an action.
func (s *script) describe(action coordinator.Action) string {
	switch a := action.(type) {
	case coordinator.Join:
		s.commit = a.Commitment
		text := fmt.Sprintf("Join for epoch %d", a.Epoch)
		if a.Holds != [32]byte{} {
			text += fmt.Sprintf(", with the model of step %d", a.Holds[0])
		}
		return text
	case coordinator.Ready:
		s.commit = a.Next
		return fmt.Sprintf("Ready for epoch %d", a.Epoch)
	case coordinator.ReportCheckpoint:
		text := fmt.Sprintf("ReportCheckpoint of step %d", a.Step-1)
		if a.HeldOut > 0 {
			text += fmt.Sprintf(", with the loss %d", a.HeldOut)
		}
		return text
	case coordinator.WitnessRound:
		return fmt.Sprintf("WitnessRound of step %d", a.Step)
	case coordinator.HealthCheck:
		text := fmt.Sprintf("HealthCheck of step %d:", a.Step)
		for _, id := range a.Clients {
			text += " " + nameOf(id)
		}
		return text
	case coordinator.Offer:
		return fmt.Sprintf("Offer of level %d in step %d", a.Level, a.Step)
	case coordinator.Return:
		return fmt.Sprintf("Return to epoch %d", a.Epoch)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", action), "coordinator.")
}

// cancelled lists that the trainer's work was cancelled.
func (s *script) cancelled() { s.out.WriteString("cancels the trainer's work\n") }

func (s *script) fact(name string) bool { _, is := s.facts[name]; return is }

func (s *script) step(name string) uint32 {
	n, _ := strconv.ParseUint(s.facts[name], 10, 32)
	return uint32(n)
}

// model describes the trainer's model.
func (s *script) model() Trainer {
	return Trainer{Held: s.held(), Start: [32]byte{1}, Redefined: s.fact("redefined"), Prepared: s.fact("prepared")}
}

func (s *script) held() *Model {
	if !s.fact("held") {
		return nil
	}
	m := &Model{Step: s.step("held"), Digest: digestOf(s.step("held"))}
	if s.fact("wrong") {
		m.Digest[1]++
	}
	if !s.fact("trained") {
		m.Origin = coordinator.Checkpoint{Kind: coordinator.CheckpointLocal}
	}
	return m
}

func (s *script) Arrived() []coordinator.ClientID { return s.arrived }

func (s *script) Awaited() (held, all []coordinator.ClientID) {
	return s.arrived, slices.Concat(s.arrived, s.late)
}

func (s *script) Members() []coordinator.ClientID { return slices.Concat(s.arrived, s.late) }

func (s *script) Checkpoint(*coordinator.State) bool { return s.fact("checkpoint") }

func (s *script) Shares([32]byte) bool { return s.fact("shared") }

func (s *script) Newest(*coordinator.State) (r coordinator.Recorded) {
	if step := s.step("newest"); step > 0 {
		r = coordinator.Recorded{Step: step, Digest: digestOf(step)}
	}
	return r
}

func (s *script) Saved(*coordinator.State) (coordinator.Recorded, bool) {
	return coordinator.Recorded{Step: s.step("saved")}, s.fact("saved")
}

func (s *script) Before(uint32) uint32 { return s.step("file") }
