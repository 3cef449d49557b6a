package main

import (
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
)

// TestRunsHaveNames begins a run with a name and a description, and gives it others.
func TestRunsHaveNames(t *testing.T) {
	a := administer(t, "--allow-create", identity.FromSeed([identity.SeedSize]byte{1}).ID().String())
	signed := []string{"--state", sampleState, "--run-id", "r", "--keypair", a.key(1)}
	for name, bad := range map[string][]string{
		"long name": {"--name", strings.Repeat("n", 65)}, "name with an escape": {"--name", "\x1b[2J"}, "invisible description": {"--description", "a\u202eb"},
	} {
		a.does(exitUsage, name, append(append([]string{"create"}, signed...), bad...)...)
	}
	a.does(exitOK, "run r is on", append(append([]string{"create"}, signed...), "--name", "Tiny <b>", "--description", "About it")...)
	if r := a.status("r"); r.Name != "Tiny <b>" || r.About != "About it" {
		t.Errorf("status: %q, %q", r.Name, r.About)
	}
	a.does(exitOK, "Tiny <b>\n", "status", "--run-id", "r")
	a.does(exitOK, `  named "Tiny <b>"`, "list")
	a.does(exitOK, "", "set-paused", "--run-id", "r", "--keypair", a.key(1))
	a.does(exitOK, "now uses the configuration in", append(append([]string{"update-config"}, signed...), "--name", "Other")...)
	if r := a.status("r"); r.Name != "Other" || r.About != "" {
		t.Errorf("status after the update: %q, %q", r.Name, r.About)
	}
	a.does(exitOK, `  named "Other"`, "list")
}
