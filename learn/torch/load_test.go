package torch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// report is the result of Load in a separate process.
type report struct {
	Info    torch.Info
	Error   string
	Missing bool
	Stale   bool
}

const reportMark = "report: "

// TestLoadInAProcess is a helper. Load works once per process, so the tests below run this test in
// other processes.
func TestLoadInAProcess(t *testing.T) {
	if os.Getenv("PSYCHE_TEST_LOAD") == "" {
		t.Skip("run by the other tests of Load")
	}
	err := torch.Load(torch.Options{Threads: 1, OverrideOpenBLAS: os.Getenv("PSYCHE_TEST_LOAD") == "override"})
	r := report{Missing: torch.Missing(err), Stale: errors.Is(err, torch.ErrStaleLibrary)}
	if err != nil {
		r.Error = err.Error()
	}
	r.Info, _ = torch.Loaded()
	r.print(t)
}

func (r report) print(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s%s\n", reportMark, text)
}

func loadInAProcess(t *testing.T, mode, dir string, env ...string) report {
	t.Helper()
	return inAProcess(t, "TestLoadInAProcess", dir, append(env, "PSYCHE_TEST_LOAD="+mode)...)
}

// inAProcess runs a test in a separate process and reads its report. The environment contains env,
// and no other variable that Load reads.
func inAProcess(t *testing.T, test, dir string, env ...string) report {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), exe, "-test.run=^"+test+"$", "-test.v")
	c.Dir = dir
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !slices.Contains([]string{"OMP_NUM_THREADS", "GOMP_SPINCOUNT", "ATEN_CPU_CAPABILITY", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"}, name) {
			c.Env = append(c.Env, variable)
		}
	}
	c.Env = append(c.Env, env...)
	out, err := c.CombinedOutput()
	_, text, found := strings.Cut(string(out), reportMark)
	if !found {
		t.Fatalf("no report (%v):\n%s", err, out)
	}
	var r report
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

func setting(t *testing.T, info torch.Info, name string) torch.Setting {
	t.Helper()
	i := slices.IndexFunc(info.Settings, func(s torch.Setting) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no report about %s", name)
	}
	return info.Settings[i]
}

func TestLoadReportsSettings(t *testing.T) {
	torchtest.Load(t)
	r := loadInAProcess(t, "keep", "", "OPENBLAS_CORETYPE=Haswell", "GOMP_SPINCOUNT=77")
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	if r.Info.Version == "" || r.Info.Threads != 1 || r.Info.Capability == "" || r.Info.Parallel == "" {
		t.Errorf("incomplete: %+v", r.Info)
	}
	for _, want := range []torch.Setting{
		{Name: "OMP_NUM_THREADS", Value: "1", Source: "psyche"},
		{Name: "GOMP_SPINCOUNT", Value: "77", Source: "environment"},
		{Name: "OPENBLAS_CORETYPE", Value: "Haswell", Source: "environment"},
		{Name: "OPENBLAS_L2_SIZE", Source: "unset"},
	} {
		if got := setting(t, r.Info, want.Name); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if !strings.Contains(strings.Join(r.Info.Warnings, "\n"), "OPENBLAS_CORETYPE=Haswell") {
		t.Errorf("no warning of the BLAS kernels: %q", r.Info.Warnings)
	}
	r = loadInAProcess(t, "keep", "", "OPENBLAS_CORETYPE=nonsense")
	if warnings := strings.Join(r.Info.Warnings, "\n"); r.Info.Kernels != "" && !strings.Contains(warnings, r.Info.Kernels) {
		t.Errorf("no word on kernels that OpenBLAS does not have: %q", warnings)
	}
	r = loadInAProcess(t, "override", "", "OPENBLAS_CORETYPE=Haswell")
	got := setting(t, r.Info, "OPENBLAS_CORETYPE")
	if got.Source == "environment" || !strings.Contains(strings.Join(r.Info.Warnings, "\n"), "OPENBLAS_CORETYPE=Haswell") {
		t.Errorf("%+v, want it dropped; warnings %q", got, r.Info.Warnings)
	}
}

func TestLoadWithoutShim(t *testing.T) {
	empty := t.TempDir()
	r := loadInAProcess(t, "keep", empty, "PSYCHE_TORCH_SHIM=")
	if !r.Missing || !strings.Contains(r.Error, "PSYCHE_TORCH_SHIM") {
		t.Errorf("no shim anywhere: %+v", r)
	}
	r = loadInAProcess(t, "keep", empty, "PSYCHE_TORCH_SHIM="+filepath.Join(empty, "none.so"))
	if !r.Missing || !strings.Contains(r.Error, "none.so") {
		t.Errorf("shim named but absent: %+v", r)
	}
	broken := filepath.Join(empty, "broken.so")
	if err := os.WriteFile(broken, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r = loadInAProcess(t, "keep", empty, "PSYCHE_TORCH_SHIM="+broken); !strings.Contains(r.Error, "broken.so") {
		t.Errorf("shim is not a library: %+v", r)
	}
}

func TestLoadRefusesAStaleShim(t *testing.T) {
	header, err := filepath.Abs("abi.h")
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{
		"version":   `{PT_API_VERSION + 1, PT_SIGNATURE}`,
		"functions": `{PT_API_VERSION, "void gone(void);"}`,
	}
	for name, table := range sources {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			library := filepath.Join(dir, "old.so")
			text := fmt.Sprintf("#include %q\nconst pt_table *psyche_torch_table(void) { static const pt_table t = %s; return &t; }\n", header, table)
			compileLibrary(t, library, text)
			r := loadInAProcess(t, "keep", dir, "PSYCHE_TORCH_SHIM="+library)
			if !r.Stale || r.Missing || !strings.Contains(r.Error, library) {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestLoadErrorNamesTheRemedy(t *testing.T) {
	for _, message := range []string{
		"libtorch_cpu.so: cannot open shared object file: No such file or directory",
		"libfmt.so.10: cannot open shared object file: No such file or directory",
		"/lib/libm.so.6: version `GLIBC_2.38' not found (required by /opt/libtorch_cpu.so)",
		"file too short",
		"libtorch_cpu.so.1.13: failed to map segment from shared object",
	} {
		err := torch.LoadError("/opt/libtorch/shim.so", message, false)
		if !torch.Missing(err) {
			t.Errorf("%s: error %v, want a missing library", message, err)
		}
		golden.Message(t, message, err)
	}
}
