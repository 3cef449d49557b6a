//go:build cgo && linux

package cuda

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
	layers "github.com/psyche-go/psyche/learn/torch/cuda"
)

// TestProgram checks that programs are closed with their devices, and the errors of their kernels. The
// tests of package strict launch kernels of a program.
func TestProgram(t *testing.T) {
	d := emulated(t)
	p, err := d.Compile("text", []string{kernelFar, kernelAdd}, threads)
	if err != nil {
		t.Fatal(err)
	}
	if function, context := p.Launcher(); function == nil || context == nil {
		t.Error("no launcher")
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.Compile("text", []string{kernelFar, "unknown"}, threads); err == nil {
		t.Error("a program was compiled without one of its kernels")
	}
	for _, failure := range []string{"nvrtcCompileProgram 6", "cuModuleLoadDataEx 222"} {
		t.Setenv(cudatest.EnvFailure, failure)
		if _, err := d.Compile("text", []string{kernelFar}, threads); err == nil {
			t.Errorf("a program was compiled despite %s", failure)
		}
	}
}

// TestCompiledLayers compiles the kernels of package learn/torch/cuda with NVRTC for each architecture,
// and inspects their registers if ptxas is available.
func TestCompiledLayers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compiling takes long")
	}
	const mostRegisters, mostSpilled = 64, 16
	for _, capability := range architectures {
		t.Run(fmt.Sprintf("sm_%d", capability), func(t *testing.T) {
			ptx, err := compile(nvrtcPaths(), capability, layers.Source)
			if errors.Is(err, ErrNoCUDA) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			text := strings.TrimRight(string(ptx), "\x00")
			for _, name := range layers.Names() {
				if !strings.Contains(text, ".entry "+name+"(") {
					t.Errorf("no kernel %s", name)
				}
			}
			report := assemble(t, capability, text)
			for _, match := range ptxasRegisters.FindAllStringSubmatch(report, -1) {
				if n, err := strconv.Atoi(match[2]); err != nil || n > mostRegisters {
					t.Errorf("%s: %s registers, want at most %d", match[1], match[2], mostRegisters)
				}
			}
			for _, match := range ptxasProperties.FindAllStringSubmatch(report, -1) {
				if n, err := strconv.Atoi(match[4]); err != nil || n > mostSpilled {
					t.Errorf("%s: %s bytes of spill loads, want at most %d", match[1], match[4], mostSpilled)
				}
			}
		})
	}
}
