package child_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/child"
)

func TestProcessLivesAndDies(t *testing.T) {
	p := &child.Process{Name: "sleeper", Log: filepath.Join(t.TempDir(), "log"), Program: "sh", Args: []string{"-c", "echo started; exec sleep 60"}}
	for range 2 {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		if err, killed := p.Result(); err == nil || !killed {
			t.Errorf("after kill: err %v, killed %v", err, killed)
		}
	}
	p.Args = []string{"-c", "echo one; echo two; exit 3"}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	<-p.Ended()
	if err, killed := p.Result(); err == nil || killed {
		t.Errorf("after exit 3: err %v, killed %v", err, killed)
	}
	if tail := p.LogTail(2); tail != "one | two" {
		t.Errorf("log tail: got %q", tail)
	}
}

func TestOutputCarriesTheLastWords(t *testing.T) {
	_, err := child.Output(t.Context(), nil, "sh", "-c", "echo why >&2; exit 1")
	if err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("got %v, want an error with the command's words", err)
	}
}
