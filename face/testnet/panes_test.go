package testnet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/child"
)

// TestPanes shows three logs in a session of a separate tmux server.
func TestPanes(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("needs tmux")
	}
	sockets, err := os.MkdirTemp("", "panes") // a socket's name has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	t.Setenv("TMUX_TMPDIR", sockets)
	t.Setenv("TMUX", "")
	var all []*child.Process
	for _, name := range []string{"server", "client-1", "client-2"} {
		log := filepath.Join(t.TempDir(), "a log.txt")
		if err := os.WriteFile(log, []byte("words of "+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		all = append(all, &child.Process{Name: name, Log: log})
	}
	p, err := openPanes(t.Context(), "run-20260102.150405", all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = exec.Command("tmux", "kill-server").Run() }) // of this test's socket
	listed, err := p.tmux(t.Context(), "list-panes", "-t", p.session, "-F", "#{pane_id} #{pane_title}")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(listed, "\n")
	if len(lines) != len(all) {
		t.Fatalf("panes:\n%s", listed)
	}
	for i, line := range lines {
		id, title, _ := strings.Cut(line, " ")
		if title != all[i].Name {
			t.Errorf("pane %d has the title %q, want %q", i, title, all[i].Name)
		}
		shown := ""
		for range 100 {
			if shown, err = p.tmux(t.Context(), "capture-pane", "-p", "-t", id); err != nil || strings.Contains(shown, "words of") {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil || !strings.Contains(shown, "words of "+all[i].Name) {
			t.Errorf("pane %s shows %q, %v", title, shown, err)
		}
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if _, err := p.tmux(t.Context(), "has-session", "-t", p.session); err == nil {
		t.Error("the session is still there")
	}
	if err := p.close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}
