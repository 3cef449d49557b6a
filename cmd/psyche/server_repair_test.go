package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/journal"
)

// TestServerRepair looks at journals, and repairs them when it is told to.
func TestServerRepair(t *testing.T) {
	dir := t.TempDir()
	path := server.JournalPath(dir, "demo")
	j, _, err := journal.Open(path, func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Append([]byte("first")), j.Append([]byte("second")), j.Append([]byte("third")), j.Commit(), j.Close()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	noise := append(bytes.Clone(whole), bytes.Repeat([]byte{3}, 99)...)
	middle := bytes.Clone(whole)
	middle[len(whole)-72-5-10] ^= 1 // the hash of "second"
	for _, test := range []struct {
		name    string
		content []byte
		flags   string
		code    int
		want    string
		size    int // of the journal afterwards
	}{
		{"sound", whole, "", exitOK, "", len(whole)},
		{"looked at", noise, "", exitOK, "--yes", len(noise)},
		{"cut", noise, "--yes", exitOK, path + ".cut-", len(whole)},
		{"records behind it", middle, "--yes", exitUnverified, "--lose-records", len(middle)},
		{"records that may be lost", middle, "--yes --lose-records", exitOK, "1 records", len(whole) - 72 - 5 - 72 - 6},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := os.WriteFile(path, test.content, 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			arguments := append([]string{"server", "repair", "--save-state-dir", dir, "--run-id", "demo"}, strings.Fields(test.flags)...)
			if code := run(t.Context(), arguments, console{&out, &out}); code != test.code || code == exitOK && !strings.Contains(out.String(), test.want) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, test.code, test.want, out.String())
			} else if code != exitOK {
				printed(t, code, test.name, out.String())
			}
			if after, err := os.ReadFile(path); err != nil || len(after) != test.size {
				t.Errorf("the journal has %d bytes, want %d (%v)", len(after), test.size, err)
			}
		})
	}
}
