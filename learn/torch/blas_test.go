package torch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

func TestBetterKernels(t *testing.T) {
	for _, c := range []struct {
		chosen       string
		avx2, avx512 bool
		want         string
	}{
		{"Prescott", true, true, "SkylakeX"},
		{"PRESCOTT", true, true, "SkylakeX"},
		{"Prescott", true, false, "Haswell"},
		{"Prescott", false, false, ""}, // the processor may be a Prescott
		{"Haswell", true, true, ""},    // OpenBLAS knows the processor and had a reason not to use AVX-512
		{"Zen", true, true, ""},
		{"Cooperlake", true, true, ""},
		{"SapphireRapids", true, true, ""},
		{"SkylakeX", true, true, ""},
		{"Nehalem", true, false, ""},
		{"armv8", false, false, ""},
		{"", true, true, ""}, // no OpenBLAS
	} {
		if got := torch.BetterKernels(c.chosen, c.avx2, c.avx512); got != c.want {
			t.Errorf("OpenBLAS chose %q, AVX2 %v, AVX-512 %v: %q, want %q", c.chosen, c.avx2, c.avx512, got, c.want)
		}
	}
}

// TestKernelsOfThisCPU checks that libtorch's OpenBLAS uses this CPU's vectors if the user selected
// no kernels.
func TestKernelsOfThisCPU(t *testing.T) {
	torchtest.Load(t)
	if !torch.HasAVX2() {
		t.Skip("this CPU has no AVX2 and FMA")
	}
	r := loadInAProcess(t, "keep", "")
	switch {
	case r.Error != "":
		t.Fatal(r.Error)
	case r.Info.Kernels == "":
		t.Skipf("the BLAS is not OpenBLAS: %s", r.Info.BLAS)
	case !strings.Contains(r.Info.BLAS, "openblas-openmp"):
		t.Skipf("Load does not open this OpenBLAS first: %s", r.Info.BLAS)
	case r.Info.Kernels == "Prescott":
		t.Errorf("OpenBLAS computes with kernels for Prescott; %+v", setting(t, r.Info, "OPENBLAS_CORETYPE"))
	}
	if empty := loadInAProcess(t, "keep", "", "OPENBLAS_CORETYPE="); empty.Info.Kernels != r.Info.Kernels {
		t.Errorf("kernels %q with an empty variable, %q without it", empty.Info.Kernels, r.Info.Kernels)
	}
}

// TestPreloadInAProcess is a helper, run in a separate process, because a process can open OpenBLAS
// only once.
func TestPreloadInAProcess(t *testing.T) {
	folder := os.Getenv("PSYCHE_TEST_PRELOAD")
	if folder == "" {
		t.Skip("run by TestPreloadBLAS")
	}
	report{Info: torch.PreloadBLAS(folder)}.print(t)
}

// likeOpenBLAS is a library that chooses once, when it is opened: by the variable or as CHOICE
// sets.
const likeOpenBLAS = `
#include <stdlib.h>
static const char *chosen;
__attribute__((constructor)) static void choose(void) {
  chosen = getenv("OPENBLAS_CORETYPE");
  if (!chosen) chosen = CHOICE;
}
const char *openblas_get_corename(void) { return chosen; }
`

// TestPreloadBLAS uses fake OpenBLAS libraries, for processors that OpenBLAS knows and does not
// know. The CPU of the test machine has no effect.
func TestPreloadBLAS(t *testing.T) {
	for _, c := range []struct {
		name, choice string
		flags, env   []string
		kernels      string
		source       string
		warning      string // the setting that a warning names
	}{
		{name: "known", choice: "Zen", kernels: "Zen", source: "unset"},
		{name: "unknown", choice: "Prescott", kernels: "Haswell", source: "psyche"},
		{name: "the user's", choice: "Prescott", env: []string{"OPENBLAS_CORETYPE=Prescott"},
			kernels: "Prescott", source: "environment", warning: "OPENBLAS_CORETYPE=Prescott"},
		{name: "cannot be closed", choice: "Prescott", flags: []string{"-Wl,-z,nodelete"},
			kernels: "Prescott", source: "psyche", warning: "OPENBLAS_CORETYPE=Haswell"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			for _, name := range []string{"libopenblas.so.0", "libblas.so.3", "liblapack.so.3"} {
				text := ""
				if name == "libopenblas.so.0" {
					text = strings.ReplaceAll(likeOpenBLAS, "CHOICE", `"`+c.choice+`"`)
				}
				compileLibrary(t, filepath.Join(folder, name), text, c.flags...)
			}
			r := inAProcess(t, "TestPreloadInAProcess", "", append(c.env, "PSYCHE_TEST_PRELOAD="+folder)...)
			got := setting(t, r.Info, "OPENBLAS_CORETYPE")
			if r.Info.Kernels != c.kernels || got.Source != c.source || (got.Reason != "") != (c.source == "psyche") {
				t.Errorf("kernels %q, want %q; %+v, want source %q", r.Info.Kernels, c.kernels, got, c.source)
			}
			warnings := strings.Join(r.Info.Warnings, "\n")
			if (warnings != "") != (c.warning != "") || !strings.Contains(warnings, c.warning) {
				t.Errorf("warnings %q, want %q", warnings, c.warning)
			}
		})
	}
}

// TestOpenBLASFolder checks that a shim with its own libraries uses no other OpenBLAS.
func TestOpenBLASFolder(t *testing.T) {
	dir := t.TempDir()
	shim, own := filepath.Join(dir, "libpsyche_torch.so"), filepath.Join(dir, "libtorch")
	if got := torch.OpenBLASFolder(shim); got != "" && !strings.HasPrefix(got, "/usr/lib/") {
		t.Errorf("without its own libraries: %q", got)
	}
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := torch.OpenBLASFolder(shim); got != "" {
		t.Errorf("its own libraries contain no OpenBLAS: %q", got)
	}
	if err := os.WriteFile(filepath.Join(own, "libopenblas.so.0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := torch.OpenBLASFolder(shim); got != own {
		t.Errorf("%q, want %q", got, own)
	}
}

// compileLibrary compiles a C source to a library. It skips the test if there is no compiler.
func compileLibrary(t *testing.T, library, text string, flags ...string) {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is needed to make a library")
	}
	source := library + ".c"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), gcc, append([]string{"-shared", "-fPIC", "-o", library, source}, flags...)...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
