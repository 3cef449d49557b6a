package main

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/proof/bench/rawlog"
	"github.com/psyche-go/psyche/record/config"
)

// runCommand is one training: its settings, which are the first line of its log.
type runCommand struct {
	Name string `arg:"" help:"Name of the log."`
	Logs string `json:"-" default:"proof/bench/parity/logs" type:"path" help:"Folder of the logs."`
	Data string `json:"-" default:"build/parity/data" type:"path" help:"Folder written by psyche data tokenize."`

	Model   string `default:"proof/bench/parity/model.json" help:"config.json of the model."`
	Seed    uint64 `default:"1" help:"Seed of the first weights and the order of the text."`
	Tokens  uint64 `default:"5000000" help:"Training tokens, rounded up to whole steps."`
	SeqLen  int    `default:"128" help:"Tokens of a sequence."`
	Batch   uint64 `default:"3" help:"Sequences of a step, over all clients."`
	Micro   int    `default:"8" help:"Sequences that the model processes at once."`
	Threads int    `json:"-" default:"1" help:"Threads of libtorch and the optimizer."`
	Compute string `json:",omitempty" name:"compute-dtype" default:"f32" enum:"f32,bf16" help:"Element type for computing gradients: ${enum}."`

	Optimizer string  `default:"distro" enum:"adamw,distro,local" help:"Optimizer: ${enum}."`
	LR        float64 `required:"" help:"Maximum learning rate."`
	FinalLR   float64 `default:"0" help:"Learning rate of the last step, as a fraction of the maximum."`
	Warmup    float64 `default:"0.03" help:"Fraction of the steps in which the learning rate rises."`
	Decay     float64 `default:"0" help:"Weight decay."`
	Clip      float64 `default:"1" help:"Maximum norm of a gradient; 0 means unlimited."`
	Beta1     float64 `name:"beta1" default:"0.9" help:"β1 of AdamW, also in local steps."`
	Beta2     float64 `name:"beta2" default:"0.95" help:"β2 of AdamW, also in local steps."`

	Clients  uint64  `default:"3" help:"DisTrO and local steps: number of clients."`
	Momentum float64 `default:"0.99" help:"DisTrO: decay of the momentum."`
	TopK     uint16  `name:"topk" default:"8" help:"DisTrO and local steps: coefficients sent per chunk."`
	Chunk    uint16  `default:"64" help:"DisTrO and local steps: side length of a chunk."`
	OneBit   bool    `name:"1bit" default:"true" negatable:"" help:"DisTrO: send signs only."`
	ApplyLag uint8   `default:"1" help:"DisTrO and local steps: rounds until results are applied."`

	Speeds string `json:",omitempty" help:"DisTrO and local steps: relative speeds of the clients, such as 1,2,4, from which batches and votes follow."`

	Lookahead bool `help:"DisTrO: compute gradients at the weights that the momentum predicts."`

	InnerSteps uint16  `json:",omitempty" help:"Local steps: number of steps per client and round, each on its share of --batch."`
	Muon       bool    `json:",omitempty" help:"Local steps: use Muon for the matrices."`
	ValueBits  uint8   `json:",omitempty" help:"Local steps: bits per value."`
	OuterLR    float64 `json:",omitempty" name:"outer-lr" help:"Local steps: outer learning rate, by which each round's weight update multiplies the mean."`
	OuterBeta  float64 `json:",omitempty" name:"outer-momentum" help:"Local steps: outer momentum, applied to the pseudo-gradients."`
	ErrorDecay float64 `json:",omitempty" help:"Local steps: decay of the residual."`

	Audited bool `json:",omitempty" help:"Local steps: reset the running means to zero in each round, as runs with audits do."`

	OneReplica   bool   `json:",omitempty" help:"DisTrO: let the clients share one replica; only their momenta are separate."`
	Attackers    uint64 `json:",omitempty" help:"Number of clients with a shared replica that attack in every step."`
	Attack       string `json:",omitempty" help:"Attack: sign-flip, noise, negated-copy, injection, bounded-injection, lonely, withheld, half-batch, old-batch, copy, drift, drift-sent, stuffed or stuffed-often."`
	Verification int    `json:",omitempty" name:"verification-percent" help:"Percentage of clients that audit in a step instead of training, if clients share a replica; 0 means no audits."`
}

// record is any line of a log except the first.
type record struct {
	Step       uint32
	Tokens     uint64
	Loss       float64   `json:",omitempty"` // of training, mean since the last record
	Validation float64   `json:",omitempty"`
	Test       float64   `json:",omitempty"` // last record only
	Bytes      float64   `json:",omitempty"` // of a client's result, mean since the last record
	Ejected    []ejected `json:",omitempty"` // since the last record
	Seconds    float64
}

const (
	// Sequences of the held-out text: few during training, many at the end.
	quickSequences, fullSequences = 64, 512
	records                       = 100 // of a log
	measurements                  = 10  // of the validation loss, among the records
)

// learner trains one step on the sequences [first, first+batch).
type learner interface {
	step(ctx context.Context, step uint32, id assign.BatchID) (stepped, error)
	evaluate(ctx context.Context, sequences [][]int32) (float64, error)
	finish(ctx context.Context) error // checks the state after the last step
	close() error
}

// stepped is the result of a learner's step.
type stepped struct {
	loss    float64 // of training; 0: not known
	bytes   int     // of a client's result, mean
	ejected []ejected
}

// sequences returns the number of sequences in a step, or in a round of local steps.
func (c *runCommand) sequences() uint64 { return c.Batch * max(uint64(c.InnerSteps), 1) }

// steps returns the number of steps, or rounds of local steps, for the tokens.
func (c *runCommand) steps() uint32 {
	perStep := c.sequences() * uint64(c.SeqLen)
	return uint32((c.Tokens + perStep - 1) / perStep)
}

// Run trains and writes the log atomically.
func (c *runCommand) Run(ctx context.Context) (err error) {
	if c.Batch < c.Clients || c.Clients < 1 || c.ApplyLag < 1 || c.ApplyLag > 2 || c.steps() < measurements || (c.InnerSteps > 0) != (c.Optimizer == "local") {
		return fmt.Errorf("batch %d, clients %d, apply-lag %d, %d steps, inner steps %d: want at least one sequence per client, apply-lag 1 or 2, at least %d steps, and inner steps exactly with --optimizer local",
			c.Batch, c.Clients, c.ApplyLag, c.steps(), c.InnerSteps, measurements)
	}
	path := filepath.Join(c.Logs, c.Name+rawlog.Suffix)
	file, err := filelock.Open(path+".part", 0o644)
	if errors.Is(err, filelock.ErrHeld) {
		return errBusy
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := os.Stat(path); err == nil { // another process finished it before this process got the lock
		return errBusy
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	texts, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, texts.close()) }()
	l, err := c.learner(ctx, texts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	log := gzip.NewWriter(file)
	if err := errors.Join(c.train(ctx, l, texts, json.NewEncoder(log)), log.Close()); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// errBusy means that another process is training this run.
var errBusy = errors.New("another process is training this run")

func (c *runCommand) train(ctx context.Context, l learner, texts *texts, log *json.Encoder) error {
	if err := log.Encode(c); err != nil {
		return err
	}
	started, steps := time.Now(), c.steps()
	fmt.Printf("%s\n", c.Name)
	every := max(steps/records, 1)
	measured := max(every*records/measurements, 1)
	if steps < records {
		measured = steps / measurements
	}
	var now record
	since := 0.0
	for step := uint32(1); step <= steps; step++ {
		first := uint64(step-1) * c.sequences()
		s, err := l.step(ctx, step, assign.BatchID{Start: first, End: first + c.sequences()})
		if err != nil {
			return err
		}
		now.Loss, now.Bytes, since = now.Loss+s.loss, now.Bytes+float64(s.bytes), since+1
		now.Ejected = append(now.Ejected, s.ejected...)
		if step%every != 0 && step != steps {
			continue
		}
		now = record{
			Step: step, Tokens: uint64(step) * c.sequences() * uint64(c.SeqLen),
			Loss: now.Loss / since, Bytes: now.Bytes / since, Ejected: now.Ejected,
		}
		if step%measured == 0 && step != steps {
			if now.Validation, err = l.evaluate(ctx, texts.validation[:quickSequences]); err != nil {
				return err
			}
			took := time.Since(started)
			left := took * time.Duration(steps-step) / time.Duration(step)
			fmt.Printf("%d/%d  loss %.4f  validation %.4f  %.0f tokens/s  %s left\n", step, steps, now.Loss, now.Validation,
				float64(now.Tokens)/took.Seconds(), left.Round(time.Minute))
		}
		if step == steps {
			if err := c.last(ctx, l, texts, &now); err != nil {
				return err
			}
		}
		now.Seconds = math.Round(time.Since(started).Seconds()*10) / 10
		if err := log.Encode(now); err != nil {
			return err
		}
		now, since = record{}, 0
	}
	return nil
}

// last evaluates the trained model.
func (c *runCommand) last(ctx context.Context, l learner, texts *texts, now *record) error {
	err := l.finish(ctx)
	if err != nil {
		return err
	}
	if now.Validation, err = l.evaluate(ctx, texts.validation); err != nil {
		return err
	}
	if now.Test, err = l.evaluate(ctx, texts.test); err != nil {
		return err
	}
	fmt.Printf("validation %.4f  test %.4f  %.0f bytes\n", now.Validation, now.Test, now.Bytes)
	return nil
}

// texts are the training text of a run and two parts of the held-out text. The parts share at most
// the file at their border.
type texts struct {
	training         *local.Folder
	validation, test [][]int32
}

func (c *runCommand) open() (*texts, error) {
	options := local.Options{SeqLen: c.SeqLen, TokenSize: 2}
	heldOut, err := local.Open(filepath.Join(c.Data, "heldout"), options)
	if err != nil {
		return nil, err
	}
	defer func() { _ = heldOut.Close() }()
	var t texts
	half := heldOut.Len() / 2
	if half < fullSequences {
		return nil, fmt.Errorf("%s: %d held-out sequences, want %d", c.Data, heldOut.Len(), 2*fullSequences)
	}
	// Spread over the part, so that no single file dominates.
	for part, into := range []*[][]int32{&t.validation, &t.test} {
		for i := range uint64(fullSequences) {
			at := uint64(part)*half + (i%quickSequences*(fullSequences/quickSequences)+i/quickSequences)*(half/fullSequences)
			sequences, err := heldOut.Sequences(context.Background(), assign.BatchID{Start: at, End: at + 1})
			if err != nil {
				return nil, err
			}
			*into = append(*into, sequences...)
		}
	}
	options.Seed = new([32]byte)
	binary.LittleEndian.PutUint64(options.Seed[:], c.Seed)
	t.training, err = local.Open(c.Data, options)
	return &t, err
}

func (t *texts) close() error { return t.training.Close() }

func (c *runCommand) learner(ctx context.Context, texts *texts) (learner, error) {
	configuration, err := os.ReadFile(c.Model)
	if err != nil {
		return nil, err
	}
	options := train.Options{
		Model:      checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: configuration}}},
		LRSchedule: config.LRSchedule{Cosine: &config.CosineLR{BaseLR: c.LR, WarmupSteps: uint32(c.Warmup * float64(c.steps())), TotalSteps: c.steps(), FinalLR: c.FinalLR * c.LR}},
		MicroBatch: c.Micro, Threads: c.Threads, RunID: c.Name,
	}
	if c.Compute == "bf16" {
		options.Compute.Compute = torch.BF16
	}
	if options.Model.Tensors, err = model.Init(configuration, c.Seed); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Model, err)
	}
	if c.Optimizer == "adamw" {
		return newAdamW(ctx, c, options, texts.training)
	}
	if c.OneReplica {
		return newMembers(ctx, c, options, texts.training)
	}
	return newClients(ctx, c, options, texts.training)
}
