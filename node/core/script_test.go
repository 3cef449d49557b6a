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

	"github.com/psyche-go/psyche/core/coordinator"
)

// TestScripts runs the scripts of testdata. Each script specifies the decisions of one phase: it passes
// events to a member, and lists the effects. With -rewrite the test replaces the expected output by
// the actual output.
//
//	client [folder] [checks] [accept-loss]    a new client, which has seen no run
//	seen PHASE [epoch=N] [step=N] [model=N] [members=CLIENTS] [waits=CLIENTS] [left=CLIENTS] [ready=CLIENTS]
//	                   the newest state of the run, which trains from the model of a step; without model,
//	                   from its initial model. "me" is the client. The run knows its newest commitment.
//	                   claims=CLIENTS: clients that claimed to hold the model; foreign=CLIENTS: clients
//	                   with a commitment of another process; uploaded: the model is also at a public
//	                   location; definition=TEXT: another definition of the run
//	has [FACT]…        what the client has from now on; without facts nothing:
//	                   held=N (the model of a step), replica, loaded (the run's model, in the trainer),
//	                   returning (it can get a replica in this epoch), may-sit (it can take its seat back),
//	                   checkpoint (it can load the run's model), newest=N, saved=N, file=N (models on its disk)
//	wait TIME          lets time pass
//	answer KIND WITH   the host's answer to an action: ok, duplicate, refused, not-admitted or none
//	check WITH         the newest check passes, fails or is cancelled; old: the check before it passes
//	prepared, entered, lost, sits, leave, left      other events; see seat.go
//
// Further commands may follow on the lines below a command. After each event except left, the client
// looks at its seat, as the loop of a client does.
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
}

var me = coordinator.ClientID{'m', 'e'}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	s.out.Reset()
	for line := range strings.Lines(strings.TrimSpace(d.Input)) {
		s.execute(t, d)
		next := *d
		d = &next
		var err error
		if d.Cmd, d.CmdArgs, err = datadriven.ParseLine(line); err != nil {
			d.Fatalf(t, "%v", err)
		}
	}
	s.execute(t, d)
	if s.out.Len() == 0 {
		return "nothing\n"
	}
	return s.out.String()
}

// execute runs a command, after which the client looks at its seat.
func (s *script) execute(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	if d.Cmd != "client" && s.Member == nil {
		d.Fatalf(t, "no client")
	}
	s.do(t, d)
	if d.Cmd != "client" && d.Cmd != "left" && s.state != nil {
		s.pass(Look{
			Held: s.held(), Replica: s.fact("replica"), Loaded: s.fact("loaded"), Returns: s.fact("returning"), SitsDown: s.fact("may-sit"),
		})
	}
}

func (s *script) do(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	switch d.Cmd {
	case "client":
		s.now, s.facts, s.checks, s.commit = time.Unix(1000, 0), nil, nil, [32]byte{}
		s.Member = New(Options{ID: me, Holdings: s, Folder: d.HasArg("folder"), Checks: d.HasArg("checks"), AcceptLoss: d.HasArg("accept-loss")})
	case "seen":
		s.see(d)
	case "has":
		s.facts = make(map[string]string)
		for _, a := range d.CmdArgs {
			s.facts[a.Key] = strings.Join(a.Vals, "")
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
		s.pass(Answered{Kind: d.CmdArgs[0].Key, Err: errs[d.CmdArgs[1].Key]})
	case "check":
		s.check(d.CmdArgs[0].Key)
	case "leave":
		s.Leave.Begin(s.now, 5*time.Second)
	default:
		event, known := map[string]Event{"prepared": Prepared{}, "entered": Entered{}, "lost": Lost{}, "sits": MaySitDown{}, "left": Left{}}[d.Cmd]
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

// see passes a state of the run.
func (s *script) see(d *datadriven.TestData) {
	first := s.state == nil
	state := &coordinator.State{}
	for phase := coordinator.Uninitialized; phase <= coordinator.Paused; phase++ {
		if phase.String() == d.CmdArgs[0].Key {
			state.RunState = phase
		}
	}
	state.Progress.Epoch, state.Progress.Step = numberOf(d, "epoch"), max(1, numberOf(d, "step"))
	state.Model.Definition = []byte(strings.Join(valuesOf(d, "definition"), ""))
	state.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointLocal}
	if step := numberOf(d, "model"); step > 0 {
		state.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Step: step, Digest: digestOf(step)}
	}
	if d.HasArg("uploaded") {
		state.Uploads = append(state.Uploads, coordinator.Upload{Digest: state.Model.Checkpoint.Digest})
	}
	claims := valuesOf(d, "claims")
	entries := func(list string, status coordinator.ClientState) (clients []coordinator.Client) {
		for _, name := range valuesOf(d, list) {
			c := coordinator.Client{ID: idOf(name), State: status, HoldsModel: slices.Contains(claims, name)}
			if c.ID == me {
				c.Commitment = s.commit
			}
			if slices.Contains(valuesOf(d, "foreign"), name) {
				c.Commitment = [32]byte{1}
			}
			clients = append(clients, c)
		}
		return clients
	}
	state.Epoch.Clients = entries("members", coordinator.Healthy)
	state.Epoch.Exited = entries("left", coordinator.Withdrawn)
	state.Pending = entries("waits", coordinator.Healthy)
	for _, name := range valuesOf(d, "ready") {
		state.Epoch.Ready = append(state.Epoch.Ready, idOf(name))
	}
	s.pass(Seen{state})
	if first {
		s.pass(Began{[32]byte{1}})
	}
}

// pass passes an event, and lists its effects.
func (s *script) pass(e Event) {
	s.Step(s.now, e)
	ready := s.Ready()
	for _, said := range ready.Report {
		fmt.Fprintf(&s.out, "reports %s %+v\n", strings.TrimPrefix(fmt.Sprintf("%T", said), "core."), said)
	}
	for _, a := range ready.Submit {
		fmt.Fprintf(&s.out, "submits %s\n", s.describe(a.Action))
	}
	for _, started := range ready.Start {
		s.checks = append(s.checks, started.ID)
		fmt.Fprintf(&s.out, "starts %s\n", strings.TrimPrefix(fmt.Sprintf("%T", started.Work), "core."))
	}
	if ready.Fail != nil {
		fmt.Fprintf(&s.out, "fails: %v\n", ready.Fail)
	}
	s.Advance()
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
	case coordinator.Return:
		return fmt.Sprintf("Return to epoch %d", a.Epoch)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", action), "coordinator.")
}

func (s *script) fact(name string) bool { _, is := s.facts[name]; return is }

func (s *script) step(name string) uint32 {
	n, _ := strconv.ParseUint(s.facts[name], 10, 32)
	return uint32(n)
}

func (s *script) held() *Model {
	if !s.fact("held") {
		return nil
	}
	return &Model{Step: s.step("held"), Digest: digestOf(s.step("held"))}
}

func (s *script) Checkpoint(*coordinator.State) bool { return s.fact("checkpoint") }

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

func idOf(name string) (id coordinator.ClientID) {
	copy(id[:], name)
	return id
}

func digestOf(step uint32) [32]byte { return [32]byte{byte(step)} }

func valuesOf(d *datadriven.TestData, key string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func numberOf(d *datadriven.TestData, key string) uint32 {
	values := valuesOf(d, key)
	if len(values) != 1 {
		return 0
	}
	n, _ := strconv.ParseUint(values[0], 10, 32)
	return uint32(n)
}
