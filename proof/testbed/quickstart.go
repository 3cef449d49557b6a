package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Quickstart prepares the quickstart's data and model with the programs in bin.
func Quickstart(ctx context.Context, bin string) error {
	for _, program := range []string{"psyche", "psyche-client"} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			return fmt.Errorf("%w: make build makes both programs", err)
		}
	}
	prepare := exec.CommandContext(ctx, "scripts/quickstart-data.sh", bin, "build/quickstart")
	prepare.Stdout, prepare.Stderr = os.Stderr, os.Stderr
	if err := prepare.Run(); err != nil {
		return fmt.Errorf("prepare the quickstart's data: %w", err)
	}
	return nil
}
