package main

import (
	"fmt"
	"testing"

	"github.com/psyche-go/psyche/node/client"
)

// TestReplacedModelIsNoReasonToStartAgain checks that the exit code makes a service manager leave
// the client stopped: a restarted client would also need its owner's consent.
func TestReplacedModelIsNoReasonToStartAgain(t *testing.T) {
	if code := exitCode(fmt.Errorf("run: %w", client.ErrReplaced)); code != exitUsage {
		t.Errorf("exit code %d, want %d", code, exitUsage)
	}
}
