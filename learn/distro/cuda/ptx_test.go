//go:build cgo && linux

package cuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floatArithmetic matches the instructions of a compiled kernel that compute with floats.
var floatArithmetic = regexp.MustCompile(`(?m)^\s*(?:@\S+\s+)?((?:add|sub|mul|mad|fma|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh)\.\S*(?:f16|bf16|f32|f64)\S*)`)

// architectures are the compute capabilities for which the kernels must compile.
var architectures = []int{75, 80, 86, 89, 90, 100, 120}

// TestCompiledKernels compiles the kernels with NVRTC, which needs no device, for each architecture.
// It inspects their arithmetic and, if ptxas is available, their registers.
func TestCompiledKernels(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compiling takes long")
	}
	for _, capability := range architectures {
		t.Run(fmt.Sprintf("sm_%d", capability), func(t *testing.T) {
			ptx, err := compile(nvrtcPaths(), capability, source())
			if errors.Is(err, ErrNoCUDA) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			text := strings.TrimRight(string(ptx), "\x00")
			if target := fmt.Sprintf(".target sm_%d", capability); !strings.Contains(text, target) {
				t.Skipf("this NVRTC has no %s", target)
			}
			for _, name := range kernelNames {
				if !strings.Contains(text, ".entry "+name+"(") {
					t.Errorf("no kernel %s", name)
				}
			}
			checkArithmetic(t, text)
			t.Run("ptxas", func(t *testing.T) { checkResources(t, capability, text) })
		})
	}
}

// checkArithmetic allows only additions, subtractions, products, quotients and roots that round to
// nearest and keep subnormal numbers. The driver's own compiler could contract an instruction without
// .rn.
func checkArithmetic(t *testing.T, ptx string) {
	t.Helper()
	found := map[string]int{}
	for _, match := range floatArithmetic.FindAllStringSubmatch(ptx, -1) {
		found[match[1]]++
	}
	t.Log(found)
	for _, want := range []string{
		"add.rn.f32", "sub.rn.f32", "mul.rn.f32", "div.rn.f32", "sqrt.rn.f32", "add.rn.f64", "mul.rn.f64", "div.rn.f64", "sqrt.rn.f64",
	} {
		if found[want] == 0 {
			t.Errorf("no %s: was anything compiled?", want)
		}
		delete(found, want)
	}
	if len(found) > 0 {
		t.Errorf("arithmetic that differs from a CPU's: %v", found)
	}
}

// transforming kernels contain the transforms, which hold a line of a chunk in registers.
var transforming = []string{kernelApply, kernelAdd, kernelEncode}

var (
	ptxasProperties = regexp.MustCompile(`(?s)Function properties for (\S+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	ptxasRegisters  = regexp.MustCompile(`(?s)Compiling entry function '(\S+)'.*?Used (\d+) registers`)
)

// maxRegisters is the maximum number of registers of a kernel without transforms, and maxTransforming with them. The
// kernels need up to 64 and 187 with NVRTC 13.5; other versions may need a few more.
const maxRegisters, maxTransforming = 72, 200

// maxSpilled is the maximum number of bytes that a kernel with transforms loads again after their calls. The kernels
// need up to 36 with NVRTC 13.5, on sm_120.
const maxSpilled = 64

// checkResources assembles PTX. Other functions must not spill registers.
func checkResources(t *testing.T, capability int, ptx string) {
	report := assemble(t, capability, ptx)
	spills := map[string]string{}
	for _, match := range ptxasProperties.FindAllStringSubmatch(report, -1) {
		spills[match[1]] = match[4]
		if spilled, err := strconv.Atoi(match[4]); err != nil || spilled > 0 && (spilled > maxSpilled || !slices.Contains(transforming, match[1])) {
			t.Errorf("%s: %s bytes of spill loads", match[1], match[4])
		}
	}
	kernels := ptxasRegisters.FindAllStringSubmatch(report, -1)
	if len(kernels) != len(kernelNames) {
		t.Errorf("ptxas reports %d kernels, want %d:\n%s", len(kernels), len(kernelNames), report)
	}
	for _, match := range kernels {
		t.Logf("%s: %s registers, %s bytes of spill loads", match[1], match[2], spills[match[1]])
		limit := maxRegisters
		if slices.Contains(transforming, match[1]) {
			limit = maxTransforming
		}
		if registers, err := strconv.Atoi(match[2]); err != nil || registers > limit {
			t.Errorf("%s: %s registers", match[1], match[2])
		}
	}
}

// assemble returns the report of ptxas, or skips the test if ptxas is not available.
func assemble(t *testing.T, capability int, ptx string) string {
	t.Helper()
	ptxas, err := exec.LookPath("ptxas")
	for _, nvrtc := range nvrtcPaths() {
		near := filepath.Join(filepath.Dir(nvrtc), "..", "bin", "ptxas")
		if _, missing := os.Stat(near); err != nil && filepath.IsAbs(nvrtc) && missing == nil {
			ptxas, err = near, nil
		}
	}
	if err != nil {
		t.Skipf("ptxas is neither in PATH nor next to NVRTC: %v", err)
	}
	file := filepath.Join(t.TempDir(), "kernels.ptx")
	if err := os.WriteFile(file, []byte(ptx), 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := exec.Command(ptxas, "-v", fmt.Sprintf("-arch=sm_%d", capability), "-o", os.DevNull, file).CombinedOutput()
	if err != nil {
		t.Fatalf("ptxas: %v\n%s", err, report)
	}
	return string(report)
}

// TestThePatternFindsContraction checks that the test above can fail.
func TestThePatternFindsContraction(t *testing.T) {
	for _, line := range []string{
		"\tfma.rn.f32 \t%f1, %f2, %f3, %f4;", "  @%p1 fma.rn.ftz.f32 %f1, %f2, %f3, %f4;", "\tadd.ftz.f32 %f1, %f2, %f3;",
		"\tmad.f32 %f1, %f2, %f3, %f4;", "\tdiv.full.f32 %f1, %f2, %f3;", "\tadd.f64 %fd1, %fd2, %fd3;",
	} {
		if !floatArithmetic.MatchString(line) {
			t.Errorf("not found: %s", line)
		}
	}
	if line := "\tmad.lo.s32 %r1, %r2, %r3, %r4;"; floatArithmetic.MatchString(line) {
		t.Errorf("found: %s", line)
	}
}
