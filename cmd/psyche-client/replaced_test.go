package main

import (
	"fmt"
	"testing"

	"github.com/psyche-go/psyche/node/client"
)

// TestReplacedModelIsNoReasonToStartAgain wants the exit code after which a service manager leaves a
// client alone: started again, it would need its owner's word as well.
func TestReplacedModelIsNoReasonToStartAgain(t *testing.T) {
	if code := exitCode(fmt.Errorf("run: %w", client.ErrReplaced)); code != exitUsage {
		t.Errorf("exit code %d, want %d", code, exitUsage)
	}
}
