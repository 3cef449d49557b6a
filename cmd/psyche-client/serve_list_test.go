package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// TestServeRefusesLists checks that errors in a list of runs are reported before anything is stored
// or started.
func TestServeRefusesLists(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(state, "state"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(state, "config"))
	link := testLink()
	other := link
	other.RunID = "other"
	list := filepath.Join(t.TempDir(), "runs.toml")
	entry := func(link string) string { return "[[run]]\nlink = \"" + link + "\"\n" }
	fail(t, exitUsage, "no list", "serve")
	for text, want := range map[string]string{
		"":                             "empty list",
		"[[run]]\n":                    "run without link",
		"links = []\n":                 "unknown key",
		"[[run]]\nlink = 1\n":          "number as link",
		"[[run]\n":                     "damaged",
		entry("psyche://h"):            "listed run that is not a link",
		"\ufeff" + entry("psyche://h"): "marked list", // the mark is not an error
		"\ufeff[[run]\n":               "damaged after a mark",
		"\xff\xfe[\x00[\x00":           "UTF-16",
		"[\x00[\x00r\x00u\x00":         "UTF-16 without a mark",
		entry(link.String()) + "flags = [\"--stepz\"]\n":                    "unknown flag of a run",
		entry(link.String()) + "flags = [\"--micro-batch-size=0\"]\n":       "no micro batch",
		entry(link.String()) + "flags = [\"--logs=tui\"]\n":                 "display",
		entry(link.String()) + entry(other.String()) + entry(link.String()): "one run twice",
		strings.Repeat("#", maxServedFile+1):                                "long file",
		"flags = [\"--iroh-relay=nowhere\"]\n" + entry(link.String()):       "wrong flag of all runs",
	} {
		write(t, list, []byte(text))
		fail(t, exitUsage, want, "serve", "--runs", list)
	}
	fail(t, exitUsage, "links and a list", "serve", link.String(), "--runs", list)
	fail(t, exitUsage, "no patience", "serve", link.String(), "--patience", "0s")
	fail(t, exitUsage, "not a link", "serve", link.String(), "psyche://h")
	fail(t, exitUsage, "unknown flag of a client", "serve", link.String(), "--", "--stepz")
	fail(t, exitUsage, "unknown flag of a client after patience", "serve", link.String(), "--patience", "1m", "--", "--stepz")
	fail(t, exitUsage, "not a link after patience", "serve", link.String(), "--patience", "1m", "psyche://h")
	fail(t, exitUsage, "unknown flag of clients of a list", "serve", "--runs", write(t, list, []byte(entry(link.String()))), "--", "--stepz")
	fail(t, exitUsage, "unknown flag", "serve", link.String(), "--stepz")
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("kept %v, %v", left, err)
	}
}

// TestServeReads checks that the flags of a file, of its run and of the command line are joined in
// this order.
func TestServeReads(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	link := testLink()
	list := write(t, filepath.Join(t.TempDir(), "runs.toml"), []byte("flags = [\"--device=cpu\"]\n[[run]]\nlink = \""+link.String()+"\"\nflags = [\"--keep-steps\", \"7\"]\n"))
	c := serveCommand{Runs: list, Patience: time.Minute, Flags: words{[]string{"--logs", "json"}}}
	runs, err := c.read(t.Context(), terminal{})
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	r := runs[0]
	if !slices.Equal(r.flags, []string{"--device=cpu", "--keep-steps", "7", "--logs", "json"}) || r.joins.KeepSteps != 7 || r.joins.Logs != "json" || r.joins.ServerKey != link.Key.String() {
		t.Errorf("%v: %+v", r.flags, r.joins)
	}
	if err := r.identify(); err != nil || r.key == nil {
		t.Fatal(r.key, err)
	}
	t.Setenv(identity.SecretKeyVariable, strings.Repeat("09", 32))
	first := *r.key
	if err := r.identify(); err != nil || *r.key == first {
		t.Errorf("the key of the environment is ignored: %v, %v", r.key, err)
	}
	t.Setenv(identity.SecretKeyVariable, "no key")
	r.joins.IdentitySecretKeyPath = filepath.Join(t.TempDir(), "key.json")
	if err := identity.SaveKeyFile(r.joins.IdentitySecretKeyPath, backendtest.Key(1)); err != nil {
		t.Fatal(err)
	}
	if err := r.identify(); err != nil || *r.key != backendtest.Key(1).ID() {
		t.Errorf("the key file that a flag names is ignored: %v, %v", r.key, err)
	}
}

// FuzzParseServed parses arbitrary text. The result must be an error that names the file, or runs
// with links.
func FuzzParseServed(f *testing.F) {
	f.Add("flags = [\"--device=cpu\"]\n[[run]]\nlink = \"psyche://h\"\nflags = []\n")
	f.Add("[[run]]\nlinks = 1\n")
	f.Add("[run]\nlink = \"a\"\n")
	fuzztest.Run(f, func(t *testing.T, text string) {
		list, err := parseServed("runs.toml", []byte(text))
		if err != nil && !strings.HasPrefix(err.Error(), "runs.toml:") || err == nil && (len(list.Run) == 0 || list.Run[0].Link == "") {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
