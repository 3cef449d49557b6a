package e2e

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/record/event"
)

// TestRestartKeepsEarlierFiles restarts a client with the same folders: during a run and after its
// end. It checks that the files of earlier lives are unchanged.
func TestRestartKeepsEarlierFiles(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{clients: 2, minClients: 1, roundsPerEpoch: 2, steps: 10})
	n.startServer()
	clients := n.startClients(2)
	c := clients[0]
	waitEvent(t, c.eventsPath(), "a checkpoint is saved", func(body event.Body) bool {
		saved, ok := body.(event.Checkpoint)
		return ok && saved.Dir != ""
	})
	c.interrupt(t)
	if code := c.exitCode(t, promptExit); code != interrupted {
		t.Errorf("exit code %d", code)
	}
	unchanged := remember(t, c)
	c.start()
	digest := finish(t, clients...)
	unchanged()

	unchanged = remember(t, c)
	c.start()
	if code := c.exitCode(t, exitTimeout); code != 0 {
		t.Errorf("a client that came after the end of the run ended with exit code %d", code)
	}
	unchanged()
	starts := 0
	for _, e := range c.events() {
		if _, ok := e.Body.(event.Started); ok {
			starts++
		}
	}
	if starts != 3 {
		t.Errorf("%d starts in the event log, want 3", starts)
	}
	last := filepath.Join(c.dir, "checkpoints", "e2e-step10")
	if _, err := os.Stat(filepath.Join(last, "model.safetensors")); err != nil {
		t.Errorf("the final checkpoint, digest %s: %v", digest, err)
	}
}

// TestOtherRunInOneFolder gives a client the folder that has its checkpoints of a different run
// with the same name. It checks that checkpoints of steps that both runs have are kept next to the
// new checkpoints, unchanged.
func TestOtherRunInOneFolder(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{clients: 1, minClients: 1, roundsPerEpoch: 2, steps: 2})
	n.startServer()
	c := n.startClients(1)[0]
	finish(t, c)
	checkpoints := filepath.Join(c.dir, "checkpoints")
	before := contents(t, checkpoints)
	n.server.kill(t)
	must(t, clientBinary, "init-model", "--config", filepath.Join(n.dir, "config.json"), "--seed", "2", "--output", filepath.Join(n.dir, "model-2"))
	n.saved = filepath.Join(n.dir, "saved-2")
	n.startServer()
	c.start("--model-path", filepath.Join(n.dir, "model-2"))
	code := c.exitCode(t, runTimeout)
	noPanic(t, c.name, c.text(t))
	if code != 0 {
		t.Errorf("the client ended with exit code %d", code)
	}
	own, other := filepath.Join("e2e-step2", "model.safetensors"), filepath.Join("e2e-step2.forgotten", "model.safetensors")
	after := contents(t, checkpoints)
	if after[other] != before[own] || after[own] == "" || after[own] == before[own] {
		t.Errorf("the model of step 2 was %s, is now %s, and the other model is %s", before[own], after[own], after[other])
	}
}

// remember returns a function that checks that the client's event log has only grown since, and
// that the checkpoints of that time are unchanged.
func remember(t *testing.T, c *client) (unchanged func()) {
	t.Helper()
	before, err := os.ReadFile(c.eventsPath())
	if err != nil {
		t.Fatal(err)
	}
	checkpoints := filepath.Join(c.dir, "checkpoints")
	saved := contents(t, checkpoints)
	maps.DeleteFunc(saved, func(name, _ string) bool { // the newest two are kept, and the signing record
		return strings.HasPrefix(name, ".optimizer"+string(filepath.Separator)) || strings.HasPrefix(name, ".signed"+string(filepath.Separator))
	})
	if len(saved) == 0 {
		t.Errorf("%s has no checkpoint", c.name)
	}
	return func() {
		t.Helper()
		after, err := os.ReadFile(c.eventsPath())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(after, before) || len(after) == len(before) {
			t.Errorf("event log of %s: the old %d bytes are not the beginning of the new %d", c.name, len(before), len(after))
		}
		now := contents(t, checkpoints)
		for name, content := range saved {
			if now[name] != content {
				t.Errorf("%s: %s was %s, is %s", c.name, name, content, now[name])
			}
		}
	}
}
