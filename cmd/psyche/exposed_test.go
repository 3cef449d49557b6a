package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/record/config"
)

func TestOpenRunsAreWarnedOf(t *testing.T) {
	for name, test := range map[string]struct {
		members uint16
		percent uint8
		ok      bool
	}{
		"no audits":          {16, 0, false},
		"no audits of few":   {2, 0, false},
		"one audits":         {16, 10, false},
		"three audit":        {16, 20, false},
		"four audit":         {16, 25, true},
		"nobody audits, yet": {8, 10, true}, // the file's own warnings
	} {
		t.Run(name, func(t *testing.T) {
			var run config.Run
			run.Config.InitMinClients, run.Config.VerificationPercent = test.members, test.percent
			got := strings.Join(openWarnings(run), "\n")
			if (got == "") != test.ok {
				t.Errorf("got %q; want (got == \"\") == test.ok", got)
			} else if !test.ok {
				golden.Message(t, name, errors.New(got))
			}
		})
	}
}

// TestValidateListsRights validates a run as the server would start it.
func TestValidateListsRights(t *testing.T) {
	check := func(args ...string) string {
		var out, errs strings.Builder
		args = append([]string{"server", "validate-config", "--state", "../../configs/quickstart/state.toml"}, args...)
		if code := run(t.Context(), args, console{&out, &errs}); code != exitOK {
			t.Fatalf("exit code %d\n%s", code, errs.String())
		}
		return errs.String()
	}
	report := func(name, output string) {
		t.Helper()
		var lines []string
		for line := range strings.Lines(output) {
			if !strings.Contains(line, "build/quickstart") { // a warning about folders that this machine may have
				lines = append(lines, line)
			}
		}
		golden.Message(t, name, errors.New(strings.Join(lines, "")))
	}
	report("by default", check())
	report("chosen keys and a main authority", check("--main-authority", "8qbHbw2BbbTHBW1sbeqakYXVKRQM8Ne7pLK7m6CVfeR", "--permissioned"))
}
