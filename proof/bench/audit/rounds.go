package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/proof/bench/rawlog"
)

// roundsCommand audits rounds of local steps: trainers of the stacks take turns, and all other
// trainers of their type repeat the steps.
type roundsCommand struct {
	Name      string  `required:"" help:"Name of the log."`
	Model     string  `default:"proof/bench/parity/model-small.json" type:"existingfile" help:"config.json of the model."`
	Logs      string  `default:"proof/bench/audit/logs/rounds" type:"path" help:"Folder of the logs."`
	Text      string  `type:"path" help:"Folder of the .go files to train on. Default: the standard library."`
	Rounds    uint32  `default:"50" help:"Number of rounds."`
	Inner     uint32  `default:"24" help:"Steps of a round."`
	Muon      bool    `help:"Use Muon instead of AdamW for the steps."`
	Beta1     float64 `name:"beta1" default:"0.9" help:"β1 of AdamW."`
	Sequences int     `default:"1" help:"Sequences of a step."`
	Length    int     `default:"64" help:"Tokens of a sequence."`
	LR        float64 `default:"0.002" help:"Learning rate after ten rounds."`
	Final     float64 `default:"0.0002" help:"Learning rate of the last round."`
	Seed      uint64  `default:"1" help:"Seed of batches and challenges."`
	Attacks   bool    `default:"true" negatable:"" help:"Audit attackers too."`
	F32       bool    `name:"f32" help:"Leave out stacks in bf16."`
	Most      int     `default:"32" help:"Number of opened chunks."`
}

// roundAttacks train some of a round's steps on foreign tokens. steps returns these steps, for a
// round of inner steps.
var roundAttacks = []struct {
	name  string
	steps func(inner uint32) []uint32
}{
	{"another batch in the first step", func(uint32) []uint32 { return []uint32{0} }},
	{"another batch in the middle step", func(inner uint32) []uint32 { return []uint32{inner / 2} }},
	{"another batch in the last step", func(inner uint32) []uint32 { return []uint32{inner - 1} }},
	{"another batch in all steps", func(inner uint32) []uint32 {
		all := make([]uint32, inner)
		for i := range all {
			all[i] = uint32(i)
		}
		return all
	}},
}

// roundTrainer is a stack in a run of rounds.
type roundTrainer struct {
	*process
	root   [32]byte // of its newest result
	newest uint32
}

// roundsRun is a run of rounds.
type roundsRun struct {
	*roundsCommand
	source   *calibration // of batches
	random   *rand.Rand
	trainers []*roundTrainer
	shapes   audit.Shapes
	log      *json.Encoder
	mu       sync.Mutex // guards log
}

func (c *roundsCommand) Run(ctx context.Context) (err error) {
	text, err := readText(c.Text)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Logs, 0o755); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(c.Logs, c.Name+rawlog.Suffix))
	if err != nil {
		return err
	}
	log := gzip.NewWriter(file)
	defer func() { err = errors.Join(err, log.Close(), file.Close()) }()
	random := rand.New(rand.NewPCG(c.Seed, 0))
	run := &roundsRun{
		roundsCommand: c, random: random, log: json.NewEncoder(log),
		source: &calibration{calibrateCommand: &calibrateCommand{Sequences: c.Sequences * int(c.Inner), Length: c.Length}, text: text, random: random},
	}
	defer func() { err = errors.Join(err, run.close()) }()
	for i, s := range stacks() {
		if c.F32 && s.bf16 {
			continue
		}
		float := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
		p, err := s.run("rounds-worker", "--model", c.Model, "--threads", strconv.Itoa(s.threads), "--data", strconv.Itoa(s.data),
			"--micro", strconv.Itoa(s.micro), "--bf16="+strconv.FormatBool(s.bf16), "--lr", float(c.LR), "--final", float(c.Final),
			"--rounds", fmt.Sprint(c.Rounds), "--inner", fmt.Sprint(c.Inner), "--muon="+strconv.FormatBool(c.Muon), "--beta1", float(c.Beta1), "--id", strconv.Itoa(i+1))
		if err != nil {
			return err
		}
		run.trainers = append(run.trainers, &roundTrainer{process: p})
	}
	first, err := roundAsk(run.trainers[0], roundRequest{Op: "shapes"})
	if err != nil {
		return err
	}
	run.shapes = first.Shapes
	for step := uint32(1); step <= c.Rounds && err == nil; step++ {
		if err = ctx.Err(); err == nil {
			err = run.round(step)
		}
		if step%10 == 0 {
			slog.Info("rounds", "log", c.Name, "step", step)
		}
	}
	return err
}

func (r *roundsRun) close() error {
	var errs []error
	for _, t := range r.trainers {
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}

// round makes a trainer of each type train a round, and the other trainers of the type audit the
// round and attacks on it.
func (r *roundsRun) round(step uint32) error {
	var payloads [][]byte
	for _, bf16 := range []bool{false, true} {
		var all []*roundTrainer
		for _, t := range r.trainers {
			if t.bf16 == bf16 {
				all = append(all, t)
			}
		}
		if len(all) == 0 {
			continue
		}
		payload, err := r.turn(step, all, len(payloads))
		if err != nil {
			return err
		}
		payloads = append(payloads, payload)
	}
	return r.each(r.trainers, func(t *roundTrainer) error {
		_, err := roundAsk(t, roundRequest{Op: "apply", Step: step, Payloads: payloads})
		return err
	})
}

// turn runs the turn of one of the trainers.
func (r *roundsRun) turn(step uint32, all []*roundTrainer, slot int) ([]byte, error) {
	own := all[int(step)%len(all)]
	batch := r.source.batch(step)
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], r.random.Uint64())
	chunks := audit.Chunks(seed, step, [32]byte{}, r.shapes, r.Most, nil)
	var names []string
	var claims []roundClaim
	if r.Attacks {
		for _, a := range roundAttacks {
			other := slices.Clone(batch)
			for _, i := range a.steps(r.Inner) {
				for j := range r.Sequences {
					at := int(i)*r.Sequences + j
					other[at] = slices.Clone(batch[at])
					slices.Reverse(other[at])
				}
			}
			trained, err := roundAsk(own, roundRequest{Op: "train", Step: step, Slot: slot, Batch: other, Chunks: chunks})
			if err != nil {
				return nil, err
			}
			names, claims = append(names, a.name), append(claims, trained.claim(own.root))
			if _, err := roundAsk(own, roundRequest{Op: "drop", Step: step}); err != nil {
				return nil, err
			}
		}
	}
	trained, err := roundAsk(own, roundRequest{Op: "train", Step: step, Slot: slot, Batch: batch, Chunks: chunks})
	if err != nil {
		return nil, err
	}
	names, claims = append(names, "honest"), append(claims, trained.claim(own.root))
	err = r.each(all, func(v *roundTrainer) error {
		if v == own {
			return nil
		}
		audited, err := roundAsk(v, roundRequest{Op: "audit", Step: step, Slot: slot, Batch: batch, Chunks: chunks, Claims: claims, Trainer: trained.Header.Trainer})
		if err != nil {
			return err
		}
		for i, report := range audited.Reports {
			if err := r.write(roundRow(names[i], step, own, v, report, audited.Shaken[i])); err != nil {
				return err
			}
		}
		return nil
	})
	own.root, own.newest = trained.Header.Momentum, step
	return trained.Payload, err
}

func (r *roundsRun) each(trainers []*roundTrainer, f func(t *roundTrainer) error) error {
	var group sync.WaitGroup
	errs := make([]error, len(trainers))
	free := make(chan struct{}, 2)
	for i, t := range trainers {
		group.Go(func() {
			free <- struct{}{}
			errs[i] = f(t)
			<-free
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (r *roundsRun) write(to row) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Encode(to)
}

func roundRow(kind string, step uint32, own, v *roundTrainer, report, shaken audit.Report) row {
	to := row{Kind: kind, Step: step, Trainer: own.name, Verifier: v.name, Fault: int(report.Fault), Error: round(report.Error)}
	if report.Judge(audit.LocalLimits) != audit.Passed {
		to.Shaken = round(shaken.Error)
		if shaken.Judge(audit.LocalLimits) != audit.Passed {
			to.Stopped = 1
		}
	}
	var errs []float64
	for _, f := range report.Chunks {
		errs = append(errs, f.Error)
	}
	slices.SortFunc(errs, func(a, b float64) int { return cmp.Compare(b, a) })
	for _, e := range errs[:min(4, len(errs))] {
		to.Top = append(to.Top, round(e))
	}
	if len(errs) > 0 {
		to.Middle = round(errs[len(errs)/2])
	}
	return to
}
