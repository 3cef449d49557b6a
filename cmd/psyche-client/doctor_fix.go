package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/torch"
)

// parts are the parts of the system that training on a GPU needs, as the doctor finds them.
type parts struct {
	card    bool   // there is an NVIDIA GPU
	driver  bool   // the GPU's driver is loaded
	system  string // ID in /etc/os-release, such as "debian"
	library error  // of loading libtorch
	torch   torch.Info
	kernels error // of opening the optimizer's kernels on the first device
}

// findParts finds the parts below the folder root. library is the error of loading libtorch.
func findParts(root string, library error) parts {
	p := parts{library: library, system: systemID(root)}
	vendors, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*/vendor"))
	for _, vendor := range vendors {
		class, _ := os.ReadFile(filepath.Join(filepath.Dir(vendor), "class"))
		id, _ := os.ReadFile(vendor)
		p.card = p.card || bytes.HasPrefix(id, []byte("0x10de")) && bytes.HasPrefix(class, []byte("0x03"))
	}
	_, err := os.Stat(filepath.Join(root, "proc/driver/nvidia/version"))
	p.driver = err == nil
	if library != nil {
		return p
	}
	if info, err := torch.Loaded(); err == nil {
		p.torch = info
	}
	if p.torch.CUDA > 0 {
		device, err := cuda.Open(0)
		if err == nil {
			err = device.Close()
		}
		p.kernels = err
	}
	return p
}

// systemID returns the ID of the operating system below the folder root; "" if unknown.
func systemID(root string) string {
	text, _ := os.ReadFile(filepath.Join(root, "etc/os-release"))
	for line := range strings.Lines(string(text)) {
		if id, found := strings.CutPrefix(strings.TrimSpace(line), "ID="); found {
			return strings.Trim(id, `"'`)
		}
	}
	return ""
}

// fix is a missing part and the command that adds it.
type fix struct{ missing, command string }

// fixes lists the missing parts. Parts that every training needs come first.
func (p parts) fixes() (all []fix) {
	add := func(missing, command string) { all = append(all, fix{missing, command}) }
	switch {
	case errors.Is(p.library, torch.ErrStaleLibrary):
		add("a shim for this program", "make shim")
	case torch.Missing(p.library) && p.driver:
		add("libtorch for CUDA, and its shim", "make cuda")
	case torch.Missing(p.library):
		add("libtorch and its shim", "make build")
	}
	switch {
	case p.card && !p.driver && p.torch.CUDA == 0:
		add("the driver of the GPU", p.driverCommand())
	case p.driver && p.library == nil && !p.torch.ForCUDA:
		add("libtorch for CUDA: this libtorch supports only CPUs", "make cuda")
	case p.driver && p.torch.ForCUDA && p.torch.CUDA == 0:
		add("a device that libtorch finds: CUDA_VISIBLE_DEVICES may hide the devices, or the driver may be too old for this libtorch",
			"unset CUDA_VISIBLE_DEVICES; nvidia-smi")
	}
	if p.torch.CUDA > 0 && p.kernels != nil {
		add("the optimizer's kernels ("+p.kernels.Error()+")",
			"python3 -m pip install --target nvrtc nvidia-cuda-nvrtc && export "+cuda.EnvNVRTC+"=$(dirname $PWD/nvrtc/nvidia/*/lib/libnvrtc.so.*) && export LD_LIBRARY_PATH=$"+cuda.EnvNVRTC)
	}
	return all
}

// driverCommand returns the command that installs the driver.
func (p parts) driverCommand() string {
	switch p.system {
	case "ubuntu":
		return "sudo ubuntu-drivers install"
	case "debian":
		return "sudo apt-get install nvidia-driver    (enable the section non-free first)"
	}
	return "install the driver from https://www.nvidia.com/drivers"
}
