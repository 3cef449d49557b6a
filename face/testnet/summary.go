package testnet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/event"
)

// Errors of a run that is over.
var (
	// ErrReplicasDiffer means that clients ended with different models.
	ErrReplicasDiffer = errors.New("clients ended with different models")
	// ErrIncomplete means that some clients lack the final model, or that the run recorded none.
	ErrIncomplete = errors.New("the run is over, but its final model is missing or was not recorded")
)

// Limits of the final measurements.
const (
	sampleTokens = 200 // tokens of the generated text
	samplePrompt = "func (s *Server) "
)

// Summary is the result of a run. Its JSON form is the run folder's summary.json.
type Summary struct {
	Finished                         bool            `json:"finished"` // false: partial results, because the run was interrupted or failed
	RunID                            string          `json:"run_id"`
	Genesis                          string          `json:"genesis,omitempty"` // hash of the run, for clients that pin it
	Version                          string          `json:"version"`           // of the program, as printed by psyche version
	TotalRounds                      uint32          `json:"total_rounds"`      // of the whole run
	Rounds                           int             `json:"rounds"`            // with at least one counted result
	Tokens                           uint64          `json:"tokens"`            // trained on by all clients
	Seconds                          float64         `json:"seconds"`
	Parameters                       uint64          `json:"parameters"`
	LossFirst                        float64         `json:"loss_first"` // of the first round, nats per token
	LossLast                         float64         `json:"loss_last"`
	HeldOutLossFirst                 float64         `json:"heldout_loss_first,omitempty"` // of the starting model; omitted without held-out tokens
	HeldOutLossLast                  float64         `json:"heldout_loss_last,omitempty"`
	HeldOutSample                    string          `json:"heldout_sample,omitempty"`  // name of the held-out sequences
	HeldOutClaimed                   *event.HeldOut  `json:"heldout_claimed,omitempty"` // the clients' newest claims; nil: none
	Clients                          []ClientSummary `json:"clients"`
	WireBytesPerClientRound          uint64          `json:"wire_bytes_per_client_round"`    // sent to peers, everything except model sync
	PayloadBytesPerClientRound       uint64          `json:"payload_bytes_per_client_round"` // size of one compressed result
	FP32AllReduceBytesPerClientRound uint64          `json:"fp32_allreduce_bytes_per_client_round"`
	ModelSyncBytes                   uint64          `json:"handover_bytes"` // of models downloaded from peers, over all clients
	LostBatches                      int             `json:"lost_batches"`
	Chain                            *ChainSummary   `json:"chain,omitempty"`  // of a run on a chain
	Trials                           *Trials         `json:"trials,omitempty"` // of a run with cheats
	Checkpoint                       string          `json:"checkpoint,omitempty"`
	LossCurve                        string          `json:"loss_curve,omitempty"`
	Sample                           string          `json:"sample,omitempty"`

	dir string // of the run
}

// ClientSummary is the result of one client.
type ClientSummary struct {
	ID             string `json:"id"`
	Digest         string `json:"digest"`               // BLAKE3 of its last checkpoint's manifest
	Final          string `json:"final,omitempty"`      // digest of the run's final model, if the client holds it
	Unrecorded     bool   `json:"unrecorded,omitempty"` // the run recorded no final model, so only the client vouches for its model
	RoundsTrained  int    `json:"rounds_trained"`
	RoundsCounted  int    `json:"rounds_counted"`                   // trained rounds whose results counted
	RoundsAttested int    `json:"rounds_not_counted_yet,omitempty"` // trained rounds whose results witnesses held, but that did not count yet: on probation, or with an optimizer that warms up
	Tokens         uint64 `json:"tokens"`                           // trained on
	Rejoined       bool   `json:"rejoined"`                         // returned after it was killed or lost the model
	Restarts       int    `json:"restarts"`
	Desynchronised int    `json:"desynchronised"` // number of times that it lost the model

	Transactions int    `json:"transactions,omitempty"` // on a chain
	Lamports     uint64 `json:"lamports,omitempty"`     // paid for them
}

// summaryFile is the name of the summary in the run's folder.
const summaryFile = "summary.json"

// summarise measures the results, writes the summary into the run's folder and returns it. If the
// run is not finished, or after an error, the summary is partial.
func (n *network) summarise(ctx context.Context, heldOutFirst float64, took time.Duration, finished bool) (Summary, error) {
	s := n.progress.summary()
	if s.Chain != nil {
		s.Chain.SetUp, s.Chain.Archive = n.setUp, n.archive
	}
	s.RunID, s.Seconds, s.HeldOutLossFirst, s.Finished = n.run.RunID, took.Seconds(), heldOutFirst, finished
	s.Version = n.options.Version
	err := errors.Join(n.judge(&s), n.measure(ctx, &s), n.name(&s))
	if s.Trials != nil {
		s.Trials.heldOut, s.Trials.Control = s.HeldOutLossLast, control(n.dir, s)
	}
	s.dir = n.dir
	if losses := n.progress.losses(); len(losses) > 0 {
		curve := filepath.Join(n.dir, "loss.png")
		if plotErr := plotLoss(curve, s.RunID, losses, [2]float64{heldOutFirst, s.HeldOutLossLast}, n.progress.lossMarks()); plotErr != nil {
			err = errors.Join(err, plotErr)
		} else {
			s.LossCurve = curve
		}
	}
	if err := errors.Join(err, writeJSON(filepath.Join(n.dir, summaryFile), s)); err != nil {
		return s, err
	}
	if finished {
		return s, s.complete()
	}
	return s, nil
}

// name adds the hash of the run, from the start of its log.
func (n *network) name(s *Summary) error {
	if n.options.Chain.Used && n.archive == "" { // the run is not finished
		return nil
	}
	var hash [32]byte
	if n.options.Chain.Used {
		file, err := os.Open(n.archive)
		if err != nil {
			return fmt.Errorf("read the run's archive: %w", err)
		}
		defer func() { _ = file.Close() }()
		_, summary, err := archive.ReplayFrom(n.archive, file, nil)
		if err != nil {
			return err
		}
		hash = summary.RunHash()
	} else {
		log, _, err := server.Replay(server.JournalPath(n.serverDir(), s.RunID), nil)
		if errors.Is(err, fs.ErrNotExist) { // it had not started
			return nil
		}
		if err != nil {
			return err
		}
		hash = log.Run()
	}
	s.Genesis = hex.EncodeToString(hash[:])
	return nil
}

// complete returns an error if a client of a finished run lacks the final model.
func (s Summary) complete() error {
	var final, missing, unrecorded []string
	for i, c := range s.Clients {
		if s.cheats(i) {
			continue // the client's model does not matter
		}
		switch {
		case c.Final == "":
			missing = append(missing, clientName(i))
		case !slices.Contains(final, c.Final):
			final = append(final, c.Final)
		}
		if c.Unrecorded {
			unrecorded = append(unrecorded, clientName(i))
		}
	}
	if s.Trials != nil {
		if err := s.Trials.complete(); err != nil {
			return err
		}
	}
	switch {
	case len(final) > 1:
		return ErrReplicasDiffer
	case len(missing) > 0:
		return fmt.Errorf("%w: %s ended without the final model", ErrIncomplete, strings.Join(missing, ", "))
	case len(unrecorded) > 0:
		return fmt.Errorf("%w: too few members reported the final model for the run to record it; reported by: %s", ErrIncomplete, strings.Join(unrecorded, ", "))
	}
	return nil
}

// measure adds measurements of the newest checkpoint. If the user interrupts a run, it skips
// measurements that need computation.
func (n *network) measure(ctx context.Context, s *Summary) error {
	switch {
	case s.Checkpoint == "" && s.Finished:
		return fmt.Errorf("no client saved a checkpoint (logs are in %s)", n.dir)
	case s.Checkpoint == "":
		return nil
	}
	snapshot, err := checkpoint.ReadDir(s.Checkpoint)
	if err != nil {
		return err
	}
	s.Parameters = parameters(snapshot)
	s.FP32AllReduceBytesPerClientRound = ringAllReduceBytes(s.Parameters, len(n.clients))
	if !s.Finished {
		return nil
	}
	if n.run.Model.Checkpoint.Dummy != nil {
		return nil
	}
	if n.options.HeldOut != "" {
		if s.HeldOutLossLast, s.HeldOutSample, err = n.evaluate(ctx, s.Checkpoint); err != nil {
			return err
		}
	}
	if _, found := snapshot.File("tokenizer.json"); !found {
		return nil // the token files are not readable
	}
	sample, err := child.Output(ctx, nil, n.options.ClientBinary, "generate", "--model", s.Checkpoint,
		"--prompt", samplePrompt, "--max-tokens", strconv.Itoa(sampleTokens), "--temperature", "0.8", "--seed", "1")
	if err != nil {
		return err
	}
	s.Sample = strings.ToValidUTF8(string(sample), "\uFFFD")
	return nil
}

// summary computes the summary from the clients' events.
func (t *tracker) summary() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Summary{TotalRounds: t.totalSteps, HeldOutClaimed: t.state.HeldOut}
	losses := t.losses()
	if len(losses) > 0 {
		s.LossFirst, s.LossLast = losses[0].Loss, losses[len(losses)-1].Loss
	}
	for _, loss := range losses {
		s.Tokens += loss.Tokens
	}
	var sent, payload, clientRounds uint64
	rounds := map[uint32]bool{}
	lost := map[event.Batch]bool{}
	newest := uint32(0)
	for _, id := range t.ids {
		client := t.clients[id]
		counted, attested, tokens := 0, 0, uint64(0)
		for _, round := range client.trained {
			tokens += uint64(round.tokens)
		}
		for step, applied := range client.applied {
			if applied.counts {
				rounds[step] = true
			}
			if applied.own {
				counted++
			}
			if applied.attested {
				attested++
			}
		}
		maps.Copy(lost, client.lostBatches)
		traffic := client.total()
		sent += traffic.sent
		payload += traffic.payload
		s.ModelSyncBytes += traffic.model
		clientRounds += uint64(len(client.trained))
		if client.checkpointDir != "" && client.checkpointStep >= newest {
			newest, s.Checkpoint = client.checkpointStep, client.checkpointDir
		}
		s.Clients = append(s.Clients, ClientSummary{
			ID:             id,
			Digest:         client.digest,
			Final:          client.final.Digest,
			Unrecorded:     client.final.Unrecorded,
			RoundsTrained:  len(client.trained),
			RoundsCounted:  counted,
			RoundsAttested: attested,
			Tokens:         tokens,
			Rejoined:       client.rejoined,
			Restarts:       client.restarts,
			Desynchronised: client.desynchronised,
		})
	}
	s.Rounds, s.LostBatches = len(rounds), len(lost)
	t.addPaid(&s, clientRounds)
	if clientRounds > 0 {
		s.PayloadBytesPerClientRound = payload / clientRounds
		s.WireBytesPerClientRound = (sent - min(sent, s.ModelSyncBytes)) / clientRounds
	}
	return s
}

// measureFirst returns the held-out loss of the starting model; 0 if there is no model or no
// held-out data.
func (n *network) measureFirst(ctx context.Context) (float64, error) {
	model, err := n.firstModel(ctx)
	if err != nil || model == "" || n.options.HeldOut == "" {
		return 0, err
	}
	loss, _, err := n.evaluate(ctx, model)
	return loss, err
}

// evaluate returns the mean loss per token of a model folder on a sample of the held-out data, and
// the sample's name.
func (n *network) evaluate(ctx context.Context, model string) (loss float64, sample string, err error) {
	out, err := child.Output(ctx, nil, n.options.ClientBinary, "evaluate", "--model", model, "--data", n.options.HeldOut,
		"--seq-len", strconv.Itoa(int(n.run.Model.MaxSeqLen)), "--json")
	if err != nil {
		return 0, "", err
	}
	var result struct {
		Loss   *float64 `json:"loss"`
		Sample string   `json:"sample"`
	}
	if err := json.Unmarshal(out, &result); err != nil || result.Loss == nil {
		return 0, "", fmt.Errorf("psyche-client evaluate printed %q: want a JSON object with loss", strings.TrimSpace(string(out)))
	}
	return *result.Loss, result.Sample, nil
}

// parameters counts the elements of all tensors.
func parameters(snapshot checkpoint.Snapshot) uint64 {
	var count uint64
	for _, tensor := range snapshot.Tensors {
		elements := uint64(1)
		for _, size := range tensor.Shape {
			elements *= uint64(size)
		}
		count += elements
	}
	return count
}

// ringAllReduceBytes returns the bytes that each of n members sends to average float32 gradients
// with a ring all-reduce, which sends the least of all schemes: 2(n−1)/n of the gradient (Patarasuk
// and Yuan, 2009).
func ringAllReduceBytes(parameters uint64, n int) uint64 {
	return 4 * parameters * 2 * uint64(n-1) / uint64(n)
}

// Print writes the summary for people.
func (s Summary) Print(w io.Writer) {
	took := time.Duration(s.Seconds * float64(time.Second)).Round(time.Second)
	if s.Finished {
		fmt.Fprintf(w, "\nRun %s: %d rounds, %d tokens in %s\n", s.RunID, s.Rounds, s.Tokens, took)
	} else {
		fmt.Fprintf(w, "\nRun %s, not finished: %d of %d rounds, %d tokens in %s\n", s.RunID, s.Rounds, s.TotalRounds, s.Tokens, took)
	}
	if s.Parameters > 0 {
		fmt.Fprintf(w, "  parameters         %d\n", s.Parameters)
	}
	fmt.Fprintf(w, "  training loss      %.3f → %.3f nats per token\n", s.LossFirst, s.LossLast)
	if s.HeldOutLossLast > 0 {
		fmt.Fprintf(w, "  held-out loss      %.3f → %.3f (%.0f %% of the first), in %s\n", s.HeldOutLossFirst, s.HeldOutLossLast, 100*s.HeldOutLossLast/s.HeldOutLossFirst, s.HeldOutSample)
	}
	if claims := s.HeldOutClaimed.String(); claims != "" {
		fmt.Fprintf(w, "  held-out claims    %s\n", strings.TrimPrefix(claims, "claimed held-out loss "))
	}
	fmt.Fprintf(w, "  sent per client and round   %s (a result is %s)", diskspace.Format(s.WireBytesPerClientRound), diskspace.Format(s.PayloadBytesPerClientRound))
	if s.FP32AllReduceBytesPerClientRound > 0 {
		fmt.Fprintf(w, "; an fp32 all-reduce: %s, %.0f times as much", diskspace.Format(s.FP32AllReduceBytesPerClientRound),
			float64(s.FP32AllReduceBytesPerClientRound)/float64(max(s.WireBytesPerClientRound, 1)))
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "  model sync         %s\n", diskspace.Format(s.ModelSyncBytes))
	fmt.Fprintf(w, "  lost batches       %d%s\n", s.LostBatches, lostText(s.LostBatches))
	if s.Chain != nil {
		s.Chain.print(w, s.Clients)
	}
	fmt.Fprintf(w, "  clients\n")
	for i, c := range s.Clients {
		c.print(w, clientName(i), s.cheats(i), s.Finished)
	}
	if s.Trials != nil {
		s.Trials.print(w)
	}
	for _, file := range []struct{ label, path string }{{"loss curve", s.LossCurve}, {"checkpoint", s.Checkpoint}} {
		if file.path != "" {
			fmt.Fprintf(w, "  %-18s %s\n", file.label, file.path)
		}
	}
	if s.Sample != "" {
		fmt.Fprintf(w, "\nText that this small model generates after %d tokens of training:\n%s\n", s.Tokens, s.Sample)
	}
	s.printNext(w)
}

// lostText explains lost batches.
func lostText(n int) string {
	if n == 0 {
		return ""
	}
	return ", whose results came too late or not at all, such as those of a killed client"
}

// print writes the result of one client. A cheat's model does not matter.
func (c ClientSummary) print(w io.Writer, name string, cheat, finished bool) {
	line := fmt.Sprintf("    %s %s  ", name, c.ID[:min(8, len(c.ID))])
	if cheat {
		fmt.Fprintf(w, "%scheated\n", line)
		return
	}
	line += fmt.Sprintf("digest %s  trained %d rounds, %d counted", c.Digest[:min(16, len(c.Digest))], c.RoundsTrained, c.RoundsCounted)
	if c.RoundsAttested > 0 {
		line += fmt.Sprintf(", %d checked but not counted yet", c.RoundsAttested)
	}
	if c.Rejoined {
		line += ", rejoined"
	}
	if finished && c.Final == "" {
		line += ", without the final model"
	}
	fmt.Fprintln(w, line)
}

// printNext suggests commands for a finished run.
func (s Summary) printNext(w io.Writer) {
	if !s.Finished || s.dir == "" {
		return
	}
	fmt.Fprintf(w, "\nNext:\n  see this run in a browser         psyche dash %s\n", s.dir)
	if s.Sample != "" {
		fmt.Fprintf(w, "  let the model write               psyche-client generate --model %s --prompt 'func '\n", s.Checkpoint)
	}
	fmt.Fprint(w, "  train on your text with friends   psyche host FOLDER\n")
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// newKeyFile creates a folder with a key in it.
func newKeyFile(dir, name string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make run folder: %w", err)
	}
	key, err := identity.Generate(rand.Reader)
	if err != nil {
		return err
	}
	return identity.SaveKeyFile(filepath.Join(dir, name), key)
}
