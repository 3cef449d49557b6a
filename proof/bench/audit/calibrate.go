package main

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/proof/bench/momenta"
	"github.com/psyche-go/psyche/proof/bench/rawlog"
)

// cuts are the options with which workers cut the model into chunks.
func cuts(decay float64) momenta.Options {
	return momenta.Options{Decay: float32(decay), TopK: topK, Edge: chunkEdge, Signs: true, Run: sha256.Sum256([]byte(runID))}
}

// calibrateCommand trains a run with one trainer of each stack and audits it.
type calibrateCommand struct {
	Name      string  `required:"" help:"Name of the log."`
	Model     string  `default:"proof/bench/parity/model-small.json" type:"existingfile" help:"config.json of the model."`
	Logs      string  `default:"proof/bench/audit/logs" type:"path" help:"Folder of the logs."`
	Text      string  `type:"path" help:"Folder of the .go files to train on. Default: the standard library."`
	Steps     uint32  `default:"200" help:"Training steps."`
	Every     uint32  `default:"2" help:"Interval of audited steps."`
	Sequences int     `default:"4" help:"Sequences of a batch."`
	Length    int     `default:"64" help:"Tokens of a sequence."`
	LR        float64 `default:"0.001" help:"Learning rate."`
	Seed      uint64  `default:"1" help:"Seed of batches, challenges and noise."`
	Decay     float64 `default:"0.999" help:"Decay of the momentum."`
	Rare      uint32  `help:"Initial steps with batches of random tokens; most tokens occur only once."`
	Attacks   bool    `default:"true" negatable:"" help:"Audit attackers too."`
	Count     bool    `help:"For stacks of the same type, count audits and write one row per pair instead of one per audit."`
}

// calibration is a run during calibration.
type calibration struct {
	*calibrateCommand
	text       []byte
	random     *rand.Rand
	vocabulary int32
	workers    []*process
	cut        *momenta.Cutting
	states     []*momenta.State // of each trainer
	old        [][][]float32
	shadows    []*shadow
	log        *json.Encoder
	mu         sync.Mutex // guards log and counts
	counts     map[[2]string]*row
}

func (c *calibrateCommand) Run(ctx context.Context) (err error) {
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
	run := &calibration{
		calibrateCommand: c, text: text, random: rand.New(rand.NewPCG(c.Seed, 0)), log: json.NewEncoder(log), counts: make(map[[2]string]*row),
	}
	if run.vocabulary, err = vocabulary(c.Model); err != nil {
		return err
	}
	for _, s := range stacks() {
		p, err := s.start(c.Model, c.LR, c.Decay)
		if err != nil {
			return errors.Join(err, run.close())
		}
		run.workers = append(run.workers, p)
	}
	for step := uint32(1); step <= c.Steps && err == nil; step++ {
		if err = ctx.Err(); err == nil {
			err = run.step(step)
			if step%100 == 0 {
				slog.Info("calibrate", "log", c.Name, "step", step)
			}
		}
	}
	return errors.Join(err, run.writeCounts(), run.close())
}

func vocabulary(model string) (int32, error) {
	text, err := os.ReadFile(model)
	if err != nil {
		return 0, err
	}
	var config struct {
		Tokens int32 `json:"vocab_size"`
	}
	err = json.Unmarshal(text, &config)
	return config.Tokens, err
}

func (c *calibration) close() error {
	var errs []error
	for _, w := range c.workers {
		errs = append(errs, w.close())
	}
	return errors.Join(errs...)
}

// batch draws sequences of the text, or of random tokens.
func (c *calibration) batch(step uint32) [][]int32 {
	batch := make([][]int32, c.Sequences)
	for i := range batch {
		if step <= c.Rare {
			for range c.Length + 1 {
				batch[i] = append(batch[i], c.random.Int32N(c.vocabulary))
			}
			continue
		}
		at := c.random.IntN(len(c.text) - c.Length - 1)
		for _, b := range c.text[at : at+c.Length+1] {
			batch[i] = append(batch[i], int32(b))
		}
	}
	return batch
}

// all queries all workers concurrently.
func (c *calibration) all(f func(i int, w *process) error) error {
	var group sync.WaitGroup
	errs := make([]error, len(c.workers))
	for i, w := range c.workers {
		group.Go(func() { errs[i] = f(i, w) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// step trains a step with all trainers, audits it if it is due, and applies it.
func (c *calibration) step(step uint32) error {
	n := len(c.workers)
	batches, answers := make([][][]int32, n), make([][]answer, n) // by verifier, then by trainer
	for i := range batches {
		batches[i], answers[i] = c.batch(step), make([]answer, n)
	}
	audited := step%c.Every == 0
	err := c.all(func(i int, w *process) error {
		for j, b := range batches {
			if i != j && !c.compares(i, j, audited) {
				continue
			}
			var err error
			if answers[i][j], err = w.ask(request{Step: step, Batch: b}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.cut == nil {
		if c.cut, err = momenta.New(answers[0][0].Shapes, cuts(c.Decay)); err != nil {
			return err
		}
		for range n {
			c.states = append(c.states, c.cut.Begin())
		}
		if c.old = make([][][]float32, n); !c.Count {
			c.shadows = shadows(c.Steps / 2)
		}
		for _, s := range c.shadows {
			s.begin(c.cut)
		}
	}
	states, payloads := make([]*momenta.State, n), make([][]byte, n)
	for i := range states {
		if states[i], err = c.cut.Advance(c.states[i], step, c.cut.Tensors(answers[i][i].Updates, nil), nil); err != nil {
			return err
		}
		if payloads[i], err = c.cut.Payload(states[i], i, uint64(i), uint64(i)+1); err != nil {
			return err
		}
	}
	if err := c.follow(step, c.cut.Tensors(answers[0][0].Updates, nil), states[0]); err != nil {
		return err
	}
	if audited {
		if err := c.audit(step, batches, answers, states); err != nil {
			return err
		}
	}
	for i := range states {
		c.old[i] = c.cut.Tensors(answers[i][i].Updates, nil)
	}
	c.states = states
	return c.all(func(_ int, w *process) error {
		_, err := w.ask(request{Step: step, Payloads: payloads})
		return err
	})
}

// compares reports whether one worker verifies another.
func (c *calibration) compares(v, t int, audited bool) bool {
	return v != t && audited && (!c.Count || c.workers[v].bf16 == c.workers[t].bf16)
}

// challenge draws chunks of a trainer.
func (c *calibration) challenge(step uint32, t int) []uint32 {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], c.random.Uint64())
	return audit.Chunks(seed, step, momenta.Key(t), c.cut.Shapes, audit.DefaultChunks, nil)
}

// follow applies the step to the shadow attackers, which follow the first trainer.
func (c *calibration) follow(step uint32, update [][]float32, honest *momenta.State) error {
	for _, s := range c.shadows {
		next, err := c.cut.Advance(s.state, step, s.change(step, s, c.cut, update), nil)
		if err != nil {
			return err
		}
		s.state = next
		o := momenta.Compare(c.cut.Shapes, honest.Taken, next.Taken)
		err = c.write(row{Kind: s.name, Step: step, Trainer: c.workers[0].name, Sets: round(s.chosen(c.cut)),
			Signs: round(float64(o.Same) / float64(max(1, o.Entries))), Cosine: round(float64(o.Opposite) / float64(max(1, o.Entries)))})
		if err != nil {
			return err
		}
	}
	return nil
}

// reference returns a verifier's computation of trainer t's batch, for the drawn chunks.
func (c *calibration) reference(step uint32, t int, a answer, chunks []uint32) *audit.Reference {
	return momenta.Reference(&audit.Reference{
		Shapes: c.cut.Shapes, Step: step, Decay: float32(c.Decay), Signs: true,
		Updates: a.Updates, Usual: a.Usual, Longest: a.Longest, Most: a.Most,
	}, momenta.Key(t), chunks)
}

// verifiersOfAttack is the number of verifiers that audit each attack.
const verifiersOfAttack = 3

// audit makes every worker verify every other's step, and some of them attacks on one.
func (c *calibration) audit(step uint32, batches [][][]int32, answers [][]answer, states []*momenta.State) error {
	jobs := make(chan func() error)
	var group sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		group.Go(func() {
			for job := range jobs {
				errs[i] = errors.Join(errs[i], job())
			}
		})
	}
	for t := range c.workers {
		chunks := c.challenge(step, t)
		if err := errors.Join(c.cut.Commit(c.states[t]), c.cut.Commit(states[t])); err != nil {
			return err
		}
		for v := range c.workers {
			if c.compares(v, t, true) {
				jobs <- func() error { return c.check("honest", step, t, v, c.states[t], states[t], answers[v][t], chunks) }
			}
		}
		if c.Count || !c.Attacks || int(step/c.Every)%len(c.workers) != t {
			continue // in each audited step, only one trainer is also attacked
		}
		s, err := c.scene(step, t, batches, answers, states)
		if err != nil {
			return err
		}
		for _, a := range momenta.Single() {
			drawn := c.challenge(step, t)
			to, err := c.cut.Advance(c.states[t], step, a.Fake(s), nil)
			if err == nil {
				err = c.cut.Commit(to)
			}
			if err != nil {
				return err
			}
			for _, turn := range c.random.Perm(len(c.workers) - 1)[:verifiersOfAttack] {
				v := (t + 1 + turn) % len(c.workers)
				jobs <- func() error { return c.check(a.Name, step, t, v, c.states[t], to, answers[v][t], drawn) }
			}
		}
	}
	close(jobs)
	group.Wait()
	return errors.Join(errs...)
}

// scene requests the additional data that attackers need.
func (c *calibration) scene(step uint32, t int, batches [][][]int32, answers [][]answer, states []*momenta.State) (*momenta.Scene, error) {
	s := &momenta.Scene{
		Cutting: c.cut, Random: c.random, Step: step, Own: c.states[t], Honest: c.states[t],
		Update: c.cut.Tensors(answers[t][t].Updates, nil), Old: c.old[t], Others: states[(t+1)%len(states)].Taken,
	}
	half, err := c.workers[t].ask(request{Step: step, Batch: batches[t][:max(1, len(batches[t])/2)]})
	if err != nil {
		return nil, err
	}
	s.Half = c.cut.Tensors(half.Updates, nil)
	s.Foreign = c.cut.Tensors(answers[t][(t+1)%len(states)].Updates, nil)
	return s, nil
}

// check audits a step and writes a row.
func (c *calibration) check(kind string, step uint32, t, v int, from, to *momenta.State, a answer, chunks []uint32) error {
	claim, err := c.cut.Claim(from, to, momenta.Key(t), chunks)
	if err != nil {
		return err
	}
	reference := c.reference(step, t, a, chunks)
	report := reference.Check(claim)
	row := row{Kind: kind, Step: step, Trainer: c.workers[t].name, Verifier: c.workers[v].name, Fault: int(report.Fault), Error: round(report.Error)}
	row.Signs = 1
	var errs []float64
	for i, f := range report.Chunks {
		errs = append(errs, f.Error)
		sets, signs, err := c.cut.Agreement(from, to, f.Chunk, reference.Updates[i])
		if err != nil {
			return err
		}
		row.Sets, row.Signs = row.Sets+sets/float64(len(chunks)), min(row.Signs, signs)
		row.Length = max(row.Length, f.Length/reference.Longest)
	}
	row.Sets, row.Signs, row.Length = round(row.Sets), round(row.Signs), round(row.Length)
	slices.SortFunc(errs, func(a, b float64) int { return int(math.Copysign(1, b-a)) })
	for _, e := range errs[:min(4, len(errs))] {
		row.Top = append(row.Top, round(e))
	}
	if len(errs) > 0 {
		row.Middle = round(errs[len(errs)/2])
	}
	if c.Count {
		return c.count(row)
	}
	return c.write(row)
}

// count adds an honest audit to the audits of its pair. A failed audit is also written.
func (c *calibration) count(r row) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := [2]string{r.Trainer, r.Verifier}
	sum := c.counts[key]
	if sum == nil {
		sum = &row{Kind: "counted", Trainer: r.Trainer, Verifier: r.Verifier, Top: []float64{0}, Sets: 1, Signs: 1}
		c.counts[key] = sum
	}
	sum.Audits++
	sum.Step, sum.Error, sum.Top[0] = r.Step, max(sum.Error, r.Error), max(sum.Top[0], worstOf(r))
	sum.Sets, sum.Signs = min(sum.Sets, r.Sets), min(sum.Signs, r.Signs)
	if stopped([]row{r}) == 0 {
		return nil
	}
	sum.Stopped++
	r.Kind = "stopped"
	return c.log.Encode(r)
}

func (c *calibration) writeCounts() error {
	var errs []error
	for _, key := range slices.SortedFunc(maps.Keys(c.counts), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		errs = append(errs, c.write(*c.counts[key]))
	}
	return errors.Join(errs...)
}

func (c *calibration) write(r row) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Encode(r)
}

// round keeps three digits of a number, to keep logs small.
func round(x float64) float64 {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return -1
	}
	short, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	return short
}
