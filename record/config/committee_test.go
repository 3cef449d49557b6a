package config

import (
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
)

func TestCommitteeWarning(t *testing.T) {
	tests := map[string]struct {
		members, witnesses uint16
		want               string
	}{
		"three of three":        {3, 0, ""},
		"one of three":          {3, 1, ""}, // nobody may lie among three
		"one of four":           {4, 1, "if 1 of 4 members are dishonest, they are 1 of a round's 1 witnesses in one round of 4"},
		"three of 22":           {22, 3, "if 7 of 22 members are dishonest, they are 2 of a round's 3 witnesses in one round of 4"},
		"all of 32":             {32, 0, ""},
		"all that can of 64":    {64, 0, ""},
		"sixteen of 64":         {64, 16, "if 21 of 64 members are dishonest, they are 11 of a round's 16 witnesses in one round of 1291"},
		"all that can of 256":   {256, 0, ""},
		"sixteen of 256 hidden": {256, 16, "; 0 lets all members witness, 32 at most"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := committeeWarning(coordinator.Config{InitMinClients: test.members, MinClients: test.members, WitnessNodes: test.witnesses})
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAbsenceWarning(t *testing.T) {
	tests := map[string]struct {
		members, witnesses uint16
		want               string
	}{
		"all":          {4, 0, ""},
		"one of one":   {1, 1, ""},
		"two of two":   {2, 2, ""},
		"two of three": {3, 2, "witness_nodes = 2: a round counts only if all of its witnesses are there"},
		"one of four":  {4, 1, "3 bear the loss of one, 0 lets all members witness, 32 at most"},
		"three":        {4, 3, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := absenceWarning(coordinator.Config{InitMinClients: test.members, MinClients: test.members, WitnessNodes: test.witnesses})
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
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
		"nobody":        {8, 10, "verification_percent = 10: audits are off while there are as few as init_min_clients = 8 members, none of whom has time for them; from 10 members on one has, or set at least 13"},
		"nobody of one": {1, 100, "verification_percent = 100: audits are off while there are as few as init_min_clients = 1 members, none of whom has time for them; from 2 members on one has, or set at least 100"},
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
		"too short":       {16, 10, 8, "probation_steps = 8, where anybody may join: of newcomers that cheat in every step 28 in 100 are ejected before their results count, with 16 members of whom 1 verify; half are after 14 steps, 95 in 100 after 50"},
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
