package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/proof/testbed"
	"github.com/psyche-go/psyche/record/event"
)

// outcome is the result of a run.
type outcome struct {
	Row          string  `json:"row"`
	Audits       int     `json:"audits"` // verification_percent
	Seconds      float64 `json:"seconds"`
	Steps        uint32  `json:"steps"`
	Epochs       uint32  `json:"epochs"`
	MissingSteps uint32  `json:"lapsed"`  // steps that are missing from the run's model
	Batches      int     `json:"batches"` // lost batches, by the member that saw the most
	Accused      int     `json:"accused"` // accusations in the log
	Ejected      int     `json:"ejected"`
	Lost         int     `json:"lost"`       // number of times that a member lost the model
	Returned     int     `json:"returned"`   // seats taken back
	Loss         float64 `json:"loss"`       // mean of the newest hundred of each member
	Digests      int     `json:"digests"`    // number of different final models
	Audited      int     `json:"audited"`    // audits that members report
	NotPassed    int     `json:"not_passed"` // failed audits among these
}

// clean reports whether honest members had no disadvantage.
func (o *outcome) clean() bool {
	return o.MissingSteps == 0 && o.Accused == 0 && o.Ejected == 0 && o.Lost == 0 && o.Digests == 1 && o.NotPassed == 0
}

// read combines the host's log and the members' events.
func (p *play) read(ctx context.Context) (o outcome, err error) {
	journal := server.JournalPath(p.net.Host.Dir, runID)
	replay := func(flag string) ([]byte, error) {
		return child.Output(ctx, nil, p.net.Psyche(), "run", "replay", journal, flag)
	}
	text, err := replay("--json")
	if err != nil {
		return o, fmt.Errorf("replay the journal: %w", err)
	}
	if err := o.state(text); err != nil {
		return o, err
	}
	records, err := replay("--states")
	if err != nil {
		return o, fmt.Errorf("replay the journal: %w", err)
	}
	for line := range strings.Lines(string(records)) {
		if strings.Contains(line, " accuse by ") {
			o.Accused++
		}
		if strings.Contains(line, " return by ") {
			o.Returned++
		}
	}
	return o, o.events(p.net.Members)
}

// state reads the last state of a replay.
func (o *outcome) state(text []byte) error {
	var last struct {
		Step         uint32            `json:"step"`
		Epoch        uint32            `json:"epoch"`
		Ejections    []json.RawMessage `json:"ejections"`
		RollbackGaps []struct {
			First uint32 `json:"first"`
			Last  uint32 `json:"last"`
		} `json:"lapses"`
	}
	if err := json.Unmarshal(text, &last); err != nil {
		return fmt.Errorf("read the last state: %w", err)
	}
	o.Steps, o.Epochs, o.Ejected = last.Step-1, last.Epoch, len(last.Ejections)
	for _, gap := range last.RollbackGaps {
		o.MissingSteps += gap.Last - gap.First + 1
	}
	return nil
}

// events reads the members' events.
func (o *outcome) events(members []*testbed.Node) error {
	digests := map[string]bool{}
	var losses []float64
	for _, member := range members {
		var own []float64
		lost := 0
		for e, err := range event.Read(member.Events()) {
			if err != nil {
				return err
			}
			switch body := e.Body.(type) {
			case event.Trained:
				own = append(own, float64(body.Loss))
			case event.Applied:
				lost += len(body.Lost)
			case event.Desynchronised:
				o.Lost++
				fmt.Fprintf(os.Stderr, "%s, step %d: %s\n", member.Name, body.Step, body.Reason)
			case event.Audit:
				o.Audited++
				if body.Outcome == "faulty" || body.Outcome == "silent" {
					o.NotPassed++
				}
			case event.Finished:
				digests[body.Digest] = true
			}
		}
		o.Batches = max(o.Batches, lost)
		losses = append(losses, own[max(0, len(own)-100):]...)
	}
	o.Digests = len(digests)
	for _, loss := range losses {
		o.Loss += loss / float64(len(losses))
	}
	return nil
}

// printTable writes the outcomes, each next to its control.
func printTable(out io.Writer, outcomes []outcome) error {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| row\t| audits %\t| s\t| steps\t| epochs\t| steps not in the model\t| batches lost\t| seats taken back\t| lost the model\t| accused\t| ejected\t| models\t| audits made\t| not passed\t| loss\t|")
	fmt.Fprintln(w, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, o := range outcomes {
		fmt.Fprintf(w, "| %s\t| %d\t| %.0f\t| %d\t| %d\t| %d\t| %d\t| %d\t| %d\t| %d\t| %d\t| %d\t| %d\t| %d\t| %.4f\t|\n",
			o.Row, o.Audits, o.Seconds, o.Steps, o.Epochs, o.MissingSteps, o.Batches, o.Returned, o.Lost, o.Accused, o.Ejected, o.Digests, o.Audited, o.NotPassed, o.Loss)
	}
	return w.Flush()
}
