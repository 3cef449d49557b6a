package metrics

import (
	"maps"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// ratedSteps is the number of newest steps over which speed is measured.
const ratedSteps = 16

// efficiency is the metric's name in the original Psyche, with its spelling mistake.
const efficiency = "train/efficency" //nolint:misspell // that is its name

// Row is the metrics of a step.
type Row struct {
	Time   time.Time
	Step   uint32
	Values map[string]float64
}

// Board holds the newest value of every metric. Its methods are safe for concurrent use.
type Board struct {
	mu         sync.Mutex
	vocabulary int
	values     map[string]float64
	extra      map[string]float64 // of the next row only
	batch      uint32             // sequences of the running round
	starts     []start            // of the newest rounds
	claims     uint32             // step of the newest round with known claims
	measured   string             // digest of the newest checkpoint with known claims
	listeners  []func(Row)
}

// start is the start of a round, with the amount of data that the run had processed by then.
type start struct {
	step   uint32
	at     time.Time
	tokens float64
}

// New returns an empty board.
func New() *Board { return &Board{values: map[string]float64{}, extra: map[string]float64{}} }

// SetVocabulary sets the size of the model's vocabulary, for train/confidence.
func (b *Board) SetVocabulary(size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.vocabulary = size
}

// Listen passes every later row to a tracker. take must not block.
func (b *Board) Listen(take func(Row)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners = append(b.listeners, take)
}

// Values returns a copy of all metrics.
func (b *Board) Values() map[string]float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.values)
}

// See processes an event. It is an argument for event.Log's Watch.
func (b *Board) See(e event.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch body := e.Body.(type) {
	case event.State:
		b.state(e.Time, body)
	case event.Gradient:
		b.values["train/lr"], b.values["train/grad_norm"] = body.LR, body.Norm
	case event.OptimizerStats:
		for _, t := range body.Tensors {
			b.extra["optim/"+t.Name+".grad_energy"] = t.GradientEnergy
			b.extra["optim/"+t.Name+".delta_energy"] = t.DeltaEnergy
		}
	case event.Trained:
		b.trained(e.Time, body)
	case event.Evaluated:
		if len(body.Scores) == 0 {
			return
		}
		row := Row{Time: e.Time, Step: body.Step, Values: map[string]float64{}}
		for name, score := range body.Scores {
			if name == "acc_norm" || name == "acc" && !has(body.Scores, "acc_norm") || len(body.Scores) == 1 {
				b.values["eval/"+body.Task] = score
				row.Values["eval/"+body.Task] = score
			}
			b.values["eval/"+body.Task+"/"+name] = score
			row.Values["eval/"+body.Task+"/"+name] = score
		}
		b.hand(row)
	case event.Wire:
		b.values["p2p/bytes_sent"], b.values["p2p/bytes_received"] = float64(body.P2PSent), float64(body.P2PReceived)
		b.values["p2p/payload_sent"], b.values["p2p/payload_received"] = float64(body.PayloadSent), float64(body.PayloadReceived)
	case event.Audit:
		b.values["audits/"+strings.ReplaceAll(body.Outcome, " ", "_")]++
	case event.Applied:
		b.values["train/results_counted"] = float64(body.Counted)
		b.values["train/batches_lost"] += float64(len(body.Lost))
	}
}

func has(scores map[string]float64, name string) bool {
	_, found := scores[name]
	return found
}

func (b *Board) state(at time.Time, s event.State) {
	b.values["coordinator/epoch"], b.values["coordinator/round"] = float64(s.Epoch), float64(s.Step)
	b.values["coordinator/num_clients"] = float64(len(s.Members))
	b.claimed(at, s.Claimed)
	b.heldOut(at, s.HeldOut)
	if s.RunState != "RoundTrain" || s.BatchSize == 0 {
		return
	}
	b.batch = s.BatchSize
	if n := len(b.starts); n > 0 && b.starts[n-1].step >= s.Step {
		return
	}
	b.starts = append(b.starts, start{step: s.Step, at: at, tokens: float64(s.DataIndex)})
	if len(b.starts) > ratedSteps+1 {
		b.starts = b.starts[1:]
	}
}

// claimed makes a row from the claims of a round's witnesses.
func (b *Board) claimed(at time.Time, c *event.Claimed) {
	if c == nil || c.Step == b.claims {
		return
	}
	b.claims = c.Step
	row := Row{Time: at, Step: c.Step, Values: map[string]float64{}}
	for name, of := range map[string]event.Claims{"claimed/loss": c.Loss, "claimed/tokens_per_sec": c.Speed} {
		if of.Count > 0 {
			row.Values[name], row.Values[name+"_spread"] = of.Median, of.Spread
			row.Values[name+"_claims"] = float64(of.Count)
		}
	}
	row.Values["claimed/loss_far"] = float64(len(c.Loss.Far))
	maps.Copy(b.values, row.Values)
	b.hand(row)
}

// heldOut makes a row from members' claims about the loss of a checkpoint on held-out data.
func (b *Board) heldOut(at time.Time, h *event.HeldOut) {
	if h == nil || h.Digest == b.measured {
		return
	}
	b.measured = h.Digest
	row := Row{Time: at, Step: h.Step, Values: map[string]float64{
		"held_out/loss": h.Loss.Median, "held_out/loss_spread": h.Loss.Spread,
		"held_out/loss_claims": float64(h.Loss.Count), "held_out/loss_far": float64(len(h.Loss.Far)),
	}}
	maps.Copy(b.values, row.Values)
	b.hand(row)
}

// trained makes the row of a step.
func (b *Board) trained(at time.Time, t event.Trained) {
	loss := float64(t.Loss)
	b.values["train/loss"], b.values["train/perplexity"] = loss, math.Exp(loss)
	if b.vocabulary > 1 {
		b.values["train/confidence"] = 1 - loss/math.Log(float64(b.vocabulary))
	}
	b.values["train/last_train_seconds"] = t.Seconds
	if b.batch == 0 { // solo training
		b.values["train/total_tokens"] += float64(t.Tokens)
		if t.Seconds > 0 {
			b.values["train/tokens_per_sec"] = float64(t.Tokens) / t.Seconds
		}
	}
	if t.Memory > 0 {
		b.values["train/memory_bytes"] = float64(t.Memory)
	}
	sequences := float64(t.Batch[1] - t.Batch[0])
	if sequences > 0 && b.batch > 0 {
		length := float64(t.Tokens) / sequences
		b.values["train/global_token_batch_size"] = length * float64(b.batch)
		b.rate(length, t.Seconds)
	}
	row := Row{Time: at, Step: t.Step, Values: maps.Clone(b.values)}
	maps.DeleteFunc(row.Values, func(name string, _ float64) bool { // they belong to a different step and have a separate row
		return strings.HasPrefix(name, "claimed/") || strings.HasPrefix(name, "held_out/")
	})
	maps.Copy(row.Values, b.extra)
	clear(b.extra)
	b.hand(row)
}

// rate measures the speed of the run over the newest rounds.
func (b *Board) rate(length, seconds float64) {
	first, last := b.starts[0], b.starts[len(b.starts)-1]
	b.values["train/total_tokens"] = length * (last.tokens + float64(b.batch))
	took := last.at.Sub(first.at).Seconds()
	if rounds := float64(last.step - first.step); took > 0 && rounds > 0 {
		b.values["train/tokens_per_sec"] = length * (last.tokens - first.tokens) / took
		b.values[efficiency] = min(1, seconds/(took/rounds))
	}
}

func (b *Board) hand(row Row) {
	for _, take := range b.listeners {
		take(row)
	}
}
