package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/psyche-go/psyche/record/follow"
)

// keepEvidence saves the evidence against the run's host in a separate file in a folder, by default
// the working directory, and adds the file's name to the error. It returns other errors unchanged.
func keepEvidence(err error, dir string) error {
	fault, ok := errors.AsType[*follow.HostFault](err)
	if !ok {
		return err
	}
	file, failed := os.CreateTemp(cmp.Or(dir, "."), "evidence-*.json")
	if failed == nil {
		_, failed = file.Write(fault.JSON())
		failed = errors.Join(failed, file.Chmod(0o644), file.Close())
	}
	if failed != nil {
		return fmt.Errorf("%w; saving the evidence failed: %w", err, failed)
	}
	return fmt.Errorf("%w; the evidence is in %s: show it to the other members and to the run's main authority", err, file.Name())
}
