package torch

/*
#include "bind.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrNoDevice means that libtorch does not find a device.
var ErrNoDevice = errors.New("no such device")

// Device is the location of a tensor: CPU, or n for the n-th CUDA device.
type Device int

// CPU is the machine's own memory.
const CPU Device = -1

// String returns the name used on command lines: "cpu" or "cuda:n".
func (d Device) String() string {
	if d < 0 {
		return "cpu"
	}
	return fmt.Sprintf("cuda:%d", int(d))
}

// Choice names devices before libtorch is loaded: "auto", "cpu", "cuda", "cuda:N" or several,
// "cuda:X,Y,Z".
type Choice string

// Validate returns an error for an invalid name.
func (c Choice) Validate() error {
	_, err := c.wanted()
	return err
}

// wanted returns the named devices. For "auto" it returns the first CUDA device.
func (c Choice) wanted() ([]Device, error) {
	switch c {
	case "cpu":
		return []Device{CPU}, nil
	case "auto", "cuda":
		return []Device{0}, nil
	case "mps":
		return nil, errors.New("device mps is not supported; want auto, cpu, cuda or cuda:N")
	}
	numbers, found := strings.CutPrefix(string(c), "cuda:")
	var all []Device
	for number := range strings.SplitSeq(numbers, ",") {
		n, err := strconv.ParseUint(number, 10, 8)
		if !found || err != nil || slices.Contains(all, Device(n)) {
			return nil, fmt.Errorf("device %q: want auto, cpu, cuda, cuda:N or several different devices, cuda:X,Y,Z", string(c))
		}
		all = append(all, Device(n))
	}
	return all, nil
}

// Find returns as many devices as count says. If the choice names one device, Find returns it and the
// devices with the next numbers; otherwise it returns the named devices. All of them must exist. "auto"
// is cuda:0 if libtorch finds a CUDA device, else the CPU. For the CPU it returns one device, which all
// trainers share. Load must be called first. Errors wrap [ErrNoDevice].
func (c Choice) Find(count int) ([]Device, error) {
	named, err := c.wanted()
	if err != nil {
		return nil, err
	}
	info, err := Loaded()
	if err != nil {
		return nil, err
	}
	count = max(count, 1)
	switch {
	case named[0] == CPU || c == "auto" && info.CUDA == 0:
		return []Device{CPU}, nil
	case len(named) == 1:
		for len(named) < count {
			named = append(named, named[len(named)-1]+1)
		}
	case len(named) < count:
		return nil, fmt.Errorf("device %q names %d devices, want %d", string(c), len(named), count)
	}
	if err := info.check(slices.Max(named[:count])); err != nil {
		return nil, err
	}
	return named[:count], nil
}

// check returns an error with a remedy if a device does not exist.
func (info Info) check(d Device) error {
	switch {
	case int(d) < info.CUDA:
		return nil
	case info.CUDA == 1:
		return fmt.Errorf("torch: %w: %s: libtorch sees only cuda:0", ErrNoDevice, d)
	case info.CUDA > 1:
		return fmt.Errorf("torch: %w: %s: libtorch sees cuda:0 to cuda:%d", ErrNoDevice, d, info.CUDA-1)
	case info.ForCUDA:
		return fmt.Errorf("torch: %w: %s: libtorch %s supports CUDA but lists zero devices; check the driver (nvidia-smi) and CUDA_VISIBLE_DEVICES",
			ErrNoDevice, d, info.Version)
	default:
		return fmt.Errorf("torch: %w: %s: libtorch %s of the shim %s supports the CPU only; get a libtorch for CUDA and build the shim again: LIBTORCH=/path/to/libtorch make shim",
			ErrNoDevice, d, info.Version, info.Library)
	}
}

// DeviceInfo describes a CUDA device.
type DeviceInfo struct {
	Device Device
	Name   string // empty if the driver does not report it
	Memory uint64 // in total
}

// Devices returns the CUDA devices that libtorch finds.
func (info Info) Devices() []DeviceInfo {
	var list []DeviceInfo
	for d := range Device(info.CUDA) {
		var name [256]C.char
		var memory C.size_t
		found := DeviceInfo{Device: d}
		if C.pt_cuda_describe(C.int(d), &name[0], C.int(len(name)), &memory) != 0 {
			found.Name, found.Memory = C.GoString(&name[0]), uint64(memory)
		}
		list = append(list, found)
	}
	return list
}
