package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/torch"
)

type doctorCommand struct {
	Threads threadCount `placeholder:"N" help:"Threads of libtorch. 0 uses OMP_NUM_THREADS, or else one thread per CPU."`

	libraryFlags `embed:""`
	memoryFlags  `embed:"" group:"Memory of a training:"`
}

// Run prints the components that training on this machine would use. Its error lists missing ones.
func (c *doctorCommand) Run(ctx context.Context, t terminal) error {
	var text strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&text, "%-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("program", "psyche-client, %s, %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	row("CPUs", "%d", runtime.NumCPU())
	kernel, kernelErr := distro.NewKernel(distro.Options{})
	if kernelErr == nil {
		row("DisTrO kernel", "%s", kernel.ISA())
	}
	loadErr := c.load(c.Threads, nil)
	if loadErr == nil {
		if err := describeTorch(ctx, row); err != nil {
			return err
		}
	}
	for _, f := range findParts("/", loadErr).fixes() {
		row("missing", "%s", f.missing)
		row("  run", "%s", f.command)
	}
	predictErr := c.predict(row)
	if _, err := fmt.Fprint(t.Out, text.String()); err != nil {
		return err
	}
	if err := errors.Join(kernelErr, loadErr, predictErr); err != nil {
		return err
	}
	_, err := fmt.Fprintf(t.Out, "%-22s %s\n", "next", "psyche-client join LINK, to train with others; psyche-client solo --help, alone")
	return err
}

func describeTorch(ctx context.Context, row func(name, format string, args ...any)) error {
	info, err := torch.Loaded()
	if err != nil {
		return err
	}
	row("shim", "%s", info.Library)
	row("libtorch", "%s, vector instructions: %s", info.Version, info.Capability)
	row("BLAS", "%s", orElse(info.BLAS, "part of libtorch"))
	if info.Kernels != "" {
		row("BLAS kernels", "%s", info.Kernels)
	}
	row("threads", "%d", info.Threads)
	if got, err := loopThreads(ctx); err != nil {
		row("warning", "libtorch does not compute: %v", err)
	} else if got < info.Threads {
		row("warning", "the shim's own loops run on %d of %d threads: OMP_THREAD_LIMIT or OMP_DYNAMIC is set, or it was not built with g++ (CXX=g++ make shim)",
			got, info.Threads)
	}
	describeDevices(row, info)
	for _, setting := range info.Settings {
		source := setting.Source
		if setting.Reason != "" {
			source += ": " + setting.Reason
		}
		row("  "+setting.Name, "%s (%s)", orElse(setting.Value, "-"), source)
	}
	for _, warning := range info.Warnings {
		row("warning", "%s", warning)
	}
	return nil
}

func loopThreads(ctx context.Context) (threads int, err error) {
	engine, err := torch.NewEngine(torch.CPU)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	return engine.LoopThreads(ctx)
}

func describeDevices(row func(name, format string, args ...any), info torch.Info) {
	if info.ForCUDA {
		row("CUDA devices", "%d", info.CUDA)
	} else {
		row("CUDA devices", "%d (this libtorch is for the CPU only)", info.CUDA)
	}
	for _, device := range info.Devices() {
		if device.Name == "" {
			row("  "+device.Device.String(), "the driver reports no name")
		} else {
			row("  "+device.Device.String(), "%s, %s", device.Name, diskspace.Format(device.Memory))
		}
	}
	if devices, err := torch.Choice("auto").Find(1); err == nil {
		row("--device auto", "%s", devices[0])
	}
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
