package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

const (
	snapshotMagic = "psychesnap/11\n"
	snapshotHead  = len(snapshotMagic) + 8 + 8 + sha256.Size + 1
	maxStarts     = 16 // heads of a snapshot, more than are ever kept
	// maxSnapshotSize bounds a snapshot in bytes.
	maxSnapshotSize = snapshotHead + maxStarts*wire.HeadSize + coordinator.MaxStateSize + sha256.Size
)

// errSnapshot says that a file is no snapshot of its journal.
var errSnapshot = errors.New("snapshot cannot be used")

// snapshot is a state of a run and the place of its journal at which it held. The journal's
// next record there is a digest of the state (RecordDigest), so a snapshot that belongs to
// another journal, or was changed, is found out by the first record that follows.
//
//	file = magic, offset, entries (8 bytes each, little endian), hash of the entry before,
//	       number of heads (1 byte), heads at the starts of the newest rounds,
//	       canonical state, SHA-256 of all that
type snapshot struct {
	position journal.Position
	starts   []wire.Head
	state    []byte
}

// head returns the head of the log where the snapshot was taken.
func (s snapshot) head() wire.Head {
	return wire.Head{Index: uint64(s.position.Entries), Hash: s.position.Last}
}

// appendTo appends the bytes of the file.
func (s snapshot) appendTo(b []byte) []byte {
	start := len(b)
	b = append(b, snapshotMagic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.position.Offset))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.position.Entries))
	b = append(b, s.position.Last[:]...)
	b = append(b, byte(len(s.starts)))
	for _, start := range s.starts {
		b = start.AppendTo(b)
	}
	b = append(b, s.state...)
	hash := sha256.Sum256(b[start:])
	return append(b, hash[:]...)
}

// decodeSnapshot reads the content of a file.
func decodeSnapshot(content []byte) (snapshot, coordinator.State, error) {
	if len(content) < snapshotHead+sha256.Size || len(content) > maxSnapshotSize || !bytes.HasPrefix(content, []byte(snapshotMagic)) {
		return snapshot{}, coordinator.State{}, fmt.Errorf("%w: it is no snapshot of this version", errSnapshot)
	}
	body, hash := content[:len(content)-sha256.Size], content[len(content)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], hash) {
		return snapshot{}, coordinator.State{}, fmt.Errorf("%w: it is damaged", errSnapshot)
	}
	rest := body[len(snapshotMagic):]
	number := func() uint64 {
		n := binary.LittleEndian.Uint64(rest)
		rest = rest[8:]
		return n
	}
	var s snapshot
	offset, entries := number(), number()
	s.position.Last = [sha256.Size]byte(rest)
	rest = rest[sha256.Size:]
	starts := int(rest[0])
	rest = rest[1:]
	if starts > maxStarts || len(rest) < starts*wire.HeadSize {
		return snapshot{}, coordinator.State{}, fmt.Errorf("%w: it has %d heads", errSnapshot, starts)
	}
	for range starts {
		head, err := wire.DecodeHead(rest[:wire.HeadSize])
		if err != nil {
			return snapshot{}, coordinator.State{}, fmt.Errorf("%w: %w", errSnapshot, err)
		}
		s.starts, rest = append(s.starts, head), rest[wire.HeadSize:]
	}
	s.state = rest
	if offset == 0 || offset > 1<<62 || entries > offset {
		return snapshot{}, coordinator.State{}, fmt.Errorf("%w: it is of offset %d", errSnapshot, offset)
	}
	s.position.Offset, s.position.Entries = int64(offset), int(entries)
	state, err := coordinator.Decode(s.state)
	if err != nil {
		return snapshot{}, coordinator.State{}, fmt.Errorf("%w: %w", errSnapshot, err)
	}
	return s, state, nil
}

// readSnapshot reads a snapshot file. A file that is not there is fs.ErrNotExist.
func readSnapshot(path string) (snapshot, coordinator.State, error) {
	file, err := os.Open(path)
	if err != nil {
		return snapshot{}, coordinator.State{}, err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, int64(maxSnapshotSize)+1))
	if err != nil {
		return snapshot{}, coordinator.State{}, err
	}
	return decodeSnapshot(content)
}

// write replaces the file at path; it is there whole, or the one before is.
func (s snapshot) write(path string) error { return replaceFile(path, s.appendTo(nil)) }
