package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// processes are the modes in which this program runs itself.
var processes = map[string]func(arguments []string) error{"worker": work, "settings": printSettings}

// printSettings prints the environment variables that package torch sets, which determine the
// libraries' kernels and threads.
func printSettings(arguments []string) error {
	flags := flag.NewFlagSet("settings", flag.ExitOnError)
	threads := flags.Int("threads", 1, "threads")
	_ = flags.Parse(arguments)
	if err := torch.Load(torch.Options{Threads: *threads}); err != nil {
		return err
	}
	info, err := torch.Loaded()
	if err != nil {
		return err
	}
	for _, s := range info.Settings {
		if s.Source == "psyche" {
			fmt.Printf("%s=%s\n", s.Name, s.Value)
		}
	}
	return nil
}

// work is the Psyche process; it uses the same protocol as reference.py.
func work(arguments []string) (err error) {
	flags := flag.NewFlagSet("worker", flag.ExitOnError)
	path := flags.String("config", "", "config.json")
	dtype := flags.String("dtype", "f32", "f32 or bf16")
	batch := flags.Int64("batch", 1, "sequences")
	tokens := flags.Int64("tokens", 512, "tokens of a sequence")
	threads := flags.Int("threads", 1, "threads")
	device := flags.String("device", "cpu", "where to compute")
	recompute := flags.Bool("recompute", false, "compute activations twice")
	_ = flags.Parse(arguments)

	ctx := context.Background()
	if err := torch.Load(torch.Options{Threads: *threads}); err != nil {
		return err
	}
	devices, err := torch.Choice(*device).Find(1)
	if err != nil {
		return err
	}
	engine, err := torch.NewEngine(devices[0])
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }()
	config, err := os.ReadFile(*path)
	if err != nil {
		return err
	}
	o, compute := model.Options{Recompute: *recompute}, torch.F32
	if *dtype == "bf16" {
		compute = torch.BF16
		o.Compute = compute
	}
	network, err := build(ctx, engine, config, o)
	if err != nil {
		return err
	}
	gpu, err := openGPU(devices[0], network)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gpu.close()) }()
	debug.FreeOSMemory() // memory from building the model
	ids := make([]int32, *batch**tokens)
	targets := make([]int32, len(ids))
	random := rand.New(rand.NewPCG(1, 2))
	for i := range ids {
		ids[i], targets[i] = random.Int32N(int32(network.VocabSize())), random.Int32N(int32(network.VocabSize()))
	}
	fmt.Println("ready")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		gpu.step()
		begin, cpu, loss := time.Now(), processorTime(), 0.0
		err := engine.Do(ctx, true, func(s *torch.Scope) error {
			loss = network.Gradient(s, s.FromInt32s(ids, *batch, *tokens), s.FromInt32s(targets, *batch, *tokens), 1).Item()
			for _, p := range network.Parameters() {
				p.Tensor.ClearGrad()
			}
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Println(time.Since(begin).Seconds(), processorTime()-cpu, loss)
	}
	peak, err := peakMemory()
	if err != nil {
		return err
	}
	product, err := productFLOPs(ctx, engine, devices[0], compute)
	fmt.Println(peak, product)
	return err
}

func build(ctx context.Context, engine *torch.Engine, config []byte, o model.Options) (model.Model, error) {
	tensors, err := model.Init(config, 1)
	if err != nil {
		return nil, err
	}
	return model.New(ctx, engine, config, o, tensors)
}

// processorTime returns the CPU time of all threads of the process, in seconds.
func processorTime() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

// peakMemory returns the peak resident memory, in KiB.
func peakMemory() (string, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			return strings.Fields(rest)[0], nil
		}
	}
	return "", errors.New("/proc/self/status has no VmHWM")
}
