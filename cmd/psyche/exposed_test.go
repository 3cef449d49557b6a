package main

import (
	"strings"
	"testing"

	"github.com/psyche-go/psyche/record/config"
)

func TestOpenRunsAreWarnedOf(t *testing.T) {
	for name, test := range map[string]struct {
		members uint16
		percent uint8
		want    []string // in the warning; none: there is no warning
	}{
		"no audits":          {16, 0, []string{"verification_percent = 0", "set it to 25 for 4", "--permissioned"}},
		"no audits of few":   {2, 0, []string{"verification_percent = 0", "begin with at least 8 members"}},
		"one audits":         {16, 10, []string{"with init_min_clients = 16, 1 of the members audit", "set it to 25 for 4"}},
		"three audit":        {16, 20, []string{"16, 3 of the members audit"}},
		"four audit":         {16, 25, nil},
		"nobody audits, yet": {8, 10, nil}, // the file's own warnings tell
	} {
		t.Run(name, func(t *testing.T) {
			var run config.Run
			run.Config.InitMinClients, run.Config.VerificationPercent = test.members, test.percent
			got := strings.Join(openWarnings(run), "\n")
			if (got == "") != (test.want == nil) {
				t.Errorf("got %q", got)
			}
			for _, text := range test.want {
				if !strings.Contains(got, text) {
					t.Errorf("got %q, want %q in it", got, text)
				}
			}
		})
	}
}

// TestValidateSaysWhoMayDoWhat looks at a run as the server would begin it.
func TestValidateSaysWhoMayDoWhat(t *testing.T) {
	check := func(args ...string) string {
		var out, errs strings.Builder
		args = append([]string{"server", "validate-config", "--state", "../../configs/quickstart/state.toml"}, args...)
		if code := run(t.Context(), args, console{&out, &errs}); code != exitOK {
			t.Fatalf("exit code %d\n%s", code, errs.String())
		}
		return errs.String()
	}
	const host, open = "the server's own key is the main authority", "every key may join"
	if said := check(); !strings.Contains(said, host) || !strings.Contains(said, open) {
		t.Errorf("by default:\n%s", said)
	}
	said := check("--main-authority", "8qbHbw2BbbTHBW1sbeqakYXVKRQM8Ne7pLK7m6CVfeR", "--permissioned")
	if strings.Contains(said, host) || strings.Contains(said, open) {
		t.Errorf("of a run for chosen keys with a main authority:\n%s", said)
	}
}
