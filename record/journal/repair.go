package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/base/atomicfile"
	"github.com/psyche-go/psyche/base/filelock"
)

// maxCut is the maximum number of bytes that Repair examines and removes. A single write of the
// server is smaller.
const maxCut = 64 << 20

// ErrSound means that the journal needs no repair.
var ErrSound = errors.New("the journal needs no repair")

// Damage describes the data after the last whole entry of a damaged journal.
type Damage struct {
	Entries int   // whole entries before the damage
	Offset  int64 // start of the damage
	Size    int64 // from Offset to the end of the file
	// Following is the offset of another entry inside the damage, which may have been acknowledged;
	// 0: none recognised.
	Following int64
	Reason    error
}

// Inspect reads the journal at path and describes the damage at its end. It returns ErrSound if
// Open would accept the file.
func Inspect(path string) (Damage, error) {
	file, err := os.Open(path)
	if err != nil {
		return Damage{}, fmt.Errorf("inspect journal: %w", err)
	}
	defer func() { _ = file.Close() }()
	return inspect(file)
}

func inspect(file *os.File) (Damage, error) {
	summary, damaged := Read(file, func([]byte) error { return nil })
	switch {
	case damaged == nil:
		return Damage{}, ErrSound
	case !errors.Is(damaged, ErrDamaged) || summary.Entries == 0: // a repair would remove everything
		return Damage{}, damaged
	}
	info, err := file.Stat()
	if err != nil {
		return Damage{}, err
	}
	d := Damage{Entries: summary.Entries, Offset: summary.Size, Size: info.Size() - summary.Size, Reason: damaged}
	if d.Size > maxCut {
		return d, fmt.Errorf("%d bytes follow the last whole entry, but one write has at most %d, so this is not a torn write; restore the file from a copy: %w", d.Size, maxCut, damaged)
	}
	tail := make([]byte, d.Size)
	if _, err := io.ReadFull(io.NewSectionReader(file, d.Offset, d.Size), tail); err != nil {
		return d, err
	}
	if at := findEntry(tail); at > 0 {
		d.Following = d.Offset + int64(at)
	}
	return d, nil
}

// findEntry returns the offset of the first valid entry header after the first byte of tail, or 0.
func findEntry(tail []byte) int {
	for at := 1; at+headerSize <= len(tail); at++ {
		header := tail[at : at+headerSize]
		if binary.BigEndian.Uint32(header) > MaxPayload {
			continue
		}
		if check := sha256.Sum256(header[:headerSize-4]); bytes.Equal(check[:4], header[headerSize-4:]) {
			return at
		}
	}
	return 0
}

// Repair removes the damaged end of the journal at path. It saves the removed bytes in a new file
// and returns its path.
func Repair(path string, d Damage) (kept string, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("repair journal: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := filelock.Try(file); errors.Is(err, filelock.ErrHeld) {
		return "", fmt.Errorf("repair journal %s: %w", path, ErrLocked)
	} else if err != nil {
		return "", err
	}
	now, err := inspect(file)
	if err != nil {
		return "", fmt.Errorf("repair journal %s: %w", path, err)
	}
	if now.Offset != d.Offset || now.Size != d.Size {
		return "", fmt.Errorf("repair journal %s: the file changed during the check; run the command again", path)
	}
	kept = fmt.Sprintf("%s.cut-%d", path, d.Offset)
	if err := keep(kept, io.NewSectionReader(file, d.Offset, d.Size)); err != nil {
		return "", fmt.Errorf("repair journal %s: store the removed part: %w", path, err)
	}
	if err := file.Truncate(d.Offset); err != nil {
		return kept, fmt.Errorf("repair journal %s: %w", path, err)
	}
	return kept, file.Sync()
}

// keep writes and syncs a new file.
func keep(path string, source io.Reader) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, source)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close(), atomicfile.SyncFolder(filepath.Dir(path)))
}
