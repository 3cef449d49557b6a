package fit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/learn/memory/fit"
	"github.com/psyche-go/psyche/learn/torch"
)

// TestExplain checks that only errors of failed allocations get advice, and only once.
func TestExplain(t *testing.T) {
	of := memory.Training{Model: memory.Model{Parameters: 1 << 20, Activations: 1 << 20}, Batch: memory.Batch{Sequences: 2, Tokens: 8}}
	failed := fmt.Errorf("step 3: %w", &torch.Error{Op: "linear", Message: "CUDA out of memory. Tried to allocate 2.50 GiB"})
	explained := fit.Explain(failed, of, "--micro-batch", nil)
	if !errors.Is(explained, torch.ErrMemory) || !fit.Advised(explained) || fit.Advised(failed) || !strings.Contains(explained.Error(), "--micro-batch 1 (at least") {
		t.Errorf("got %v", explained)
	}
	for _, err := range []error{nil, errors.New("another"), explained} {
		if got := fit.Explain(err, of, "", nil); got != err { //nolint:errorlint // the same error
			t.Errorf("%v became %v", err, got)
		}
	}
}
