package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The programs under test and what they need; set by TestMain.
var (
	serverBinary string
	clientBinary string
	shim         string // path of the libtorch shim
	noTorch      string // why clients cannot run; empty when they can
)

// buildTimeout bounds a build with an empty build cache.
const buildTimeout = 10 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	if testing.Short() {
		fmt.Println("e2e: skipped by -short")
		return 0, nil
	}
	// The tests spend their time waiting for processes, so more of them than cores can run.
	if err := flag.Set("test.parallel", "6"); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "psyche-e2e-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	serverBinary = filepath.Join(dir, "psyche")
	if err := build(ctx, serverBinary, "../../cmd/psyche", "CGO_ENABLED=0"); err != nil {
		return 0, err
	}
	if err := prepareClient(ctx, dir); err != nil {
		return 0, err
	}
	if noTorch != "" && os.Getenv("PSYCHE_REQUIRE_TORCH") == "1" {
		return 0, errors.New(noTorch)
	}
	return m.Run(), nil
}

// prepareClient builds the client and finds out whether it can run here.
func prepareClient(ctx context.Context, dir string) error {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	if _, err := exec.LookPath(strings.Fields(compiler)[0]); err != nil {
		noTorch = fmt.Sprintf("the client cannot be built without a C compiler: %v", err)
		return nil
	}
	clientBinary = filepath.Join(dir, "psyche-client")
	if err := build(ctx, clientBinary, "../../cmd/psyche-client", "CGO_ENABLED=1"); err != nil {
		return err
	}
	// The test binary runs elsewhere than the programs that find the shim beside themselves.
	shim = os.Getenv("PSYCHE_TORCH_SHIM")
	if shim == "" {
		found, err := filepath.Abs(filepath.Join("..", "..", "build", "lib", "libpsyche_torch.so"))
		if err != nil {
			return err
		}
		shim = found
	}
	doctor := exec.CommandContext(ctx, clientBinary, "doctor")
	doctor.Env = clientEnv()
	if out, err := doctor.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		noTorch = "libtorch is needed: " + lines[len(lines)-1]
	}
	return nil
}

// build builds the program of a folder.
func build(ctx context.Context, output, program, env string) error {
	command := exec.CommandContext(ctx, "go", "build", "-o", output, program)
	command.Env = append(os.Environ(), env)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return nil
}

// clientEnv is the environment of clients.
func clientEnv() []string { return append(os.Environ(), "PSYCHE_TORCH_SHIM="+shim) }

// needClient skips the test where clients cannot run, and says why.
func needClient(t *testing.T) {
	t.Helper()
	if noTorch != "" {
		t.Skip(noTorch)
	}
}
