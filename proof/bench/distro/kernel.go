package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/model"
)

// tensors is a model as the optimizer sees it.
type tensors struct {
	snapshot   checkpoint.Snapshot
	shapes     [][]int64
	layouts    []distro.Layout
	codecs     []codec.TensorLayout
	parameters int

	weights, momenta, gradients [][]float32
	received                    [][]codec.TensorResult // by tensor, of each peer
}

func newModel(o options) (*tensors, error) {
	configuration, err := os.ReadFile(o.Model)
	if err != nil {
		return nil, err
	}
	initial, err := model.Init(configuration, 1)
	if err != nil {
		return nil, err
	}
	m := &tensors{snapshot: checkpoint.Snapshot{
		Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: configuration}}, Tensors: initial,
	}}
	random := rand.New(rand.NewPCG(1, 0))
	for _, tensor := range initial {
		layout, err := distro.NewLayout(tensor.Shape, o.Chunk)
		if err != nil {
			return nil, err
		}
		weights, err := tensor.Float32s()
		if err != nil {
			return nil, err
		}
		gradients := make([]float32, len(weights))
		for i := range gradients {
			gradients[i] = float32(random.NormFloat64())
		}
		m.shapes, m.layouts = append(m.shapes, tensor.Shape), append(m.layouts, layout)
		m.codecs = append(m.codecs, layout.Codec(o.TopK))
		m.weights, m.gradients = append(m.weights, weights), append(m.gradients, gradients)
		m.momenta = append(m.momenta, make([]float32, len(weights)))
		m.parameters += len(weights)
	}
	return m, nil
}

func (t *tensors) encode(kernel *distro.Kernel, topK int) ([]codec.TensorResult, error) {
	results := make([]codec.TensorResult, len(t.layouts))
	var err error
	for i, layout := range t.layouts {
		if results[i], err = kernel.Encode(layout, t.momenta[i], t.gradients[i], distro.EncodeParams{Decay: 0.999, LR: 4e-4, TopK: topK}); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (t *tensors) apply(kernel *distro.Kernel) error {
	for i, layout := range t.layouts {
		if err := kernel.DecodeApply(layout, t.received[i], t.weights[i], distro.ApplyParams{LR: 4e-4, WeightFactor: 1}); err != nil {
			return err
		}
	}
	return nil
}

// receive makes the results of the peers, as a codec returns them.
func (t *tensors) receive(kernel *distro.Kernel, o options) error {
	t.received = make([][]codec.TensorResult, len(t.layouts))
	for range o.Peers {
		sent, err := t.encode(kernel, o.TopK)
		if err != nil {
			return err
		}
		payload, err := codec.Encode(codec.Header{BatchEnd: 1}, t.codecs, true, sent)
		if err != nil {
			return err
		}
		_, results, err := codec.Decode(payload, t.codecs, true)
		if err != nil {
			return err
		}
		for i, result := range results {
			t.received[i] = append(t.received[i], result)
		}
	}
	return nil
}

// compare makes the kernel, PyTorch and plain memory copies take turns.
func (o options) compare(ctx context.Context, m *tensors, threads int) error {
	kernel, err := distro.NewKernel(distro.Options{Threads: threads})
	if err != nil {
		return err
	}
	if err := m.receive(kernel, o); err != nil {
		return err
	}
	var other *reference
	if o.Python != "" {
		if other, err = o.start(ctx, m, threads); err != nil {
			return fmt.Errorf("%s %s: %w (to skip the comparison: --python=)", o.Python, o.Reference, err)
		}
		defer other.stop()
	}
	own, theirs, ratios := map[string][]cost{}, map[string][]cost{}, map[string][]cost{}
	memory := newMemory(m.parameters)
	var copies []cost
	for range o.Rounds {
		for _, work := range []string{"encode", "decode"} {
			mine, err := timed(func() error {
				if work == "decode" {
					return m.apply(kernel)
				}
				_, err := m.encode(kernel, o.TopK)
				return err
			})
			if err != nil {
				return err
			}
			own[work] = append(own[work], mine)
			if other == nil {
				continue
			}
			answer, err := other.do(work)
			if err != nil {
				return err
			}
			theirs[work] = append(theirs[work], answer)
			ratios[work] = append(ratios[work], cost{answer.wall / mine.wall, answer.cpu / mine.cpu})
		}
		copying, err := timed(func() error { memory.copy(threads); return nil })
		if err != nil {
			return err
		}
		copies = append(copies, copying)
	}
	// A copy reads and writes. Encoding reads two numbers and writes one for each parameter,
	// decoding reads and writes one.
	floor := map[string]float64{"encode": 1.5 * medians(copies).cpu, "decode": medians(copies).cpu}
	scale := 1e3 * 1e8 / float64(m.parameters)
	fmt.Printf("%d threads, kernel %s; ms for 100 M parameters, elapsed (CPU)\n", threads, kernel.ISA())
	for _, work := range []string{"encode", "decode"} {
		mine := medians(own[work])
		fmt.Printf("  %s %.0f (%.0f); only copying the numbers (%.0f): %.0f %% of it\n",
			work, mine.wall*scale, mine.cpu*scale, floor[work]*scale, 100*floor[work]/mine.cpu)
		if other == nil {
			continue
		}
		their, ratio := medians(theirs[work]), medians(ratios[work])
		fmt.Printf("  %s in PyTorch %s %.0f (%.0f)\n", work, other.version, their.wall*scale, their.cpu*scale)
		bar("  "+work+": PyTorch's CPU time / ours", ratio.cpu, "%6.1f", ratio.cpu >= 8, "≥ 8")
		fmt.Printf("    elapsed %.1f\n", ratio.wall)
	}
	fmt.Println()
	return nil
}

// memory is two arrays as large as the model.
type memory struct{ from, to []float32 }

func newMemory(n int) memory { return memory{make([]float32, n), make([]float32, n)} }

func (m memory) copy(threads int) {
	var all sync.WaitGroup
	for i := range threads {
		first, last := len(m.from)*i/threads, len(m.from)*(i+1)/threads
		all.Go(func() { copy(m.to[first:last], m.from[first:last]) })
	}
	all.Wait()
}

// reference is the PyTorch process.
type reference struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	version string
}

func (o options) start(ctx context.Context, m *tensors, threads int) (*reference, error) {
	version, err := exec.CommandContext(ctx, o.Python, "-c", "import torch; print(torch.__version__)").Output()
	if err != nil {
		return nil, err
	}
	r := &reference{command: exec.CommandContext(ctx, o.Python, o.Reference), version: strings.TrimSpace(string(version))}
	r.command.Stderr = os.Stderr
	r.command.Env = append(os.Environ(), fmt.Sprintf("OMP_NUM_THREADS=%d", threads), "GOMP_SPINCOUNT=10000", "PYTHONWARNINGS=ignore")
	if r.in, err = r.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewScanner(out)
	if err := r.command.Start(); err != nil {
		return nil, err
	}
	task, err := json.Marshal(map[string]any{"shapes": m.shapes, "threads": threads, "chunk": o.Chunk, "topk": o.TopK, "peers": o.Peers})
	if err == nil {
		_, err = r.ask(string(task))
	}
	if err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

func (r *reference) ask(line string) (string, error) {
	if _, err := fmt.Fprintln(r.in, line); err != nil {
		return "", err
	}
	if !r.out.Scan() {
		return "", errors.Join(errors.New("no answer"), r.out.Err())
	}
	return r.out.Text(), nil
}

func (r *reference) do(work string) (cost, error) {
	answer, err := r.ask(work)
	if err != nil {
		return cost{}, err
	}
	var c cost
	if _, err := fmt.Sscan(answer, &c.wall, &c.cpu); err != nil {
		return cost{}, fmt.Errorf("answer %q: %w", answer, err)
	}
	return c, nil
}

func (r *reference) stop() {
	_ = r.in.Close()
	_ = r.command.Wait()
}
