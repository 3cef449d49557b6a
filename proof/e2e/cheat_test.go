package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/evidence"
	"github.com/psyche-go/psyche/record/follow"
)

// The run of TestCheatsAreEjected: in each round, three of eight members do not train and audit
// instead.
const (
	cheatMembers = 8
	cheatAudits  = 40  // verification_percent
	cheatBatch   = 60  // sequences of a round
	cheatRounds  = 160 // all in one epoch, so many that silence is proven before its end
)

// cheats are the attackers of the run: their flags, and the expected outcomes of their audits.
var cheats = []struct {
	name     string
	flags    []string
	outcomes []string // of audits
	opens    bool
}{
	{"negated", []string{"-attack", "negated"}, []string{"faulty"}, true},
	{"opens-nothing", []string{"-attack", "noise", "-closed", "-pace", "1500ms"}, []string{"silent"}, false},
}

// TestCheatsAreEjected has eight processes that train a run with audits. Two of them cheat: one
// sends the negative of its results and opens them; the other sends noise and refuses all openings.
// Juries must eject both cheats and no other member, and the six honest clients must end with one
// model.
func TestCheatsAreEjected(t *testing.T) {
	t.Parallel()
	needClient(t)
	r := rules{clients: cheatMembers, minClients: 2, roundsPerEpoch: cheatRounds, steps: cheatRounds}
	n := newNetwork(t, r)
	n.change("verification_percent = 0", fmt.Sprintf("verification_percent = %d", cheatAudits))
	n.change("global_batch_size_start = 6", fmt.Sprintf("global_batch_size_start = %d", cheatBatch))
	n.change("global_batch_size_end = 6", fmt.Sprintf("global_batch_size_end = %d", cheatBatch))
	n.startServer()
	var attackers []*client
	for _, cheat := range cheats {
		c := n.newClient(cheat.name)
		c.startAltered("cheat/cheater", cheat.flags...)
		attackers = append(attackers, c)
	}
	honest := n.startClients(cheatMembers - len(cheats))
	waitFor[event.Ready](honest[0])
	awaitEjections(honest[0], len(cheats), 5*time.Minute)
	digest := finish(t, honest...)

	checkEjections(t, n, attackers)
	sizes := checkAudits(t, slices.Concat(honest, attackers), attackers)
	trials := readTrials(t, n)
	for _, c := range attackers {
		noPanic(t, c.name, c.text(t))
		t.Log(trials.story(t, c, honest))
	}
	checkEvidence(t, n, trials, attackers, honest)
	slices.Sort(sizes)
	t.Logf("%d openings of %d to %d bytes, %d in the median", len(sizes), sizes[0], sizes[len(sizes)-1], sizes[len(sizes)/2])
	t.Logf("%d votes; digest of the six honest: %s", trials.votes, digest)
}

// awaitEjections waits until a client has seen n ejections, or the run is over.
func awaitEjections(c *client, count int, limit time.Duration) {
	for until := time.Now().Add(limit); time.Now().Before(until); time.Sleep(time.Second) {
		seen := 0
		for _, e := range c.events() {
			switch e.Body.(type) {
			case event.Ejected:
				seen++
			case event.Finished:
				return
			}
		}
		if seen >= count {
			return
		}
	}
}

// change replaces a line of the run's configuration.
func (n *network) change(line, by string) {
	n.t.Helper()
	content, err := os.ReadFile(n.state)
	if err != nil {
		n.t.Fatal(err)
	}
	if !strings.Contains(string(content), line+"\n") {
		n.t.Fatalf("state.toml has no %s", line)
	}
	writeFile(n.t, n.state, []byte(strings.Replace(string(content), line+"\n", by+"\n", 1)))
}

// checkEjections reads the ejected members, and the reasons, from the output of psyche run status.
func checkEjections(t *testing.T, n *network, attackers []*client) {
	t.Helper()
	const reason, until = "a jury found it guilty", 2
	args := []string{"run", "status", "--run-id", "e2e", "--server-addr", n.address, "--known-servers", n.saved + ".known"}
	text := must(t, serverBinary, args...)
	var status struct {
		State     string `json:"run_state"`
		Ejections []struct {
			Client string `json:"client"`
			Until  uint32 `json:"until"`
			Reason string `json:"reason"`
		} `json:"ejections"`
	}
	if err := json.Unmarshal([]byte(must(t, serverBinary, append(args, "--json")...)), &status); err != nil {
		t.Fatal(err)
	}
	if status.State != "Finished" {
		t.Errorf("the run is in %s", status.State)
	}
	if len(status.Ejections) != len(attackers) {
		t.Errorf("%d ejections, want %d: %+v", len(status.Ejections), len(attackers), status.Ejections)
	}
	for _, c := range attackers {
		found := false
		for _, e := range status.Ejections {
			found = found || e.Client == c.id && e.Reason == reason && e.Until == until
		}
		line := fmt.Sprintf("%s until epoch %d: %s", c.id, until, reason)
		if !found || !strings.Contains(text, line) {
			t.Errorf("%s (%s) has no correct ejection: %+v\n%s", c.name, c.id, status.Ejections, text)
		}
	}
}

// checkAudits compares the members' findings and votes with the actual cheats. Cheats also audit,
// and vote correctly. It returns the sizes of the openings.
func checkAudits(t *testing.T, members, attackers []*client) (sizes []int) {
	t.Helper()
	caught := make(map[string]int)
	for _, c := range members {
		for _, e := range c.events() {
			switch body := e.Body.(type) {
			case event.Audit:
				if body.Opening > 0 {
					sizes = append(sizes, body.Opening)
				}
				at := slices.IndexFunc(attackers, func(a *client) bool { return a.id == body.Trainer })
				switch {
				case at < 0 && body.Outcome != "passed":
					t.Logf("%s says of an honest member: %+v", c.name, body)
				case at < 0, body.Outcome == "unclear", body.Trainer == c.id: // it sees that its own result does not pass, and accuses no other member
				case slices.Contains(cheats[at].outcomes, body.Outcome) && cheats[at].opens == (body.Opening > 0):
					caught[body.Trainer]++
				case body.Outcome == "passed" || !cheats[at].opens && body.Opening > 0:
					t.Errorf("%s reports of %s: %+v, want %v", c.name, attackers[at].name, body, cheats[at].outcomes)
				}
			case event.Voted:
				cheated := slices.ContainsFunc(attackers, func(a *client) bool { return a.id == body.Accused })
				if body.Guilty != cheated {
					t.Errorf("%s votes %+v; the accused cheated: %v", c.name, body, cheated)
				}
			}
		}
	}
	for _, c := range attackers {
		if caught[c.id] == 0 {
			t.Errorf("no audit found %s", c.name)
		}
	}
	if len(sizes) == 0 {
		t.Fatal("nothing was opened")
	}
	return sizes
}

// checkEvidence examines the evidence that honest accusers stored: it proves the result that the
// cheat that opens its results sent.
func checkEvidence(t *testing.T, n *network, all trials, attackers, honest []*client) {
	t.Helper()
	for _, a := range all.accusations {
		of := slices.IndexFunc(attackers, func(c *client) bool { return c.id == a.of })
		by := slices.IndexFunc(honest, func(c *client) bool { return c.id == a.by })
		if of < 0 || by < 0 || a.fault != coordinator.FaultResult || !cheats[of].opens {
			continue
		}
		id, err := identity.ParseID(a.of)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := filepath.Glob(filepath.Join(honest[by].dir, "checkpoints", "audits-*", "*", evidence.FileName(a.accused, id)))
		if err != nil || len(kept) != 1 {
			t.Errorf("%s accused %s of step %d, and kept %q, %v", honest[by].name, attackers[of].name, a.accused, kept, err)
			continue
		}
		text := must(t, serverBinary, "run", "examine", server.JournalPath(n.saved, "e2e"), "--entry", fmt.Sprint(a.entry), "--exhibit", kept[0], "--model", n.model)
		if !strings.Contains(text, `proven: rule "sent" is broken`) || !strings.Contains(text, "accused         "+a.of) {
			t.Errorf("examined:\n%s", text)
		}
	}
}

// trials are the trials in a run's journal.
type trials struct {
	accusations []accusation
	ejected     map[string]uint32 // running step
	votes       int
}

type accusation struct {
	entry   int // entry of the log
	by, of  string
	fault   coordinator.Fault
	step    uint32 // running step
	accused uint32 // step of the result
}

func readTrials(t *testing.T, n *network) trials {
	t.Helper()
	all, entry := trials{ejected: make(map[string]uint32)}, 0
	_, _, err := server.Replay(server.JournalPath(n.saved, "e2e"), func(r follow.Record, s *coordinator.State) error {
		switch a := r.Action.Action.(type) {
		case coordinator.Vote:
			all.votes++
		case coordinator.Accuse:
			all.accusations = append(all.accusations, accusation{entry, r.Action.From.String(), identity.ID(a.Client).String(), a.Fault, s.Progress.Step, a.Step})
		}
		for _, e := range s.Authority.Ejections {
			id := identity.ID(e.Client).String()
			if _, known := all.ejected[id]; !known {
				all.ejected[id] = s.Progress.Step
			}
		}
		entry++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// story describes how an attacker was detected.
func (all trials) story(t *testing.T, c *client, honest []*client) string {
	t.Helper()
	var output strings.Builder
	var first, last time.Time
	results := 0
	for _, e := range c.events() {
		if sent, ok := e.Body.(event.ResultSent); ok {
			if results++; first.IsZero() {
				first = e.Time
				fmt.Fprintf(&output, "%s: sent its first result in step %d", c.name, sent.Step)
			}
		}
	}
	for _, a := range all.accusations {
		if a.of == c.id {
			fmt.Fprintf(&output, ", was accused in step %d (%s)", a.step, a.fault)
		}
	}
	for _, h := range honest {
		for _, e := range h.events() {
			if trial, ok := e.Body.(event.Trial); ok && trial.Accused == c.id && trial.What == event.TrialConvicts && (last.IsZero() || e.Time.Before(last)) {
				last = e.Time
			}
		}
	}
	fmt.Fprintf(&output, ", ejected in step %d, %v after its first result; it sent %d", all.ejected[c.id], last.Sub(first).Round(100*time.Millisecond), results)
	return output.String()
}
