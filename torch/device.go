package torch

/*
#include "bind.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrNoDevice says that libtorch does not see a device.
var ErrNoDevice = errors.New("no such device")

// Device says where a tensor lives: CPU, or n for the n-th CUDA device.
type Device int

// CPU is the host's own memory.
const CPU Device = -1

// String gives the name used on command lines: "cpu" or "cuda:n".
func (d Device) String() string {
	if d < 0 {
		return "cpu"
	}
	return fmt.Sprintf("cuda:%d", int(d))
}

// Choice names a device to be found once libtorch is loaded: "auto", "cpu", "cuda" or
// "cuda:N".
type Choice string

// Validate refuses other names.
func (c Choice) Validate() error {
	_, err := c.wanted()
	return err
}

// wanted is the device named; for "auto" the first CUDA device.
func (c Choice) wanted() (Device, error) {
	switch c {
	case "cpu":
		return CPU, nil
	case "auto", "cuda":
		return 0, nil
	}
	number, found := strings.CutPrefix(string(c), "cuda:")
	n, err := strconv.ParseUint(number, 10, 8)
	if !found || err != nil {
		return CPU, fmt.Errorf("device %q: want auto, cpu, cuda or cuda:N", string(c))
	}
	return Device(n), nil
}

// Find gives the first of count devices in a row, which must all be there. "auto" is
// cuda:0 if libtorch sees a CUDA device, else the CPU; the CPU counts as any number.
// Load comes first. Errors wrap [ErrNoDevice].
func (c Choice) Find(count int) (Device, error) {
	first, err := c.wanted()
	if err != nil {
		return CPU, err
	}
	info, err := Loaded()
	if err != nil {
		return CPU, err
	}
	if first == CPU || c == "auto" && info.CUDA == 0 {
		return CPU, nil
	}
	if err := info.check(first + Device(max(count, 1)) - 1); err != nil {
		return CPU, err
	}
	return first, nil
}

// check tells whether a device is there, and what to do if not.
func (info Info) check(d Device) error {
	switch {
	case int(d) < info.CUDA:
		return nil
	case info.CUDA == 1:
		return fmt.Errorf("torch: %w: %s: libtorch sees only cuda:0", ErrNoDevice, d)
	case info.CUDA > 1:
		return fmt.Errorf("torch: %w: %s: libtorch sees cuda:0 to cuda:%d", ErrNoDevice, d, info.CUDA-1)
	case info.ForCUDA:
		return fmt.Errorf("torch: %w: %s: libtorch %s is made for CUDA but sees no device; look at the driver (nvidia-smi) and at CUDA_VISIBLE_DEVICES",
			ErrNoDevice, d, info.Version)
	default:
		return fmt.Errorf("torch: %w: %s: libtorch %s, which the shim %s was built against, is for the CPU only; get one that is made for CUDA and build another shim: LIBTORCH=/path/to/libtorch make shim",
			ErrNoDevice, d, info.Version, info.Library)
	}
}

// DeviceInfo describes a CUDA device.
type DeviceInfo struct {
	Device Device
	Name   string // empty if the driver does not tell
	Memory uint64 // bytes in all
}

// Devices lists the CUDA devices that libtorch sees.
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
