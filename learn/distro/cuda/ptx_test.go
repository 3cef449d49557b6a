//go:build cgo && linux

package cuda

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// floatArithmetic matches the instructions of a compiled kernel that compute with floats.
var floatArithmetic = regexp.MustCompile(`(?m)^\s*(?:@\S+\s+)?((?:add|sub|mul|mad|fma|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh)\.\S*(?:f16|bf16|f32|f64)\S*)`)

// TestCompiledKernelsRoundEveryOperation compiles the kernels with NVRTC, which needs no device,
// and inspects all arithmetic. Only additions, subtractions, products and quotients that round to
// nearest and keep subnormal numbers are allowed. The driver's own compiler could contract an
// instruction without .rn.
func TestCompiledKernelsRoundEveryOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compiling takes long")
	}
	for _, capability := range []int{80, 90} {
		ptx, err := compile(nvrtcPaths(), capability)
		if errors.Is(err, ErrNoCUDA) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		text := string(ptx)
		if target := fmt.Sprintf(".target sm_%d", capability); !strings.Contains(text, target) {
			t.Errorf("compute capability %d: the PTX does not contain %s", capability, target)
		}
		for _, name := range kernelNames {
			if !strings.Contains(text, ".entry "+name+"(") {
				t.Errorf("compute capability %d: no kernel %s", capability, name)
			}
		}
		found := map[string]int{}
		for _, match := range floatArithmetic.FindAllStringSubmatch(text, -1) {
			found[match[1]]++
		}
		t.Logf("compute capability %d: %v", capability, found)
		for _, want := range []string{"add.rn.f32", "sub.rn.f32", "mul.rn.f32", "div.rn.f32", "add.rn.f64", "mul.rn.f64", "div.rn.f64", "sqrt.rn.f64"} {
			if found[want] == 0 {
				t.Errorf("compute capability %d: no %s: was anything compiled?", capability, want)
			}
			delete(found, want)
		}
		if len(found) > 0 {
			t.Errorf("compute capability %d: arithmetic that differs from a CPU's: %v", capability, found)
		}
	}
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
