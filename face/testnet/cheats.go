package testnet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/exhibit"
	"github.com/psyche-go/psyche/record/follow"
)

// Cheat is a client that does not send what its batch gives.
type Cheat struct {
	Client int    // its number, from 1
	Attack string // what it sends: a name of the program of Options.CheatBinary
}

// ErrCheats says that a run with cheats did not end as it should: one was not ejected, or somebody honest
// was accused or ejected.
var ErrCheats = errors.New("cheating clients were not ejected, or an honest one was accused")

// checkCheats looks whether a run could find those that cheat in it.
func checkCheats(options Options, run config.Run) error {
	if len(options.Cheats) == 0 {
		return nil
	}
	state := filepath.Join(options.ConfigPath, stateFile)
	switch {
	case options.Resume != "":
		return flagError("--cheat applies to new runs only; omit --cheat or --resume")
	case options.Chain.Used:
		return flagError("--cheat applies to runs on a server only; omit --cheat or --backend solana")
	case run.Config.VerificationPercent == 0:
		return flagError("--cheat: verification_percent in %s is 0, so no member would audit; choose a run with audits, such as configs/cheats", state)
	}
	if _, err := os.Stat(options.CheatBinary); err != nil {
		return fmt.Errorf("%s is missing; the product does not include it; build it with: make cheat", options.CheatBinary)
	}
	named := make(map[int]bool)
	for _, c := range options.Cheats {
		switch {
		case c.Client < 1 || c.Client > options.NumClients:
			return flagError("--cheat names client %d: there are clients 1 to %d", c.Client, options.NumClients)
		case named[c.Client]:
			return flagError("--cheat names client %d twice", c.Client)
		}
		named[c.Client] = true
	}
	if honest := options.NumClients - len(named); honest <= len(named) {
		return flagError("--cheat: %d of %d clients cheat: want fewer than half, as juries decide by majority", len(named), options.NumClients)
	}
	return nil
}

// attackOf returns how client i cheats; empty: it does not.
func (options Options) attackOf(i int) string {
	for _, c := range options.Cheats {
		if c.Client == i+1 {
			return c.Attack
		}
	}
	return ""
}

// makeCheats replaces the processes of clients that cheat, and tells the progress who they are.
func (n *network) makeCheats() {
	for i, id := range n.ids {
		attack := n.options.attackOf(i)
		if attack == "" {
			continue
		}
		n.clients[i].binary = n.options.CheatBinary
		n.clients[i].args = []string{
			"-attack", attack, "-server", n.address, "-run", n.run.RunID,
			"-key", filepath.Join(n.clientDir(i), identityFile), "-events", filepath.Join(n.eventsDir(i), eventsFile),
		}
		n.progress.cheats[id.String()] = &cheating{attack: attack}
		n.progress.remark("%s cheats (%s); nobody but this program is told", clientName(i), attack)
	}
	if len(n.options.Cheats) > 0 {
		n.progress.remark("on a page, while it goes on and later: psyche dash %s", n.dir)
	}
}

// cheating is how far a cheat got.
type cheating struct {
	attack   string
	first    time.Time // when it announced its first false result
	caught   time.Time // when an audit found the first of them
	ejected  time.Time
	step     uint32 // of the run, when it was ejected
	told     bool   // that an audit found it
	announce uint32 // step of its first false result
}

// addCheating tells what an event says of cheats, of accusations and of trials.
func (t *tracker) addCheating(id string, e event.Event) {
	c := t.cheats[id]
	switch body := e.Body.(type) {
	case event.ResultSent:
		if c != nil && c.first.IsZero() {
			c.first, c.announce = e.Time, body.Step
			t.notes = append(t.notes, fmt.Sprintf("%s sends its first false result, of step %d", t.name(id), body.Step))
		}
	case event.Audit:
		of := t.cheats[body.Trainer]
		if of == nil || of.told || body.Trainer == id || body.Outcome != "faulty" && body.Outcome != "silent" {
			return
		}
		of.told, of.caught = true, e.Time
		t.notes = append(t.notes, fmt.Sprintf("%s audits %s, step %d: %s%s", t.name(id), t.name(body.Trainer), body.Step, body.Outcome, detail(body.Detail)))
	case event.Accused:
		t.notes = append(t.notes, fmt.Sprintf("%s accuses %s of step %d: %s%s", t.name(id), t.name(body.Client), body.Step, body.Fault, detail(body.Detail)))
	case event.Voted:
		verdict := "innocent"
		if body.Guilty {
			verdict = "guilty"
		}
		t.notes = append(t.notes, fmt.Sprintf("%s, a juror, looked itself and votes %s: %s, step %d%s", t.name(id), verdict, t.name(body.Accused), body.Step, detail(body.Detail)))
	}
}

func detail(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// ejectedCheat notes when a cheat was ejected, and returns how long that took, for people.
func (t *tracker) ejectedCheat(at time.Time, e event.Ejected) string {
	c := t.cheats[e.Client]
	if c == nil || !c.ejected.IsZero() {
		return ""
	}
	c.ejected, c.step = at, e.Step
	if c.first.IsZero() {
		return ""
	}
	return fmt.Sprintf("; %.1f s and %d rounds after its first false result", at.Sub(c.first).Seconds(), e.Step-min(c.announce, e.Step))
}

// CheatSummary is what became of a client that cheated.
type CheatSummary struct {
	Client     string  `json:"client"`
	Attack     string  `json:"attack"`
	First      uint32  `json:"first_false_step"`
	Sent       int     `json:"false_results"`          // that it announced
	Found      float64 `json:"found_seconds"`          // from its first false result to the first audit that failed
	Ejected    float64 `json:"ejected_seconds"`        // and to its ejection; 0: it was not ejected
	Step       uint32  `json:"ejected_step,omitempty"` // of the run
	Accusation uint64  `json:"entry,omitempty"`        // of the log, with which the trial that ejected it began
	Exhibit    string  `json:"exhibit,omitempty"`      // file in which the accuser kept what it accused it by
}

// Trials are what a run's log says of accusations.
type Trials struct {
	Journal       string         `json:"journal"`
	Cheats        []CheatSummary `json:"cheats"`
	Accusations   int            `json:"accusations"`
	HonestAccused []string       `json:"honest_accused"` // members that did not cheat and were accused
	HonestEjected []string       `json:"honest_ejected"`

	model     string // folder of a model of the run; empty: there is none
	accusedOf map[string][]accusation
	ejected   map[string]ejection
}

type accusation struct {
	entry uint64
	step  uint32 // of the result
}

type ejection struct {
	reason     coordinator.EjectionReason
	accusation uint64 // entry of the one that a jury found right; 0: no jury did
	step       uint32 // of the result
}

// judge adds what the log of a run with cheats says, verified from its first record on. What clients say in
// their events tells only how long it took.
func (n *network) judge(s *Summary) error {
	if len(n.options.Cheats) == 0 {
		return nil
	}
	trials := &Trials{
		Journal: server.JournalPath(n.serverDir(), n.run.RunID), HonestAccused: []string{}, HonestEjected: []string{},
		accusedOf: make(map[string][]accusation), ejected: make(map[string]ejection),
	}
	entry := uint64(0)
	_, _, err := server.Replay(trials.Journal, func(r follow.Record, state *coordinator.State) error {
		trials.see(entry, r, state)
		entry++
		return nil
	})
	if err != nil {
		return err
	}
	n.progress.tell(trials)
	for i := range trials.Cheats {
		trials.Cheats[i].Exhibit = n.exhibit(trials.Cheats[i].Client, trials)
	}
	trials.model = s.Checkpoint
	s.Trials = trials
	return nil
}

// exhibit returns the file in which a client kept what it accused another one by; empty: there is none.
func (n *network) exhibit(accused string, trials *Trials) string {
	for i, id := range n.ids {
		if clientName(i) != accused {
			continue
		}
		name := exhibit.FileName(trials.ejected[id.String()].step, id)
		for other := range n.ids {
			found, err := filepath.Glob(filepath.Join(n.checkpointDir(other), "audits-*", "*", name))
			if err == nil && len(found) > 0 {
				return found[0]
			}
		}
	}
	return ""
}

// see takes in a record of the log.
func (t *Trials) see(entry uint64, r follow.Record, s *coordinator.State) {
	if a, ok := r.Action.Action.(coordinator.Accuse); ok && r.Kind == follow.KindAction {
		t.Accusations++
		id := identity.ID(a.Client).String()
		t.accusedOf[id] = append(t.accusedOf[id], accusation{entry, a.Step})
	}
	for _, e := range s.Authority.Ejections {
		id := identity.ID(e.Client).String()
		if _, known := t.ejected[id]; known {
			continue
		}
		found := ejection{reason: e.Reason}
		if v, ok := r.Action.Action.(coordinator.Vote); ok && r.Kind == follow.KindAction && v.Client == e.Client {
			for _, a := range t.accusedOf[id] {
				if a.step == v.Step {
					found.accusation, found.step = a.entry, a.step
				}
			}
		}
		t.ejected[id] = found
	}
}

// tell adds what events say of the cheats to what the log says.
func (t *tracker) tell(trials *Trials) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range t.ids {
		c, cheats := t.cheats[id]
		found, ejected := trials.ejected[id]
		switch {
		case cheats:
			summary := CheatSummary{Client: t.name(id), Attack: c.attack, First: c.announce, Sent: t.clients[id].sentResults}
			if ejected && found.reason == coordinator.FoundGuilty && !c.ejected.IsZero() {
				summary.Step, summary.Accusation = c.step, found.accusation
				summary.Found, summary.Ejected = c.caught.Sub(c.first).Seconds(), c.ejected.Sub(c.first).Seconds()
			}
			trials.Cheats = append(trials.Cheats, summary)
			continue
		case len(trials.accusedOf[id]) > 0:
			trials.HonestAccused = append(trials.HonestAccused, t.name(id))
		}
		if ejected {
			trials.HonestEjected = append(trials.HonestEjected, t.name(id))
		}
	}
}

// complete returns what is wrong with the end of a run with cheats.
func (t *Trials) complete() error {
	var free []string
	for _, c := range t.Cheats {
		if c.Ejected == 0 {
			free = append(free, c.Client)
		}
	}
	switch {
	case len(t.HonestEjected) > 0:
		return fmt.Errorf("%w: honest, and ejected: %s", ErrCheats, strings.Join(t.HonestEjected, ", "))
	case len(t.HonestAccused) > 0:
		return fmt.Errorf("%w: honest, and accused: %s", ErrCheats, strings.Join(t.HonestAccused, ", "))
	case len(free) > 0:
		return fmt.Errorf("%w: not ejected: %s", ErrCheats, strings.Join(free, ", "))
	}
	return nil
}

// cheats reports whether a client of the summary cheated.
func (s Summary) cheats(i int) bool {
	return s.Trials != nil && slices.ContainsFunc(s.Trials.Cheats, func(c CheatSummary) bool { return c.Client == clientName(i) })
}

// print writes who cheated, what became of it, and how to look at its case again.
func (t *Trials) print(w io.Writer) {
	fmt.Fprintf(w, "  cheats             from the log, %d accusations\n", t.Accusations)
	for _, c := range t.Cheats {
		fmt.Fprintf(w, "    %s %s  ", c.Client, c.Attack)
		if c.Ejected == 0 {
			fmt.Fprintf(w, "sent %d false results, and was not ejected\n", c.Sent)
			continue
		}
		fmt.Fprintf(w, "sent %d false results from step %d on; found after %.1f s, ejected in round %d after %.1f s\n", c.Sent, c.First, c.Found, c.Step, c.Ejected)
		fmt.Fprintf(w, "      examine that again: psyche run examine %s --entry %d", t.Journal, c.Accusation)
		if c.Exhibit != "" && t.model != "" {
			fmt.Fprintf(w, " --exhibit %s --model %s", c.Exhibit, t.model)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "  honest accused     %d\n", len(t.HonestAccused))
	fmt.Fprintf(w, "  honest ejected     %d\n", len(t.HonestEjected))
}
