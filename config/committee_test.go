package config

import (
	"strings"
	"testing"

	"github.com/psyche-go/psyche/coordinator"
)

func TestCommitteeWarning(t *testing.T) {
	tests := map[string]struct {
		members, witnesses uint16
		want               string
	}{
		"three of three":        {3, 0, ""},
		"one of three":          {3, 1, ""}, // nobody may lie among three
		"one of four":           {4, 1, "if 1 of 4 members lie, 1 of a round's 1 witnesses do in one round of 4"},
		"three of 22":           {22, 3, "if 7 of 22 members lie, 2 of a round's 3 witnesses do in one round of 4"},
		"all of 32":             {32, 0, ""},
		"all that can of 64":    {64, 0, ""},
		"sixteen of 64":         {64, 16, "if 21 of 64 members lie, 11 of a round's 16 witnesses do in one round of 1291"},
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
