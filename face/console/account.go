package console

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/record/event"
)

// keptSteps is the maximum number of rounds with trained results that are not applied yet.
const keptSteps = 64

// Account sums up what a process has contributed to a run, for a message at the end of the process. It uses the
// process's own events. The run's log contains confirmed data, from which psyche run receipt makes
// a receipt.
type Account struct {
	Link string // invite link of the run; empty: unknown

	runID string
	id    identity.ID
	onTCP bool // the run is on a server, so that psyche run receipt can make a receipt from its log

	mu       sync.Mutex
	began    time.Time
	newest   time.Time
	trained  int               // results
	counted  int               // results that counted
	attested int               // results that witnesses held, but that did not count yet
	own      uint64            // tokens of own results that counted
	all      uint64            // sequences of all members
	sequence uint64            // tokens of one sequence; 0: the process has not trained yet
	sizes    map[uint32]uint32 // sequences of rounds that are not applied yet
	tokens   map[uint32]uint64 // tokens of own results that are not applied yet
	waiting  []uint32          // steps of own counted results that no saved model contains yet
	inModel  int
	model    event.Checkpoint
	wire     event.Wire
	audits   int
	votes    int
	ended    bool // the run is finished
}

// NewAccount returns the account of a process with key id in a run, which is on a server if onTCP is true.
func NewAccount(runID string, id identity.ID, onTCP bool) *Account {
	return &Account{runID: runID, id: id, onTCP: onTCP, sizes: make(map[uint32]uint32), tokens: make(map[uint32]uint64)}
}

// See processes an event. It is an argument for event.Log's Watch.
func (a *Account) See(e event.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.began.IsZero() {
		a.began = e.Time
	}
	a.newest = e.Time
	switch body := e.Body.(type) {
	case event.State:
		if body.RunState == "RoundTrain" {
			a.sizes[body.Step] = body.BatchSize
		}
	case event.Trained:
		a.trained++
		a.tokens[body.Step] = uint64(body.Tokens)
		if sequences := body.Batch[1] - body.Batch[0]; body.Batch[1] > body.Batch[0] {
			a.sequence = uint64(body.Tokens) / sequences
		}
	case event.Applied:
		a.applied(body)
	case event.Wire:
		a.wire = body
	case event.Audit:
		a.audits++
	case event.Voted:
		a.votes++
	case event.Ready:
		a.waiting = nil // results that no model contains by now are lost to the run
	case event.Checkpoint:
		a.saved(body)
	case event.Finished:
		a.ended = true
	}
}

// applied processes the counted results of a round.
func (a *Account) applied(e event.Applied) {
	lost := uint64(0)
	for _, l := range e.Lost {
		lost += l.Batch[1] - l.Batch[0]
	}
	if size := uint64(a.sizes[e.Step]); size > lost {
		a.all += size - lost
	}
	if e.OwnAttested {
		a.attested++
	}
	if e.OwnCounted {
		a.counted++
		a.own += a.tokens[e.Step]
		a.waiting = append(a.waiting, e.Step)
	}
	for step := range a.sizes {
		if step <= e.Step || step+keptSteps < e.Step {
			delete(a.sizes, step)
		}
	}
	for step := range a.tokens {
		if step <= e.Step {
			delete(a.tokens, step)
		}
	}
}

func (a *Account) saved(e event.Checkpoint) {
	a.model = e
	a.waiting = slices.DeleteFunc(a.waiting, func(step uint32) bool {
		if step <= e.Step {
			a.inModel++
		}
		return step <= e.Step
	})
}

// Print writes the account. It writes nothing if the process has not trained.
func (a *Account) Print(w io.Writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.trained == 0 {
		if a.ended && a.model.Digest == "" && a.Link != "" {
			_, _ = fmt.Fprintf(w, "\nRun %s is over. To use its model:\n\n    psyche-client generate %[2]s --prompt \"Once upon a time\"\n    psyche-client serve-model %[2]s\n", a.runID, a.Link)
		}
		return
	}
	var lines strings.Builder
	state := "left before the end"
	if a.ended {
		state = "finished"
	}
	fmt.Fprintf(&lines, "\nRun %s, %s, as %s, %s\n", a.runID, state, a.id, a.newest.Sub(a.began).Round(time.Second))
	fmt.Fprintf(&lines, "  rounds             %d trained, %d counted", a.trained, a.counted)
	if a.attested > 0 {
		fmt.Fprintf(&lines, ", %d checked but not counted yet", a.attested)
	}
	fmt.Fprintln(&lines)
	fmt.Fprintf(&lines, "  tokens             %d counted", a.own)
	if all := a.all * a.sequence; all > 0 {
		fmt.Fprintf(&lines, ", %.1f %% of the %d of all members in that time", 100*float64(a.own)/float64(all), all)
	}
	fmt.Fprintln(&lines)
	fmt.Fprintf(&lines, "  bytes to peers     %s sent, %s received\n", diskspace.Format(a.wire.P2PSent), diskspace.Format(a.wire.P2PReceived))
	if a.audits+a.votes > 0 {
		fmt.Fprintf(&lines, "  audits             %d, and %d votes as a juror\n", a.audits, a.votes)
	}
	fmt.Fprintf(&lines, "  in the model       %s\n", a.inTheModel())
	if a.ended && a.model.Dir != "" {
		fmt.Fprintf(&lines, "  to use it          psyche-client generate --model '%s' --prompt 'Once upon a time'\n", a.model.Dir)
	}
	if a.onTCP && a.counted > 0 {
		fmt.Fprintf(&lines, "  to prove it        psyche run receipt LOG --member %s (LOG: psyche run export)\n", a.id)
	}
	_, _ = io.WriteString(w, lines.String()) // errors of this message do not matter
}

// Log logs the account as one record for programs. It logs nothing if the process has not trained.
func (a *Account) Log(logger *slog.Logger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.trained == 0 {
		return
	}
	attributes := []any{
		"run", a.runID, "id", a.id.String(), "finished", a.ended, "seconds", a.newest.Sub(a.began).Seconds(),
		"rounds_trained", a.trained, "rounds_counted", a.counted, "tokens_counted", a.own,
		"bytes_sent_to_peers", a.wire.P2PSent, "bytes_received_from_peers", a.wire.P2PReceived, "audits", a.audits, "votes", a.votes,
	}
	if a.model.Digest != "" {
		attributes = append(attributes, "rounds_in_model", a.inModel, "model_step", a.model.Step, "model_digest", a.model.Digest, "model_folder", a.model.Dir)
	}
	logger.Info("contribution", attributes...)
}

func (a *Account) inTheModel() string {
	switch {
	case a.model.Digest == "":
		return fmt.Sprintf("%d rounds are not yet in a model that this process has seen", len(a.waiting))
	case a.model.Dir != "":
		return fmt.Sprintf("%d rounds in the model of step %d, digest %s, in %s", a.inModel, a.model.Step, short(a.model.Digest), a.model.Dir)
	}
	return fmt.Sprintf("%d rounds in the model of step %d, digest %s", a.inModel, a.model.Step, short(a.model.Digest))
}

// short returns the beginning of a digest.
func short(digest string) string { return digest[:min(16, len(digest))] }
