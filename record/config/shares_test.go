package config

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
)

func TestSharesWarning(t *testing.T) {
	for name, test := range map[string]struct {
		shares     bool
		start, end uint32
		warns      bool
	}{
		"enough":      {true, 48, 48, false},
		"few":         {true, 47, 48, true},
		"few at last": {true, 48, 47, true},
		"equal":       {false, 3, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := sharesWarning(coordinator.Config{SharesBySpeed: test.shares, GlobalBatchSizeStart: test.start, GlobalBatchSizeEnd: test.end, InitMinClients: 3})
			if test.warns {
				golden.Message(t, "warning", errors.New(got))
			} else if got != "" {
				t.Errorf("unexpected warning %q", got)
			}
		})
	}
}

// TestSharesWithAudits checks that a run refuses shares by speed together with audits.
func TestSharesWithAudits(t *testing.T) {
	text, err := os.ReadFile("testdata/book.toml")
	if err != nil {
		t.Fatal(err)
	}
	for percent, ok := range map[string]bool{"0": true, "10": false} {
		changed := strings.Replace(string(text), "verification_percent = 0", "shares_by_speed = true\nverification_percent = "+percent, 1)
		run, err := ParseState("s.toml", []byte(changed))
		switch {
		case !ok:
			golden.Message(t, "audits", err)
		case err != nil || !run.Config.SharesBySpeed:
			t.Errorf("shares %t, %v", run.Config.SharesBySpeed, err)
		}
	}
}
