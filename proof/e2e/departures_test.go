package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/follow"
)

var allDepartures = flag.Bool("departures", false, "TestDepartures: all departures, not three of them")

// The run of TestDepartures: an intermediate checkpoint after every third round, and two epochs.
const (
	departureCommits = 3
	departureRounds  = 12
	departureSteps   = 2 * departureRounds
)

// departure is a way in which needed members leave and return.
type departure struct {
	name    string
	limit   int  // maximum number of counted rounds that may be lost
	brief   bool // also without -departures
	clients int
	happens func(d *departing) // departs, and restarts the departed clients
}

// departing is a run during a departure.
type departing struct {
	*network
	clients   []*client
	forgotten int // steps missing on the server's disk
}

var departures = []departure{
	{"one of two leaves (Ctrl-C)", 0, true, 2, func(d *departing) {
		d.clients[0].waitPhase("RoundTrain", 8)
		d.interrupt(d.clients[0])
		d.waitEpochOver()
		d.startAgain(d.clients[0])
	}},
	{"one of two leaves (Ctrl-C), then the other is killed", departureCommits, false, 2, func(d *departing) {
		d.clients[0].waitPhase("RoundTrain", 8)
		d.interrupt(d.clients[0])
		d.killAll(d.clients[1])
		d.waitEpochOver()
		d.startAgain(d.clients...)
	}},
	// If fewer than a third of the first members are left, their rounds cannot be recorded: the
	// epoch ends after four of these rounds.
	{"three of four leave (Ctrl-C) in one moment", coordinator.StoredRounds + 1, false, 4, func(d *departing) {
		d.clients[0].waitPhase("RoundTrain", 4)
		d.interrupt(d.clients[1:]...)
		d.waitEpochOver()
		d.startAgain(d.clients[1:]...)
	}},
	{"one of two is killed", departureCommits, false, 2, func(d *departing) {
		d.clients[0].waitPhase("RoundTrain", 8)
		d.killAll(d.clients[1])
		d.waitEpochOver()
		d.startAgain(d.clients[1])
	}},
	{"three of four are killed in the last round", departureCommits, false, 4, func(d *departing) {
		d.clients[0].waitPhase("RoundTrain", departureRounds)
		d.killAll(d.clients[1:]...)
		d.waitEpochOver()
		d.startAgain(d.clients[1:]...)
	}},
	{"three of four are killed in Cooldown", departureCommits, true, 4, func(d *departing) {
		d.clients[0].waitPhase("Cooldown", departureRounds+1)
		d.killAll(d.clients[1:]...)
		d.waitEpochOver()
		d.startAgain(d.clients[1:]...)
	}},
	{"three of four stand still for eight seconds", departureCommits, false, 4, func(d *departing) {
		d.clients[0].waitPhase("RoundTrain", 8)
		d.signal(syscall.SIGSTOP, d.clients[1:]...)
		time.Sleep(8 * time.Second) // for processes, which run on the wall clock
		d.signal(syscall.SIGCONT, d.clients[1:]...)
	}},
	{"all four are killed in one moment", departureCommits, false, 4, func(d *departing) {
		d.clients[0].waitPhase("RoundTrain", 8)
		d.killAll(d.clients...)
		d.waitEpochOver()
		d.startAgain(d.clients...)
	}},
	{"all four are killed as the run has recorded their last model", departureCommits, false, 4, func(d *departing) {
		d.waitEpochOver()
		d.killAll(d.clients...)
		d.startAgain(d.clients...)
	}},
	{"all four and the server are killed in one moment", departureCommits, false, 4, func(d *departing) {
		d.clients[0].waitPhase("RoundTrain", 8)
		d.killAll(d.clients...)
		d.server.kill(d.t)
		d.startServer()
		d.waitEpochOver()
		d.startAgain(d.clients...)
	}},
	{"the server dies, and its disk is four rounds old", departureCommits, false, 3, func(d *departing) {
		d.clients[0].waitPhase("RoundTrain", 4)
		old := d.saved
		d.saved = filepath.Join(d.dir, "old")
		err := os.CopyFS(d.saved, os.DirFS(old))
		for _, secret := range []string{server.HostKeyFile, "e2e.draws"} { // all users can read a copy
			err = errors.Join(err, os.Chmod(filepath.Join(d.saved, secret), 0o600))
		}
		if err != nil {
			d.t.Fatal(err)
		}
		had := d.newestStep()
		d.clients[0].waitPhase("RoundTrain", had+4)
		d.server.kill(d.t)
		d.forgotten = int(newestStep(d.t, old) - had)
		d.startServer()
		for _, c := range d.clients {
			if code := c.exitCode(d.t, runTimeout); code != 7 {
				d.t.Fatalf("%s ended with exit code %d after its server had lost its signed actions, want 7", c.name, code)
			}
		}
		d.startAgain(d.clients...)
	}},
}

// TestDepartures has processes whose needed members leave in every way. The lost counted rounds
// must be at most the rounds since the newest intermediate checkpoint.
func TestDepartures(t *testing.T) {
	if clientBinary == "" {
		t.Skip(noTorch)
	}
	t.Parallel()
	var rows []string
	row := func(name, lost, limit string) {
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |", name, lost, limit))
	}
	for _, way := range departures {
		t.Run(way.name, func(t *testing.T) {
			if !way.brief && !*allDepartures {
				t.Skip("only with -departures")
			}
			lost, forgotten := way.play(t)
			row(way.name, fmt.Sprint(lost, forgotten), fmt.Sprint(way.limit))
			if lost > way.limit {
				t.Errorf("%d counted rounds are lost, want at most %d", lost, way.limit)
			}
		})
	}
	for _, moment := range interruptions {
		name := "Ctrl-C of a testnet in " + moment.phase + ", then --resume"
		t.Run(name, func(t *testing.T) {
			if !moment.brief && !*allDepartures {
				t.Skip("only with -departures")
			}
			lost := moment.play(t)
			row(name, fmt.Sprint(lost), "0")
			if lost > 0 {
				t.Errorf("%d counted rounds are lost", lost)
			}
		})
	}
	t.Logf("intermediate checkpoints after every %d rounds:\n| departure | counted rounds that are lost | bound |\n| --- | --- | --- |\n%s", departureCommits, strings.Join(rows, "\n"))
}

// play runs the departure, waits for the run's end, and returns the lost rounds.
func (w departure) play(t *testing.T) (lost int, forgotten string) {
	r := rules{clients: w.clients, minClients: 1, roundsPerEpoch: departureRounds, steps: departureSteps}
	d := &departing{network: newNetwork(t, r)}
	d.writeState(r)
	d.startServer()
	for i := range w.clients {
		c := d.newClient(fmt.Sprintf("client-%d", i+1))
		c.env = []string{"DUMMY_TRAINING_DELAY_SECS=0.3"}
		c.start()
		d.clients = append(d.clients, c)
	}
	w.happens(d)
	finish(t, d.clients...)
	if d.forgotten > 0 {
		forgotten = fmt.Sprintf(" and the %d that the disk had not", d.forgotten)
	}
	return lostOf(t, server.JournalPath(d.saved, "e2e"), departureSteps), forgotten
}

// writeState writes the configuration of a run with the dummy model and short waits.
func (n *network) writeState(r rules) {
	n.t.Helper()
	text := dummyModel(stateFile(r, n.data, n.model))
	text = strings.Replace(text, "[config]\n", fmt.Sprintf("[config]\ncommit_every_rounds = %d\n", departureCommits), 1)
	text = strings.Replace(text, "max_round_train_time = 30", "max_round_train_time = 4", 1)
	writeFile(n.t, n.state, []byte(strings.Replace(text, "warmup_time = 60", "warmup_time = 15", 1)))
}

// killAll kills clients at the same time.
func (d *departing) killAll(clients ...*client) {
	d.t.Helper()
	for _, c := range clients {
		c.Signal(syscall.SIGKILL)
	}
	for _, c := range clients {
		c.kill(d.t)
	}
}

// interrupt ends clients by Ctrl-C.
func (d *departing) interrupt(clients ...*client) {
	d.t.Helper()
	for _, c := range clients {
		c.interrupt(d.t)
	}
	for _, c := range clients {
		if code := c.exitCode(d.t, exitTimeout); code != interrupted {
			d.t.Fatalf("%s ended with exit code %d, want %d", c.name, code, interrupted)
		}
	}
}

// signal sends a signal to clients at the same time.
func (d *departing) signal(s syscall.Signal, clients ...*client) {
	d.t.Helper()
	for _, c := range clients {
		c.Signal(s)
	}
}

// waitEpochOver waits until the first epoch has ended without the departed members, and the run
// waits for members.
func (d *departing) waitEpochOver() {
	d.t.Helper()
	waitEvent(d.t, filepath.Join(d.dir, "server", "events.jsonl"), "the first epoch is over", func(body event.Body) bool {
		s, ok := body.(event.State)
		return ok && s.Epoch > 0
	})
}

// startAgain restarts the departed clients. They do not wait for minutes for a member with a newer
// model: the run itself waits for such a member.
func (d *departing) startAgain(clients ...*client) {
	for _, c := range clients {
		c.start("--accept-loss")
	}
}

// newestStep returns the step of the run in the server's folder.
func (d *departing) newestStep() uint32 { return newestStep(d.t, d.saved) }

func newestStep(t *testing.T, saved string) uint32 {
	t.Helper()
	final, _, err := server.Replay(server.JournalPath(saved, "e2e"), func(follow.Record, *coordinator.State) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return final.State.Progress.Step
}

// lostOf returns the number of rounds of a finished run that had a quorum but are not in its model.
func lostOf(t *testing.T, journal string, steps uint32) (lost int) {
	t.Helper()
	counted := map[uint32]bool{}
	final, _, err := server.Replay(journal, func(_ follow.Record, s *coordinator.State) error {
		if round := s.CurrentRound(); round != nil && round.HasQuorum() {
			counted[round.Step] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := final.State; s.RunState != coordinator.Finished || s.Progress.Step != steps+1 {
		t.Errorf("the run ends as %v before step %d", s.RunState, s.Progress.Step)
	}
	for _, l := range final.State.RollbackGaps {
		for step := l.First; step <= l.Last; step++ {
			if counted[step] {
				lost++
			}
		}
	}
	return lost
}

// interruption is a point at which a testnet is interrupted.
type interruption struct {
	phase string
	step  uint32
	brief bool
}

var interruptions = []interruption{
	{"Warmup", 1, false}, {"RoundTrain", 8, false}, {"RoundWitness", 8, false},
	{"Cooldown", departureRounds + 1, true}, {"WaitingForMembers", departureRounds + 1, false}, {"the last round's RoundTrain", departureSteps, false},
}

// play interrupts a testnet, resumes it and returns the lost rounds.
func (i interruption) play(t *testing.T) (lost int) {
	n := newNetwork(t, rules{})
	n.writeState(rules{clients: 2, minClients: 1, roundsPerEpoch: departureRounds, steps: departureSteps})
	pace := []string{"DUMMY_TRAINING_DELAY_SECS=0.3"}
	first := start(t, "testnet", filepath.Join(n.dir, "first.txt"), serverBinary, pace, n.testnetArgs()...)
	var seen []string
	until(t, "the testnet's server", func() bool {
		seen, _ = filepath.Glob(filepath.Join(n.dir, "runs", "*", "server", "events.jsonl"))
		return len(seen) == 1
	})
	waitPhase(t, seen[0], i.phase[strings.LastIndex(i.phase, " ")+1:], i.step)
	first.interrupt(t)
	if code := first.exitCode(t, runTimeout); code != interrupted {
		t.Fatalf("exit code %d of an interrupted testnet, want %d", code, interrupted)
	}
	text := first.text(t)
	if strings.Contains(text, "may be lost") {
		t.Errorf("the testnet reports that rounds may be lost:\n%s", tail(text, 30))
	}
	saved := filepath.Dir(seen[0])
	again := regexp.MustCompile(`continue with: psyche (testnet start --resume \S+.*)`).FindStringSubmatch(text)
	if i.step == departureSteps && again == nil { // the run reached its end
		return lostOf(t, server.JournalPath(saved, "e2e"), departureSteps)
	}
	if again == nil {
		t.Fatalf("no way to continue:\n%s", tail(text, 30))
	}
	next := start(t, "resumed testnet", filepath.Join(n.dir, "next.txt"), serverBinary, pace, append(strings.Fields(again[1]), "--no-tui", "--client", clientBinary)...)
	if code := next.exitCode(t, runTimeout); code != 0 {
		t.Fatalf("exit code %d of the resumed testnet\n%s", code, tail(next.text(t), 30))
	}
	return lostOf(t, server.JournalPath(saved, "e2e"), departureSteps)
}
