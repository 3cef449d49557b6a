package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/psyche-go/psyche/base/atomicfile"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

const (
	snapshotMagic = "psychesnap/17\n"
	namedMagic    = "psychesnap/18\n" // magic of a snapshot with names
	snapshotHead  = len(snapshotMagic) + 8 + 8 + sha256.Size + 1
	maxStarts     = 16 // heads of a snapshot, more than a log ever keeps
	// maxSnapshotSize is the maximum size of a snapshot in bytes.
	maxSnapshotSize = snapshotHead + maxStarts*wire.HeadSize + 2 + core.MaxNames*(identity.IDSize+1+coordinator.MaxMemberName) + coordinator.MaxStateSize + sha256.Size
)

// errSnapshot means that a file is not a snapshot of its journal.
var errSnapshot = errors.New("snapshot cannot be used")

// snapshot is a state of a run with its position in the journal. The journal's next record at this
// position is a digest of the state (RecordDigest). The first record therefore reveals a snapshot
// that was modified or belongs to another journal.
//
//	file = magic, offset, entries (8 bytes each, little endian), hash of the entry before,
//	       number of heads (1 byte), heads at the starts of the newest rounds,
//	       if there are names: their number (2 bytes), and for each its key, length (1 byte) and text,
//	       canonical state, SHA-256 of everything before
type snapshot struct {
	position journal.Position
	starts   []wire.Head
	names    core.Names // from the log; not confirmed by the digest
	state    []byte
}

// head returns the head of the log at the snapshot.
func (s snapshot) head() wire.Head {
	return wire.Head{Index: uint64(s.position.Entries), Hash: s.position.Last}
}

// appendTo appends the bytes of the file.
func (s snapshot) appendTo(b []byte) []byte {
	start := len(b)
	magic := snapshotMagic
	if len(s.names) > 0 {
		magic = namedMagic
	}
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.position.Offset))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.position.Entries))
	b = append(b, s.position.Last[:]...)
	b = append(b, byte(len(s.starts)))
	for _, start := range s.starts {
		b = start.AppendTo(b)
	}
	if len(s.names) > 0 {
		b = appendNames(b, s.names)
	}
	b = append(b, s.state...)
	hash := sha256.Sum256(b[start:])
	return append(b, hash[:]...)
}

// decodeSnapshot parses the content of a file.
func decodeSnapshot(content []byte) (snapshot, coordinator.State, error) {
	if len(content) < snapshotHead+sha256.Size || len(content) > maxSnapshotSize ||
		!bytes.HasPrefix(content, []byte(snapshotMagic)) && !bytes.HasPrefix(content, []byte(namedMagic)) {
		return snapshot{}, coordinator.State{}, fmt.Errorf("%w: not a snapshot of this version", errSnapshot)
	}
	body, hash := content[:len(content)-sha256.Size], content[len(content)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], hash) {
		return snapshot{}, coordinator.State{}, fmt.Errorf("%w: the file is damaged", errSnapshot)
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
		return snapshot{}, coordinator.State{}, fmt.Errorf("%w: invalid number of heads, %d", errSnapshot, starts)
	}
	for range starts {
		head, err := wire.DecodeHead(rest[:wire.HeadSize])
		if err != nil {
			return snapshot{}, coordinator.State{}, fmt.Errorf("%w: %w", errSnapshot, err)
		}
		s.starts, rest = append(s.starts, head), rest[wire.HeadSize:]
	}
	if bytes.HasPrefix(content, []byte(namedMagic)) {
		var err error
		if s.names, rest, err = readNames(rest); err != nil {
			return snapshot{}, coordinator.State{}, err
		}
	}
	s.state = rest
	if offset == 0 || offset > 1<<62 || entries > offset {
		return snapshot{}, coordinator.State{}, fmt.Errorf("%w: invalid offset %d", errSnapshot, offset)
	}
	s.position.Offset, s.position.Entries = int64(offset), int(entries)
	state, err := coordinator.Decode(s.state)
	if err != nil {
		return snapshot{}, coordinator.State{}, fmt.Errorf("%w: %w", errSnapshot, err)
	}
	return s, state, nil
}

// readSnapshot reads a snapshot file. It returns fs.ErrNotExist for a missing file.
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

// write replaces the file at path atomically.
func (s snapshot) write(path string) error { return atomicfile.Write(path, s.appendTo(nil), 0o600) }

// appendNames appends names in ascending order of keys.
func appendNames(b []byte, names core.Names) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(names)))
	for _, id := range slices.SortedFunc(maps.Keys(names), func(a, b identity.ID) int { return bytes.Compare(a[:], b[:]) }) {
		b = append(append(b, id[:]...), byte(len(names[id])))
		b = append(b, names[id]...)
	}
	return b
}

// readNames parses the output of appendNames, and returns the bytes after it.
func readNames(b []byte) (names core.Names, rest []byte, err error) {
	if len(b) < 2 {
		return nil, nil, fmt.Errorf("%w: the names are truncated", errSnapshot)
	}
	names, rest = core.Names{}, b[2:]
	var last []byte
	for range min(int(binary.LittleEndian.Uint16(b)), core.MaxNames) {
		if len(rest) <= identity.IDSize || len(rest) <= identity.IDSize+int(rest[identity.IDSize]) {
			return nil, nil, fmt.Errorf("%w: the names are truncated", errSnapshot)
		}
		id, name := rest[:identity.IDSize], rest[identity.IDSize+1:][:rest[identity.IDSize]]
		if bytes.Compare(last, id) >= 0 {
			return nil, nil, fmt.Errorf("%w: the names are not in order", errSnapshot)
		}
		names[identity.ID(id)], last, rest = string(name), id, rest[identity.IDSize+1+len(name):]
	}
	if n := len(names); n == 0 || n != int(binary.LittleEndian.Uint16(b)) {
		return nil, nil, fmt.Errorf("%w: invalid number of names, %d; at most %d are allowed", errSnapshot, binary.LittleEndian.Uint16(b), core.MaxNames)
	}
	return names, rest, nil
}
