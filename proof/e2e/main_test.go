package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/proof/testbed"
)

// The programs under test and their dependencies, set by TestMain.
var (
	serverBinary string
	clientBinary string
	shim         string // path of the libtorch shim
	noTorch      string // why clients cannot run; empty if they can
)

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
	// The tests mostly wait for processes, so more tests than cores can run.
	if err := flag.Set("test.parallel", "6"); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "psyche-e2e-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built, err := testbed.Build(context.Background(), filepath.Join("..", ".."), dir)
	if err != nil {
		return 0, err
	}
	serverBinary, clientBinary, shim, noTorch = built.Server, built.Client, built.Shim, built.NoTorch
	if noTorch != "" && os.Getenv("PSYCHE_REQUIRE_TORCH") == "1" {
		return 0, errors.New(noTorch)
	}
	return m.Run(), nil
}

// shimVariable sets the path of the libtorch shim in the environment of clients.
func shimVariable() string { return "PSYCHE_TORCH_SHIM=" + shim }

// clientEnv is the environment of clients.
func clientEnv() []string { return append(os.Environ(), shimVariable()) }

// needClient skips the test, with the reason, if clients cannot run.
func needClient(t *testing.T) {
	t.Helper()
	if noTorch != "" {
		t.Skip(noTorch)
	}
}
