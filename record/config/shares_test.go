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

// TestSharedAuditsWarning checks that members have time to audit a member that is four times as fast.
func TestSharedAuditsWarning(t *testing.T) {
	for name, test := range map[string]struct {
		shares  bool
		percent uint8
		warns   bool
	}{
		"enough": {true, 20, false}, "little time": {true, 19, true}, "no audits": {true, 0, false}, "equal": {false, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := sharedAuditsWarning(coordinator.Config{SharesBySpeed: test.shares, VerificationPercent: test.percent})
			if test.warns {
				golden.Message(t, "warning", errors.New(got))
			} else if got != "" {
				t.Errorf("unexpected warning %q", got)
			}
		})
	}
}

// TestSharesWithAudits checks that a run may have shares by speed together with audits.
func TestSharesWithAudits(t *testing.T) {
	text, err := os.ReadFile("testdata/book.toml")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "verification_percent = 0", "shares_by_speed = true\nverification_percent = 25", 1)
	if run, err := ParseState("s.toml", []byte(changed)); err != nil || !run.Config.SharesBySpeed || run.Config.VerificationPercent != 25 {
		t.Errorf("%+v, %v", run.Config, err)
	}
}
