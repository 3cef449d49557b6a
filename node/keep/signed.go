package keep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// signedFolder is in the checkpoint folder, like the optimizers' folder.
	signedFolder = ".signed"

	signedSlots    = 2
	signedSlotSize = 32 + 4 + 4 // run, step, checksum of both
)

// errUnreadable means that a signing record has no complete slot.
var errUnreadable = errors.New("the file has no complete record")

// errSigned means that another process of this client may have signed a result of the step.
var errSigned = errors.New("another process with this key and folder has recorded its signature of a result of this or a later step; run only one process with each key")

// Signed returns the name of the file with the newest step for which this client signed a result.
func (f Folder) Signed() string {
	return filepath.Join(f.Dir, signedFolder, fmt.Sprintf("%s-%x", checkpointPrefix(f.RunID), f.ID[:8]))
}

// Trained reports whether any process of this client has recorded a signature of a result, in any
// run of this name.
func (f Folder) Trained() bool {
	_, err := os.Stat(f.Signed())
	return err == nil
}

// NewestSigned returns the newest step of a run for which any process of this client signed a
// result, as recorded by NoteSigned. found is false if there is no record of this run.
func (f Folder) NewestSigned(run [32]byte) (step uint32, found bool, err error) {
	if f.Dir == "" {
		return 0, false, nil
	}
	b, err := os.ReadFile(f.Signed())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("read the newest signed step: %w", err)
	}
	step, found, whole := newestSigned(b, run)
	if !whole {
		return 0, false, fmt.Errorf("read the newest signed step: %s: %w; the file may be removed while no round runs", f.Signed(), errUnreadable)
	}
	return step, found, nil
}

// newestSigned decodes a signing record. whole is false if none of its slots is complete.
func newestSigned(b []byte, run [32]byte) (step uint32, found, whole bool) {
	for slot := range signedSlots {
		of, noted, ok := signedSlot(b, slot)
		whole = whole || ok
		if ok && of == run && (!found || noted > step) {
			step, found = noted, true
		}
	}
	return step, found, whole
}

// NoteSigned records that the client is about to sign a result of a step. It returns when the record
// would survive a crash of the machine. It returns errSigned if this step or a later step is already
// recorded: a process calls NoteSigned once for each step. The signing record has its final size from
// the start, so that a full disk does not prevent writing. The record has two slots, and NoteSigned
// overwrites the older slot, so that a torn write loses nothing.
func (f Folder) NoteSigned(run [32]byte, step uint32) (err error) {
	if f.Dir == "" {
		return nil
	}
	path := f.Signed()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("record the newest signed step: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("record the newest signed step: %w", err)
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = fmt.Errorf("record the newest signed step: %w", err)
		}
	}()
	old := make([]byte, signedSlots*signedSlotSize)
	n, _ := file.ReadAt(old, 0) // a missing part counts as incomplete
	if noted, found, _ := newestSigned(old[:n], run); found && noted >= step {
		return fmt.Errorf("%s: step %d: %w", path, noted, errSigned)
	}
	if n < len(old) {
		if err := file.Truncate(int64(len(old))); err != nil {
			return err
		}
		if _, err := file.WriteAt(make([]byte, len(old)-n), int64(n)); err != nil {
			return err
		}
	}
	b := append(make([]byte, 0, signedSlotSize), run[:]...)
	b = binary.LittleEndian.AppendUint32(b, step)
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	if _, err := file.WriteAt(b, int64(olderSlot(old[:n], run)*signedSlotSize)); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	// File and folder may be new, even if an earlier process created them, because it may have been
	// killed before this call.
	return errors.Join(syncFolder(filepath.Dir(path)), syncFolder(f.Dir))
}

// signedSlot decodes one slot of a signing record. ok is false if it is incomplete.
func signedSlot(b []byte, slot int) (run [32]byte, step uint32, ok bool) {
	if len(b) < (slot+1)*signedSlotSize {
		return run, 0, false
	}
	b = b[slot*signedSlotSize:][:signedSlotSize]
	if crc32.ChecksumIEEE(b[:36]) != binary.LittleEndian.Uint32(b[36:]) {
		return run, 0, false
	}
	return [32]byte(b), binary.LittleEndian.Uint32(b[32:]), true
}

// olderSlot returns the incomplete slot, or else the one with the earlier step.
func olderSlot(b []byte, run [32]byte) int {
	oldest, minimum := 0, ^uint32(0)
	for slot := range signedSlots {
		of, step, ok := signedSlot(b, slot)
		if !ok || of != run {
			return slot
		}
		if step < minimum {
			oldest, minimum = slot, step
		}
	}
	return oldest
}

// syncFolder makes file names in a folder survive a crash of the machine.
func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
