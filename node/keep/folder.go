package keep

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// Folder is the folder in which a client keeps its files of a run. Without Dir it keeps nothing.
type Folder struct {
	Dir   string
	RunID string
	ID    identity.ID // of the client
	taken bool        // the methods use intermediate checkpoints; see Intermediates
}

// Intermediates returns a Folder for intermediate checkpoints instead of checkpoints.
func (f Folder) Intermediates() Folder { f.taken = true; return f }

// prefix returns the start of the names of the folders that f uses.
func (f Folder) prefix() string {
	if f.taken {
		return commitPrefix(f.RunID)
	}
	return checkpointPrefix(f.RunID)
}

// Checkpoint returns the folder of the checkpoint after a step.
func (f Folder) Checkpoint(step uint32) string {
	return filepath.Join(f.Dir, f.prefix()+strconv.FormatUint(uint64(step), 10))
}

// Intermediate returns the folder of the intermediate checkpoint after a step.
func (f Folder) Intermediate(step uint32) string {
	return f.Intermediates().Checkpoint(step)
}

// SaveIntermediate writes an intermediate checkpoint. It is stored apart from the checkpoints,
// because it is not known yet whether the run records it.
func (f Folder) SaveIntermediate(s checkpoint.Snapshot, facts checkpoint.Facts) error {
	if f.Dir == "" {
		return nil
	}
	dir := f.Intermediate(facts.Step)
	if held, err := checkpoint.ReadFacts(dir); err == nil && held.Digest != facts.Digest {
		if err := checkpoint.RemoveDir(dir); err != nil { // an unrecorded model
			return fmt.Errorf("replace %s: %w", dir, err)
		}
	}
	return writeCheckpoint(dir, s, facts.Extra())
}

// FindIntermediate returns the folder of the intermediate checkpoint after a step, if it has the
// digest. It does not move the folder, because the epoch is not over.
func (f Folder) FindIntermediate(step uint32, digest [32]byte) (dir string, err error) {
	noted, err := f.Intermediates().Digest(step)
	if err == nil && noted != digest {
		err = fmt.Errorf("%w: %s has a different model of the step", checkpoint.ErrInvalid, f.Intermediate(step))
	}
	return f.Intermediate(step), err
}

// DropIntermediates removes the intermediate checkpoints of all steps for which keep returns false.
func (f Folder) DropIntermediates(keep func(step uint32) bool) (failed error) {
	if f.Dir == "" {
		return nil
	}
	entries, err := os.ReadDir(f.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if step, ok := stepOf(entry.Name(), commitPrefix(f.RunID)); ok && entry.IsDir() && !keep(uint32(step)) {
			failed = errors.Join(failed, checkpoint.RemoveDir(filepath.Join(f.Dir, entry.Name())))
		}
	}
	return failed
}

// NewestBefore returns the step of the newest saved checkpoint of the run before a step.
func (f Folder) NewestBefore(step uint32) (newest uint32, found bool) {
	if f.Dir == "" {
		return 0, false
	}
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return 0, false
	}
	for _, entry := range entries {
		saved, ok := stepOf(entry.Name(), f.prefix())
		if ok && uint32(saved) < step && (!found || uint32(saved) > newest) {
			found, newest = true, uint32(saved)
		}
	}
	return newest, found
}

// Digest returns the digest stored with the checkpoint of a step.
func (f Folder) Digest(step uint32) (digest [32]byte, err error) {
	dir := f.Checkpoint(step)
	facts, err := checkpoint.ReadFacts(dir)
	if err != nil {
		return digest, err
	}
	if !parseDigest(&digest, facts.Digest) || facts.RunID != f.RunID || facts.Step != step {
		return digest, notAsNoted(dir)
	}
	return digest, nil
}

// Read reads the checkpoint of a step and compares it with a digest.
func (f Folder) Read(step uint32, digest [32]byte) (checkpoint.Snapshot, error) {
	dir := f.Checkpoint(step)
	snapshot, err := checkpoint.ReadDir(dir)
	if err != nil {
		return snapshot, err
	}
	if snapshot.Step != step || snapshot.Manifest().Digest() != digest {
		return snapshot, notAsNoted(dir)
	}
	return snapshot, nil
}

// names reports whether a folder contains a checkpoint of this run and step, according to its
// facts.
func (f Folder) names(dir string, step uint32) bool {
	facts, err := checkpoint.ReadFacts(dir)
	return err == nil && facts.RunID == f.RunID && facts.Step == step && checkpoint.CheckRemovable(dir) == nil
}

func notAsNoted(dir string) error {
	return fmt.Errorf("%w: %s does not match %s", checkpoint.ErrInvalid, dir, checkpoint.FactsFile)
}

// parseDigest parses the hexadecimal digits of a digest.
func parseDigest(digest *[32]byte, text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == len(digest) && copy(digest[:], raw) == len(digest)
}

// Name returns the run's name in the form used in file names.
func (f Folder) Name() string { return strings.TrimSuffix(checkpointPrefix(f.RunID), "-step") }

// checkpointPrefix returns the start of the names of a run's checkpoint folders: the run ID, with
// characters replaced that a file name must not have.
func checkpointPrefix(runID string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, runID)
	return safe + "-step"
}

// commitPrefix returns the start of the names of the folders of intermediate checkpoints.
func commitPrefix(runID string) string {
	return strings.TrimSuffix(checkpointPrefix(runID), "step") + "commit"
}

// stepOf returns the step in the name of a checkpoint folder of the run.
func stepOf(name, prefix string) (step uint64, ok bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	step, err := strconv.ParseUint(digits, 10, 32)
	return step, ok && err == nil && digits == strconv.FormatUint(step, 10)
}
