package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// victimVariable is the environment variable with the key of the member that the slanderer accuses.
const victimVariable = "MATRIX_VICTIM"

// slandererSource is the additional source file of the slanderer's client.
const slandererSource = `package main

import (
	"os"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/proof/e2e/cheat"
)

func slandering(host env.Backend) env.Backend {
	victim, err := identity.ParseID(os.Getenv("` + victimVariable + `"))
	if err != nil {
		panic(err)
	}
	return cheat.Slandering(host, victim, coordinator.FaultSilent)
}
`

// The code change that makes the client's program slander: both of its hosts pass through
// slandering.
const (
	hostFile      = "cmd/psyche-client/train_host.go"
	slandererFile = "cmd/psyche-client/slandering.go"
)

var hostChange = strings.NewReplacer("Backend: host,", "Backend: slandering(host),", "Backend: chain,", "Backend: slandering(chain),")

// slanderer builds the slandering client, once, and returns its path. It builds the client of this
// checkout with slandererSource, through Go's overlay. It therefore works with each host, data source
// and model, and the product contains nothing of it.
func (s setup) slanderer(ctx context.Context) (string, error) {
	program, dir := filepath.Join(s.out, "slanderer", "psyche-client"), filepath.Join(s.out, "slanderer")
	if _, err := os.Stat(program); err == nil && !s.stale(program) {
		return program, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	overlay, err := slandererOverlay(dir)
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, "./cmd/psyche-client")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the slanderer, from the root of the repository: %w: %s", err, out)
	}
	return program, nil
}

// stale reports whether a program is older than the client of the row.
func (s setup) stale(program string) bool {
	own, err := os.Stat(program)
	client, clientErr := os.Stat(s.client())
	return errors.Join(err, clientErr) != nil || own.ModTime().Before(client.ModTime())
}

// slandererOverlay writes the changed files and the overlay into a folder. It returns the overlay's
// path.
func slandererOverlay(dir string) (string, error) {
	original, err := os.ReadFile(hostFile)
	if err != nil {
		return "", err
	}
	changed := hostChange.Replace(string(original))
	if strings.Count(changed, "slandering(") != 2 {
		return "", fmt.Errorf("%s does not return a host of a server and one of a chain as hostChange expects", hostFile)
	}
	replace := map[string]string{}
	for name, text := range map[string]string{hostFile: changed, slandererFile: slandererSource} {
		path, err := filepath.Abs(filepath.Join(dir, filepath.Base(name)+".txt"))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return "", err
		}
		replaced, err := filepath.Abs(name)
		if err != nil {
			return "", err
		}
		replace[replaced] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o644)
}
