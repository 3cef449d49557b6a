package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/learn/torch"
)

// options are the flags of the program.
type options struct {
	Model   string `default:"proof/bench/distro/model.json" type:"existingfile" help:"config.json of the model that provides the tensors."`
	Threads []int  `default:"1,2" help:"Threads of both sides of the comparison with PyTorch."`
	TopK    int    `name:"topk" default:"8" help:"Coefficients sent per chunk."`
	Chunk   int    `default:"64" help:"Side length of a chunk."`
	Peers   int    `default:"3" help:"Results applied together."`
	Rounds  int    `default:"7" help:"Repetitions of each side."`

	Python    string `default:"/usr/bin/python3" help:"Python interpreter with PyTorch; empty skips the comparison."`
	Reference string `default:"proof/bench/distro/reference.py" type:"existingfile" help:"Script of the PyTorch side."`

	Sequences   int `default:"8" help:"Sequences of the training step."`
	SeqLen      int `default:"512" help:"Tokens of a sequence in the training step."`
	Steps       int `default:"2" help:"Training steps; 0 skips them."`
	StepThreads int `default:"1" help:"Threads of the training step."`

	Device       torch.Choice `default:"cpu" help:"Device of the training step: cpu, cuda or cuda:N."`
	ComputeDtype string       `default:"f32" enum:"f32,bf16" help:"Element type for computing the gradient."`
}

func main() {
	ctx, stop := signals.Context()
	defer stop()
	var o options
	parsed := kong.Parse(&o, kong.Name("distro"), kong.Description("What the DisTrO optimizer costs."))
	parsed.FatalIfErrorf(o.run(ctx))
}

func (o options) run(ctx context.Context) error {
	m, err := newModel(o)
	if err != nil {
		return err
	}
	fmt.Printf("model of %.1f M parameters in %d tensors; top %d of chunks of %d×%d; %d peers; median of %d turns\n\n",
		float64(m.parameters)/1e6, len(m.shapes), o.TopK, o.Chunk, o.Chunk, o.Peers, o.Rounds)
	for _, threads := range o.Threads {
		if err := o.compare(ctx, m, threads); err != nil {
			return err
		}
	}
	if o.Steps == 0 {
		return nil
	}
	return o.step(ctx, m)
}

// bar prints a result next to its target.
func bar(label string, value float64, format string, good bool, want string) {
	verdict := "met"
	if !good {
		verdict = "NOT met"
	}
	fmt.Printf("%-58s "+format+"   (bar %s: %s)\n", label, value, want, verdict)
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

// cost is the time of some work in seconds. On a busy machine only cpu is meaningful.
type cost struct{ wall, cpu float64 }

// timed returns the cost of f, if this process does nothing else meanwhile.
func timed(f func() error) (cost, error) {
	start, cpu := time.Now(), cpuTime()
	err := f()
	return cost{time.Since(start).Seconds(), cpuTime() - cpu}, err
}

// cpuTime returns the CPU time of this process in seconds.
func cpuTime() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return math.NaN()
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// medians returns the median of each time.
func medians(costs []cost) cost {
	var wall, cpu []float64
	for _, c := range costs {
		wall, cpu = append(wall, c.wall), append(cpu, c.cpu)
	}
	return cost{median(wall), median(cpu)}
}
