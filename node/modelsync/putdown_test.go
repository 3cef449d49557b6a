package modelsync

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
)

// putDown makes the client serve the run's model from a folder. It returns the folder and the log.
func (c *rig) putDown() (m *Model, dir string, log *bytes.Buffer) {
	c.t.Helper()
	log = &bytes.Buffer{}
	c.options.Log = slog.New(slog.NewTextHandler(log, nil))
	c.models.Large = 0
	c.onDisk(c.after, digestOf(c.after))
	dir = c.options.Folder.Checkpoint(lastStep)
	m = &Model{Step: lastStep}
	c.must(m.Publish(c.t.Context(), c.options.Tasks, Idle, c.network.Lend, c.after))
	c.models.Share(m, m.Digest)
	c.models.PutDown(m, dir)
	return m, dir, log
}

// given returns the number of tensors of the run's model that the peer can fetch from the client.
func (c *rig) given() (count int) {
	c.t.Helper()
	for _, tensor := range c.after.Manifest().Tensors {
		data, err := c.peer.Fetch(c.t.Context(), tensor.Hash, tensor.Size(), []identity.ID{clienttest.Key(0).ID()})
		if err == nil && len(data) > 0 {
			count++
		}
		c.peer.Drop(tensor.Hash)
	}
	return count
}

func (c *rig) renew() {
	s := &coordinator.State{}
	s.Model.Checkpoint = c.request.Definition.Checkpoint
	c.models.Renew(s)
}

// TestPutDown checks that a large model is removed from memory, and is served and loaded from its
// folder, even after the folder was pruned.
func TestPutDown(t *testing.T) {
	c := newRig(t)
	m, dir, log := c.putDown()
	if len(m.Snapshot.Tensors) > 0 || c.network.InFiles() != clienttest.Width {
		t.Fatalf("%d tensors are in memory, %d in files: %s", len(m.Snapshot.Tensors), c.network.InFiles(), log)
	}
	c.must(os.RemoveAll(dir))
	c.renew()
	if got := c.given(); got != clienttest.Width || c.models.Shared(m.Digest) == nil {
		t.Errorf("the peer gets %d tensors: %s", got, log)
	}
	a, err := c.obtain()
	if err != nil || a.Model.Source != "held" {
		t.Fatalf("from %q, %v", a.Model.Source, err)
	}
	c.check(a)
	c.models.PutDown(a.Model, a.Model.Dir)
	if shared := c.models.Shared(m.Digest); len(shared.Snapshot.Tensors) > 0 || c.given() != clienttest.Width {
		t.Error("the model is in memory again")
	}
	c.models.keepShares(func(*Model) bool { return false })
	if c.network.InFiles() > 0 {
		t.Errorf("%d files are still held", c.network.InFiles())
	}
}

// TestPutDownOnce checks that a small model stays in memory, as well as a model that is not shared.
func TestPutDownOnce(t *testing.T) {
	c := newRig(t)
	c.onDisk(c.after, digestOf(c.after))
	m := &Model{Step: lastStep}
	c.must(m.Publish(t.Context(), c.options.Tasks, Idle, c.network.Lend, c.after))
	for _, large := range []uint64{m.Size, m.Size - 1} {
		c.models.Large = large
		c.models.PutDown(m, c.options.Folder.Checkpoint(lastStep))
		if len(m.Snapshot.Tensors) == 0 || c.network.InFiles() > 0 {
			t.Error("the model is not in memory")
		}
		if large == m.Size {
			c.models.Share(m, m.Digest)
			c.models.PutDown(m, c.options.Folder.Checkpoint(lastStep))
			c.models.keepShares(func(*Model) bool { return false })
		}
	}
}

// TestPutDownInTheWrongFolder checks that a folder with a different model is not served.
func TestPutDownInTheWrongFolder(t *testing.T) {
	c := newRig(t)
	c.models.Large = 0
	c.onDisk(c.wrong, digestOf(c.after))
	m := &Model{Step: lastStep}
	c.must(m.Publish(t.Context(), c.options.Tasks, Idle, c.network.Lend, c.after))
	c.models.Share(m, m.Digest)
	c.models.PutDown(m, c.options.Folder.Checkpoint(lastStep))
	if got := c.given(); got != clienttest.Width || c.network.InFiles() > 0 {
		t.Errorf("the peer gets %d tensors, %d are in files", got, c.network.InFiles())
	}
	a, err := c.obtain()
	if err != nil || a.Model.Source != "held" {
		t.Fatalf("from %q, %v", a.Model.Source, err)
	}
	c.check(a)
}

// TestFileBehindOurBack checks that a file that was changed or cut is no longer served. This is
// logged once, and the client gets the model from a different source.
func TestFileBehindOurBack(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"cut": func(path string) error { return os.Truncate(path, 100) },
		"changed": func(path string) error {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content[len(content)-1]++
			return os.WriteFile(path, content, 0o600)
		},
	} {
		for _, asked := range []string{"by a peer", "by the client"} {
			t.Run(name+", asked "+asked, func(t *testing.T) {
				c := newRig(t)
				m, dir, log := c.putDown()
				c.must(spoil(filepath.Join(dir, "model.safetensors")))
				if asked == "by a peer" {
					if got := c.given(); got == clienttest.Width {
						t.Error("the peer gets all tensors")
					}
					c.renew()
					if c.models.Shared(m.Digest) != nil || c.network.InFiles() > 0 {
						t.Error("the model is still served")
					}
					if said := strings.Count(log.String(), "level=ERROR"); said != 1 {
						t.Errorf("that is reported %d times", said)
					}
				}
				c.modelAt()
				a, err := c.obtain()
				if err != nil || a.Model.Source != "peers" {
					t.Fatalf("from %q, %v", a.Model.Source, err)
				}
				c.check(a)
				c.models.PutDown(a.Model, a.Model.Dir)
				c.renew()
				if shared := c.models.Shared(m.Digest); shared == nil || len(shared.Snapshot.Tensors) > 0 || c.given() != clienttest.Width {
					t.Error("a model from peers is not served, or in memory twice")
				}
			})
		}
	}
}
