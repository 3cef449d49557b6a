package config

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
)

func TestCommitteeWarning(t *testing.T) {
	tests := map[string]struct {
		members, witnesses uint16
		warns              bool
	}{
		"three of three":        {3, 0, false},
		"one of three":          {3, 1, false}, // all of three must be honest
		"one of four":           {4, 1, true},
		"three of 22":           {22, 3, true},
		"all of 32":             {32, 0, false},
		"all that can of 64":    {64, 0, false},
		"sixteen of 64":         {64, 16, true},
		"all that can of 256":   {256, 0, false},
		"sixteen of 256 hidden": {256, 16, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := committeeWarning(coordinator.Config{InitMinClients: test.members, MinClients: test.members, WitnessNodes: test.witnesses})
			if test.warns {
				golden.Message(t, "warning", errors.New(got))
			} else if got != "" {
				t.Errorf("unexpected warning %q", got)
			}
		})
	}
}

func TestAbsenceWarning(t *testing.T) {
	tests := map[string]struct {
		members, witnesses uint16
		warns              bool
	}{
		"all":          {4, 0, false},
		"one of one":   {1, 1, false},
		"two of two":   {2, 2, false},
		"two of three": {3, 2, true},
		"one of four":  {4, 1, true},
		"three":        {4, 3, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := absenceWarning(coordinator.Config{InitMinClients: test.members, MinClients: test.members, WitnessNodes: test.witnesses})
			if test.warns {
				golden.Message(t, "warning", errors.New(got))
			} else if got != "" {
				t.Errorf("unexpected warning %q", got)
			}
		})
	}
}

func TestAuditsWarning(t *testing.T) {
	tests := map[string]struct {
		members uint16
		percent uint8
		want    string
	}{
		"no audits":     {8, 0, ""},
		"one verifies":  {10, 10, ""},
		"a third does":  {3, 34, ""},
		"nobody":        {8, 10, "verification_percent = 10: with only init_min_clients = 8 members, no member audits; choose at least 10 members, or a percentage of at least 13"},
		"nobody of one": {1, 100, "verification_percent = 100: with only init_min_clients = 1 members, no member audits; choose at least 2 members, or a percentage of at least 100"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := coordinator.Config{InitMinClients: test.members, MinClients: test.members, VerificationPercent: test.percent, ProbationSteps: 8}
			if got := auditsWarning(c); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestProbationWarning(t *testing.T) {
	tests := map[string]struct {
		members uint16
		percent uint8
		steps   uint32
		want    string
	}{
		"no audits":       {16, 0, 8, ""},
		"no probation":    {16, 10, 0, ""},
		"nobody verifies": {8, 10, 8, ""},
		"too short":       {16, 10, 8, "probation_steps = 8: if any client may join, 28 in 100 newcomers that cheat in every step are ejected before their results count, in a run of 16 members with 1 auditors; half are ejected after 14 steps, 95 in 100 after 50"},
		"long":            {16, 10, 50, ""},
		"very long":       {16, 10, 1<<32 - 1, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := coordinator.Config{InitMinClients: test.members, MinClients: test.members, VerificationPercent: test.percent, ProbationSteps: test.steps}
			if got := probationWarning(c); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
