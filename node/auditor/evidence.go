package auditor

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/record/evidence"
)

// keptEvidence is the maximum number of evidence files of a run. The newest are kept.
const keptEvidence = 8

// saveEvidence writes the evidence for an accusation to a file, so that anyone can examine it again.
// It writes no file if the trainer opened nothing, or if this client has no folder.
func (a *Auditor) saveEvidence(q *auditCase) {
	root, _ := a.past.previous(&q.result)
	if a.Dir == "" || len(q.opening) == 0 || q.result.Announced == "" {
		return
	}
	dir, payloads, key, result, opening := filepath.Join(a.Dir, a.Run), a.payloads, q.resultID, q.result, q.opening
	path := filepath.Join(dir, evidence.FileName(key.Step, identity.ID(key.Trainer)))
	a.Tasks.Spawn(func(context.Context) func() {
		payload, err := payloads.Get(result.Commitment)
		if err == nil {
			err = writeEvidence(path, evidence.File{Announcement: []byte(result.Announced), Result: payload, Previous: root, Opening: opening})
		}
		return func() {
			if err != nil {
				a.Log.Warn("cannot save the evidence file", "step", key.Step, "trainer", identity.ID(key.Trainer).Short(), "err", err)
				return
			}
			a.Log.Info("saved the evidence file of an accusation", "step", key.Step, "trainer", identity.ID(key.Trainer).Short(), "file", path)
		}
	})
}

// writeEvidence writes a file, and removes the oldest of its kind in the folder if there are too
// many.
func writeEvidence(path string, e evidence.File) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path, e.Encode(), 0o600); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	written := make(map[string]int64) // in nanoseconds
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && filepath.Ext(entry.Name()) == evidence.Suffix {
			written[filepath.Join(dir, entry.Name())] = info.ModTime().UnixNano()
		}
	}
	names := slices.SortedFunc(maps.Keys(written), func(a, b string) int { return cmp.Compare(written[a], written[b]) })
	for _, name := range names[:max(0, len(names)-keptEvidence)] {
		if name != path {
			_ = os.Remove(name) // if it fails, the next call tries again
		}
	}
	return nil
}
