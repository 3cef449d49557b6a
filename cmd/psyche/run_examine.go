package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/evidence"
	"github.com/psyche-go/psyche/record/receipt"
)

type runExamine struct {
	File    string  `arg:"" name:"file" type:"path" help:"Run log: a file from psyche run export or psyche run archive, or the journal in a server's folder. Or a client's evidence-*.json against its server."`
	Entry   *uint64 `placeholder:"N" help:"Required with a log. Number of the entry, from 0, or from 1 on a chain, as shown by the page and by psyche run replay --states."`
	Exhibit string  `placeholder:"FILE" type:"path" help:"The accuser's evidence file: exhibit-STEP-KEY.psye in the folder audits-KEY next to its checkpoints. With this file, the command also examines the result, not only the trial."`
	Model   string  `placeholder:"DIR" type:"path" help:"Folder of any model of the run, which provides the shapes of the tensors. Required with --exhibit."`
}

// Help returns the text below the command's summary in --help.
func (c *runExamine) Help() string {
	return `Verifies the whole log, as psyche run replay does, and explains one entry and its outcome. For an
accusation, it shows the jury, each vote, and the verdict. For a proof that a member signed two
results, it verifies both signatures. With --exhibit, it also shows data that the accused signed: its
signature, its result, the parts that it opened, and the broken rule; the accuser cannot forge these.
If the log or the evidence file does not verify, or shows no violation, the exit code is 6.

With a file evidence-*.json, which a client writes when its server is dishonest, the command verifies the
server's signatures and looks for two heads of the log that contradict each other.

Examples:

  psyche run examine run.log --entry 92 --exhibit exhibit-2-3RYYttmK.psye --model model
  psyche run examine evidence-123.json`
}

// Run examines an entry.
func (c *runExamine) Run(to console) error {
	if filepath.Ext(c.File) == ".json" {
		return c.examineHost(to.out)
	}
	if c.Entry == nil {
		return usagef("--entry is missing")
	}
	if (c.Exhibit == "") != (c.Model == "") {
		return usagef("give --exhibit and --model together: the evidence file is read with the shapes of the model's tensors")
	}
	x := examination{entry: *c.Entry, accused: make(map[coordinator.ClientID]bool)}
	log, err := readLog(c.File, to.err, x.see)
	if err != nil {
		return err
	}
	if !x.found {
		return usagef("--entry is %d: want %d to %d, the entries of the log", *c.Entry, log.first(), log.last)
	}
	if _, err := fmt.Fprintf(to.out, "%s: %d records verified; run %q (%x)\n", c.File, log.entries, log.state.RunID, log.run); err != nil {
		return err
	}
	if err := x.print(to.out); err != nil {
		return err
	}
	if c.Exhibit != "" {
		if err := c.examine(to, &x, &log); err != nil {
			return err
		}
	}
	_, err = io.WriteString(to.out, log.proof(c.File))
	return err
}

// examination is the information in the log about an entry.
type examination struct {
	entry  uint64
	found  bool
	shown  receipt.Entry
	record string
	time   time.Time // newest time in the log up to the entry
	step   uint32    // of the run at that time
	epoch  uint32

	now     time.Time
	trial   coordinator.Trial // started by the entry; its Step is 0: none
	jurors  int
	votes   []ballot
	verdict string // set at its end

	accused map[coordinator.ClientID]bool // clients that were excluded before the trial's last entry
}

type ballot struct {
	entry  uint64
	juror  identity.ID
	guilty bool
}

// see processes an entry of the log and the state after it.
func (x *examination) see(e logEntry, s *coordinator.State) {
	if e.Time > 0 {
		x.now = time.UnixMilli(int64(min(e.Time, 1<<53))).UTC()
	}
	switch {
	case e.number == x.entry:
		x.begin(e, s)
	case x.trial.Step != 0 && x.verdict == "":
		x.goOn(e, s)
	}
	if x.verdict == "" {
		clear(x.accused)
		for _, e := range s.Authority.Ejections {
			x.accused[e.Client] = true
		}
	}
}

func (x *examination) begin(e logEntry, s *coordinator.State) {
	x.found, x.shown, x.record, x.time = true, e.Entry, e.record.String(), x.now
	x.step, x.epoch = s.Progress.Step, s.Progress.Epoch
	x.trial, x.jurors, x.votes, x.verdict = coordinator.Trial{}, 0, nil, "" // they belong to an earlier run of the same account
	if a, ok := e.Action.(coordinator.Accuse); ok {
		if t := s.Trial(a.Client, a.Step); t != nil {
			x.trial = *t
		}
	}
}

// goOn updates the trial from a record.
func (x *examination) goOn(e logEntry, s *coordinator.State) {
	vote, votes := e.Action.(coordinator.Vote)
	votes = votes && vote.Client == x.trial.Accused && vote.Step == x.trial.Step
	if votes {
		x.votes = append(x.votes, ballot{e.number, identity.ID(e.Actor), vote.Guilty})
	}
	if t := s.Trial(x.trial.Accused, x.trial.Step); t != nil {
		x.jurors = int(t.Jurors)
		return
	}
	x.verdict = fmt.Sprintf("entry %d: no decision", e.number)
	for _, out := range s.Authority.Ejections {
		if x.accused[out.Client] || !votes || out.Client != x.trial.Accused && out.Client != x.trial.Accuser {
			continue
		}
		x.verdict = fmt.Sprintf("entry %d: %s; %s is ejected until epoch %d", e.number, out.Reason, identity.ID(out.Client), out.Until)
		return
	}
	if votes {
		x.verdict = fmt.Sprintf("entry %d: a jury found it %s; no member was ejected", e.number, verdictOf(vote.Guilty))
	}
}

// print writes the log's information about the entry.
func (x *examination) print(w io.Writer) error {
	at := "before the first tick"
	if !x.time.IsZero() {
		at = x.time.Format(time.RFC3339)
	}
	lines := fmt.Sprintf("entry %d        %s\nwhen            epoch %d, step %d, %s\n", x.entry, x.record, x.epoch, x.step, at)
	if x.shown.Action != nil {
		lines += fmt.Sprintf("signature       of %s, valid\n", identity.ID(x.shown.Actor))
	}
	switch a := x.shown.Action.(type) {
	case coordinator.Accuse:
		lines += x.printTrial(a)
	case coordinator.Equivocation:
		lines += fmt.Sprintf("proof           %s signed two results for one batch; both signatures are valid\n", identity.ID(a.Client))
	case coordinator.Admit:
		effect := "ends"
		if a.Allowed {
			effect = "begins"
		}
		lines += fmt.Sprintf("admission       of %s %s by the grant %s, which only the chain verified\n", identity.ID(a.Client), effect, identity.ID(a.Grant))
	case coordinator.Vote:
		lines += fmt.Sprintf("vote            %s, of %s, step %d\n", verdictOf(a.Guilty), identity.ID(a.Client), a.Step)
	}
	_, err := io.WriteString(w, lines)
	return err
}

func (x *examination) printTrial(a coordinator.Accuse) string {
	lines := fmt.Sprintf("accused         %s of step %d: %s\n", identity.ID(a.Client), a.Step, a.Fault)
	lines += fmt.Sprintf("jury            %d members, drawn by the next round's seed; %d of them decide\n", x.jurors, (11*x.jurors+19)/20)
	guilty := 0
	for _, v := range x.votes {
		if v.guilty {
			guilty++
		}
		lines += fmt.Sprintf("  entry %-8d %s  %s\n", v.entry, v.juror, verdictOf(v.guilty))
	}
	verdict := x.verdict
	if verdict == "" {
		verdict = "the trial is still open at the end of the log"
	}
	return lines + fmt.Sprintf("votes           %d guilty, %d innocent\nverdict         %s\n", guilty, len(x.votes)-guilty, verdict)
}

func verdictOf(guilty bool) string {
	if guilty {
		return "guilty"
	}
	return "innocent"
}

// examine checks the accuser's evidence file.
func (c *runExamine) examine(to console, x *examination, log *logEnd) error {
	a, ok := x.shown.Action.(coordinator.Accuse)
	if !ok {
		return usagef("--exhibit needs an accusation, but entry %d is %s", x.entry, x.record)
	}
	shown, err := readEvidence(c.Exhibit)
	if err != nil {
		return err
	}
	rules, shapes, err := c.shapes(&log.state, to.err)
	if err != nil {
		return err
	}
	found, err := shown.Examine(log.run, shapes, rules)
	if err == nil && (found.Accused != identity.ID(a.Client) || found.Step != a.Step) {
		err = fmt.Errorf("%w: wrong step or member: step %d of %s", evidence.ErrInvalid, found.Step, found.Accused)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Exhibit, err)
	}
	finding := "no broken rule is visible without the gradient, which the jurors computed for their votes"
	if found.Fault != audit.FaultNone {
		finding = fmt.Sprintf("proven: rule %q is broken in %d of %d chunks (%s)", found.Fault, found.Faulty, found.Chunks, found.Fault.Meaning())
	}
	_, err = fmt.Fprintf(to.out, "evidence        announced and signed by the accused; the result has the announced hash;\n"+
		"                %d chunks of its momentum match the commitment in the result\nfound           %s\n", found.Chunks, finding)
	return err
}

func readEvidence(path string) (evidence.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return evidence.File{}, fmt.Errorf("read an evidence file: %w", err)
	}
	if info.Size() > evidence.MaxSize {
		return evidence.File{}, fmt.Errorf("%s: %w: %d bytes, at most %d", path, evidence.ErrInvalid, info.Size(), evidence.MaxSize)
	}
	bytes, err := os.ReadFile(path)
	if err != nil {
		return evidence.File{}, fmt.Errorf("read an evidence file: %w", err)
	}
	shown, err := evidence.Decode(bytes)
	if err != nil {
		return evidence.File{}, fmt.Errorf("%s: %w", path, err)
	}
	return shown, nil
}

// shapes reads the tensor shapes of the run's model. It writes progress to errs.
func (c *runExamine) shapes(state *coordinator.State, errs io.Writer) (evidence.Rules, audit.Shapes, error) {
	model, err := config.DecodeModel(state.Model.Definition)
	if err != nil {
		return evidence.Rules{}, nil, err
	}
	rules, audited := evidence.RulesOf(model.Optimizer)
	if !audited {
		return rules, nil, errors.New("the run's optimizer is neither Distro nor LocalSteps, so the run has no audits")
	}
	m := meter.New(errs, "psyche: reading the model")
	snapshot, err := checkpoint.ReadDirWatched(c.Model, m.At)
	m.Done()
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: --model needs a folder with the run's model", err)
	}
	if err != nil {
		return evidence.Rules{}, nil, err
	}
	var tensors [][]int64
	for _, t := range snapshot.Tensors {
		tensors = append(tensors, t.Shape)
	}
	shapes, err := evidence.Shapes(tensors, rules)
	return rules, shapes, err
}
