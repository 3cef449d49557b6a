package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoctorLeadsOn checks that doctor reports this program and continues with the report of the other
// program. If the other program is missing, doctor tells the user what to do.
func TestDoctorLeadsOn(t *testing.T) {
	client := filepath.Join(t.TempDir(), "psyche-client")
	for name, c := range map[string]struct {
		script string
		code   int
		want   string
	}{
		"all is there": {"#!/bin/sh\necho client $1 is well\n", exitOK, "client doctor is well"},
		"ill":          {"#!/bin/sh\necho no libtorch >&2; exit 1\n", exitFailed, "no libtorch"},
	} {
		if err := os.WriteFile(client, []byte(c.script), 0o755); err != nil {
			t.Fatal(err)
		}
		var out, errs strings.Builder
		code := run(t.Context(), []string{"doctor", "--client", client}, console{&out, &errs})
		if text := out.String() + errs.String(); code != c.code || !strings.Contains(text, c.want) || !strings.HasPrefix(text, "program ") {
			t.Errorf("%s: exit code %d:\n%s", name, code, text)
		}
	}
	t.Setenv("PATH", t.TempDir())
	var out, errs strings.Builder
	if code := run(t.Context(), []string{"doctor"}, console{&out, &errs}); code != exitFailed {
		t.Errorf("without a client: exit code %d:\n%s%s", code, out.String(), errs.String())
	} else {
		printed(t, code, "no client", errs.String())
	}
}

// TestVersionAndHelp checks the commands that users type first with an unknown program.
func TestVersionAndHelp(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"--version", "psyche "}, {"-v", "psyche "}, {"version", "psyche "}, {"help", "Usage: psyche"}, {"help run receipt", "Usage: psyche run receipt"}, {"run receipt --help", "Usage: psyche run receipt"},
	} {
		var out, errs strings.Builder
		if code := run(t.Context(), strings.Fields(c.line), console{&out, &errs}); code != exitOK || !strings.HasPrefix(out.String(), c.want) {
			t.Errorf("%s: exit code %d:\n%s%s", c.line, code, out.String(), errs.String())
		}
	}
}
