package testnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/evidence"
	"github.com/psyche-go/psyche/record/follow"
)

// Cheat is a client that sends false results.
type Cheat struct {
	Client int    // its number, from 1
	Attack string // name of an attack of the program Options.CheatBinary
}

// ErrCheats means that a run with cheats ended with a wrong outcome: a cheat was not ejected, or an
// honest client was accused or ejected.
var ErrCheats = errors.New("cheating clients were not ejected, or an honest one was accused")

// checkCheats returns an error if a run could not detect its cheats.
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
			return flagError("--cheat names client %d, want 1 to %d", c.Client, options.NumClients)
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

// attackOf returns the attack of client i; empty: it is honest.
func (options Options) attackOf(i int) string {
	for _, c := range options.Cheats {
		if c.Client == i+1 {
			return c.Attack
		}
	}
	return ""
}

// makeCheats replaces the processes of cheating clients, and registers the cheats in the progress.
func (n *network) makeCheats() {
	for i, id := range n.ids {
		attack := n.options.attackOf(i)
		if attack == "" {
			continue
		}
		n.clients[i].Program = n.options.CheatBinary
		n.clients[i].Args = []string{
			"-attack", attack, "-server", n.address, "-run", n.run.RunID,
			"-key", filepath.Join(n.clientDir(i), identityFile), "-events", filepath.Join(n.eventsDir(i), eventsFile),
		}
		n.progress.cheats[id.String()] = &cheating{attack: attack}
		n.progress.remark("%s is a cheat, which no other participant knows: it will send %s", clientName(i), attackText(attack))
	}
	if len(n.options.Cheats) > 0 {
		n.progress.remark("to watch on a page, during the run and later: psyche dash %s", n.dir)
	}
}

// CheatSummary is the outcome of a cheating client.
type CheatSummary struct {
	Client     string  `json:"client"`
	Attack     string  `json:"attack"`
	First      uint32  `json:"first_false_step"`
	Sent       int     `json:"false_results"`          // announced false results
	Counted    int     `json:"counted_false_results"`  // false results that witnesses counted, so that the model contains them
	Found      float64 `json:"found_seconds"`          // from its first false result to the first failed audit
	Ejected    float64 `json:"ejected_seconds"`        // from its first false result to its ejection; 0: it was not ejected
	Step       uint32  `json:"ejected_step,omitempty"` // of the run
	Accusation uint64  `json:"entry,omitempty"`        // log entry of the accusation that led to its ejection
	Exhibit    string  `json:"exhibit,omitempty"`      // the accuser's evidence file
}

// Trials are the accusations in a run's log.
type Trials struct {
	Journal       string         `json:"journal"`
	Cheats        []CheatSummary `json:"cheats"`
	Accusations   int            `json:"accusations"`
	HonestAccused []string       `json:"honest_accused"` // honest members that were accused
	HonestEjected []string       `json:"honest_ejected"`

	Control *Control `json:"control,omitempty"` // a run without cheats to compare with

	model     string // folder of a model of the run; empty: none
	heldOut   float64
	accusedOf map[string][]accusation
	ejected   map[string]ejection
}

type accusation struct {
	entry uint64
	step  uint32 // of the result
}

type ejection struct {
	reason     coordinator.EjectionReason
	accusation uint64 // entry of the accusation that a jury confirmed; 0: none
	step       uint32 // of the result
}

// judge adds the results of a run with cheats from its log, which it verifies from the first record
// on. The clients' events only supply durations.
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
		trials.Cheats[i].Exhibit = n.evidenceFile(trials.Cheats[i].Client, trials)
	}
	trials.model = s.Checkpoint
	s.Trials = trials
	return nil
}

// evidenceFile returns the evidence file of an accusation; empty: there is none.
func (n *network) evidenceFile(accused string, trials *Trials) string {
	for i, id := range n.ids {
		if clientName(i) != accused {
			continue
		}
		name := evidence.FileName(trials.ejected[id.String()].step, id)
		for other := range n.ids {
			found, err := filepath.Glob(filepath.Join(n.checkpointDir(other), "audits-*", "*", name))
			if err == nil && len(found) > 0 {
				return found[0]
			}
		}
	}
	return ""
}

// see processes a record of the log.
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

// tell adds data about the cheats from events to the data from the log.
func (t *tracker) tell(trials *Trials) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range t.ids {
		c, cheats := t.cheats[id]
		found, ejected := trials.ejected[id]
		switch {
		case cheats:
			summary := CheatSummary{Client: t.name(id), Attack: c.attack, First: c.announce, Sent: t.clients[id].sentResults, Counted: t.countedFalse(id)}
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

// countedFalse returns the number of a cheat's false results that counted, according to honest clients.
func (t *tracker) countedFalse(cheat string) (n int) {
	for step := range t.cheats[cheat].sent {
		for _, id := range t.ids {
			if applied, known := t.clients[id].applied[step]; known && t.cheats[id] == nil {
				if !slices.Contains(applied.lost, cheat) {
					n++
				}
				break
			}
		}
	}
	return n
}

// complete returns an error if a run with cheats ended with a wrong outcome.
func (t *Trials) complete() error {
	var free []string
	for _, c := range t.Cheats {
		if c.Ejected == 0 {
			free = append(free, c.Client)
		}
	}
	switch {
	case len(t.HonestEjected) > 0:
		return fmt.Errorf("%w: honest, but ejected: %s", ErrCheats, strings.Join(t.HonestEjected, ", "))
	case len(t.HonestAccused) > 0:
		return fmt.Errorf("%w: honest, but accused: %s", ErrCheats, strings.Join(t.HonestAccused, ", "))
	case len(free) > 0:
		return fmt.Errorf("%w: not ejected: %s", ErrCheats, strings.Join(free, ", "))
	}
	return nil
}

// cheats reports whether a client of the summary cheated.
func (s Summary) cheats(i int) bool {
	return s.Trials != nil && slices.ContainsFunc(s.Trials.Cheats, func(c CheatSummary) bool { return c.Client == clientName(i) })
}

// print writes the cheats, their outcomes, and the commands that repeat an audit.
func (t *Trials) print(w io.Writer) {
	fmt.Fprintf(w, "  cheats             from the log, %d accusations\n", t.Accusations)
	entered := 0
	for _, c := range t.Cheats {
		entered += c.Counted
		fmt.Fprintf(w, "    %s %s: %d false results, %d of them counted", c.Client, c.Attack, c.Sent, c.Counted)
		if c.Ejected == 0 {
			fmt.Fprintf(w, "; not ejected\n")
			continue
		}
		fmt.Fprintf(w, "; the first in round %d, detected after %.1f s; ejected in round %d after %.1f s\n", c.First, c.Found, c.Step, c.Ejected)
		fmt.Fprintf(w, "      to examine the accusation: psyche run examine %s --entry %d", t.Journal, c.Accusation)
		if c.Exhibit != "" && t.model != "" {
			fmt.Fprintf(w, " --exhibit %s --model %s", c.Exhibit, t.model)
		}
		fmt.Fprintln(w)
	}
	switch {
	case entered == 0:
		fmt.Fprintln(w, "  harm               none: no false result entered the model")
	case t.Control != nil && t.heldOut > 0:
		fmt.Fprintf(w, "  harm               %d false results are in the model; its held-out loss is %.3f, %+.3f nats from the %.3f of the honest run %s (runs differ by chance too)\n",
			entered, t.heldOut, t.heldOut-t.Control.HeldOutLoss, t.Control.HeldOutLoss, t.Control.Dir)
	default:
		fmt.Fprintf(w, "  harm               %d false results are in the model; to measure their effect, run the same command without --cheat and then this command again\n", entered)
	}
	fmt.Fprintf(w, "  honest accused     %d\n", len(t.HonestAccused))
	fmt.Fprintf(w, "  honest ejected     %d\n", len(t.HonestEjected))
}

// Control is a finished run of the same configuration without cheats.
type Control struct {
	Dir         string  `json:"dir"`
	HeldOutLoss float64 `json:"heldout_loss_last"`
}

// control returns the newest honest run next to a run that has the same name, rounds, clients, initial model and held-out
// data; nil if there is none.
func control(dir string, s Summary) *Control {
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*", summaryFile)) // finds none if the folder's name is an invalid pattern
	slices.Sort(files)                                                            // names end with the time
	for _, file := range slices.Backward(files) {
		other, err := loadSummary(file)
		if err != nil || !other.Finished || other.Trials != nil || other.HeldOutLossLast <= 0 {
			continue
		}
		same := other.RunID == s.RunID && other.TotalRounds == s.TotalRounds && len(other.Clients) == len(s.Clients) &&
			math.Abs(other.HeldOutLossFirst-s.HeldOutLossFirst) < 1e-3 && other.HeldOutSample == s.HeldOutSample
		if same {
			return &Control{Dir: filepath.Dir(file), HeldOutLoss: other.HeldOutLossLast}
		}
	}
	return nil
}

// loadSummary reads the summary of a run.
func loadSummary(path string) (s Summary, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}
