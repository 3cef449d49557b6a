package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// buildTimeout limits a build with an empty build cache.
const buildTimeout = 10 * time.Minute

// Programs are both programs as built for tests.
type Programs struct {
	Server, Client string // paths; Client is empty if it cannot be built
	Shim           string // path of the libtorch shim
	NoTorch        string // reason why clients cannot run; empty if they can
}

// Build builds both programs from the repository at root into a folder, and finds out whether
// clients can run here.
func Build(ctx context.Context, root, dir string) (p Programs, err error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	p.Server = filepath.Join(dir, "psyche")
	if err := Compile(ctx, p.Server, root, "./cmd/psyche", "CGO_ENABLED=0"); err != nil {
		return p, err
	}
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	if _, err := exec.LookPath(strings.Fields(compiler)[0]); err != nil {
		p.NoTorch = fmt.Sprintf("the client cannot be built without a C compiler: %v", err)
		return p, nil
	}
	p.Client = filepath.Join(dir, "psyche-client")
	if err := Compile(ctx, p.Client, root, "./cmd/psyche-client", "CGO_ENABLED=1"); err != nil {
		return p, err
	}
	// The programs find the shim in their own folder only if they are installed.
	if p.Shim = os.Getenv("PSYCHE_TORCH_SHIM"); p.Shim == "" {
		if p.Shim, err = filepath.Abs(filepath.Join(root, "build", "lib", "libpsyche_torch.so")); err != nil {
			return p, err
		}
	}
	doctor := exec.CommandContext(ctx, p.Client, "doctor")
	doctor.Env = p.env()
	if out, err := doctor.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		p.NoTorch = "libtorch is needed: " + lines[len(lines)-1]
	}
	return p, nil
}

// env returns the environment of clients.
func (p Programs) env() []string { return append(os.Environ(), "PSYCHE_TORCH_SHIM="+p.Shim) }

// Compile builds the program in a folder of the repository at root.
func Compile(ctx context.Context, output, root, program, env string) error {
	command := exec.CommandContext(ctx, "go", "build", "-o", output, program)
	command.Dir = root
	command.Env = append(os.Environ(), env)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return nil
}
