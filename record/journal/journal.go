package journal

import (
	"bufio"
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

// MaxPayload is the maximum size of an entry's payload.
const MaxPayload = 1 << 20

const (
	magicName  = "psychelog/"
	format     = "14" // changes with the coordinator's rules, which determine the state after a replay
	magic      = magicName + format + "\n"
	headerSize = 4 + sha256.Size + 4
)

// Errors of this package.
var (
	// ErrDamaged means that a file contains something that no writer wrote.
	ErrDamaged = errors.New("journal is damaged")
	// errVersion means that a journal has another format.
	errVersion = errors.New("journal has an unsupported format, want " + format)
	// ErrLocked means that another process has the file open for writing.
	ErrLocked = errors.New("journal is in use by another process; stop that process first")
	// errPosition means that a file does not contain the entries of a Position.
	errPosition = errors.New("journal lacks entries that it had before")
	// ErrFull means that the disk has no space for the appended entries. None of them is in the
	// file, and Commit may be tried again.
	ErrFull = errors.New("no disk space for the journal")
	// ErrTooLarge means that a payload is longer than MaxPayload.
	ErrTooLarge = errors.New("journal entry is too large")
)

// errTorn means that the file ends inside an entry.
var errTorn = errors.New("torn tail")

// Journal is a journal file that is open for appending. Only one goroutine may use it.
type Journal struct {
	file    file
	last    [sha256.Size]byte // hash of the newest entry
	entries int
	size    int64  // number of bytes that are written and synced
	pending []byte // entries for the next Commit
	failed  error  // first write error; after it, the end of the file is unknown
}

// Summary is the result of Open or Read.
type Summary struct {
	Entries int
	Size    int64             // bytes of whole entries, including the magic
	Torn    int64             // bytes of a torn tail after the entries
	Last    [sha256.Size]byte // hash of the newest entry
}

// Position is a position between two entries, with the hash of the preceding entry.
type Position struct {
	Offset  int64
	Entries int
	Last    [sha256.Size]byte // hash of the preceding entry
}

// Open opens the journal at path for appending, and creates it if it does not exist. It verifies
// the whole file, passes every payload in order to replay (which must not keep it) and removes a
// torn tail. If replay returns an error, Open stops and returns that error with the entry's offset.
func Open(path string, replay func(payload []byte) error) (*Journal, Summary, error) {
	return OpenAt(path, Position{}, replay)
}

// OpenAt is like Open, but starts at from: the caller has already read the file up to this position.
// OpenAt does not verify earlier entries. It only compares the hash of the last of them with the hash in
// from, and returns errPosition if they differ. The zero Position is the start of the file.
func OpenAt(path string, from Position, replay func(payload []byte) error) (*Journal, Summary, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, Summary{}, fmt.Errorf("open journal: %w", err)
	}
	summary, err := prepare(file, from, replay)
	if err != nil {
		_ = file.Close()
		return nil, summary, fmt.Errorf("open journal %s: %w", path, err)
	}
	return &Journal{file: file, last: summary.Last, entries: summary.Entries, size: summary.Size}, summary, nil
}

// prepare locks and reads the file, removes its torn tail and sets its offset to the end.
func prepare(file *os.File, from Position, replay func([]byte) error) (Summary, error) {
	if err := filelock.Try(file); errors.Is(err, filelock.ErrHeld) {
		return Summary{}, ErrLocked
	} else if err != nil {
		return Summary{}, err
	}
	summary, err := readFrom(file, from, replay)
	if err != nil {
		return summary, err
	}
	if summary.Size == 0 {
		// The file is new, or its very first write was torn.
		if err := file.Truncate(0); err != nil {
			return summary, err
		}
		if _, err := file.WriteAt([]byte(magic), 0); err != nil {
			return summary, err
		}
		summary.Size = int64(len(magic))
		if err := atomicfile.SyncFolder(filepath.Dir(file.Name())); err != nil {
			return summary, err
		}
	} else if summary.Torn > 0 {
		if err := file.Truncate(summary.Size); err != nil {
			return summary, fmt.Errorf("cut torn tail: %w", err)
		}
	}
	if err := file.Sync(); err != nil {
		return summary, err
	}
	_, err = file.Seek(summary.Size, io.SeekStart)
	return summary, err
}

// ReadFrom is like Read, but starts at from: the caller has already read the file up to this position.
// Another process may be writing to the file: a torn entry at the end may be whole at the next
// call. ReadFrom does not verify earlier entries. It only compares the hash of the last of them with
// the hash in from, and returns errPosition if they differ. The zero Position is the start of the file.
func ReadFrom(file *os.File, from Position, replay func(payload []byte) error) (Summary, error) {
	return readFrom(file, from, replay)
}

// readFrom reads the entries after a position.
func readFrom(file *os.File, from Position, replay func([]byte) error) (Summary, error) {
	if from.Offset == 0 {
		return read(file, replay)
	}
	var last [sha256.Size]byte
	if _, err := file.ReadAt(last[:], max(0, from.Offset-sha256.Size)); err != nil || last != from.Last {
		return Summary{}, fmt.Errorf("%w at offset %d", errPosition, from.Offset)
	}
	if _, err := file.Seek(from.Offset, io.SeekStart); err != nil {
		return Summary{}, err
	}
	return readEntries(bufio.NewReaderSize(file, 64<<10), Summary{Entries: from.Entries, Size: from.Offset, Last: from.Last}, replay)
}

// Append adds an entry to the next Commit.
func (j *Journal) Append(payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(payload), MaxPayload)
	}
	j.pending, j.last = appendEntry(j.pending, j.last, payload)
	j.entries++
	return nil
}

// Magic is the start of every journal.
const Magic = magic

// AppendEntry appends the bytes of the entry that follows the entry with the hash previous (zero
// for the first) and returns its hash. It is for a journal that is not kept in a file; Read can
// read it.
func AppendEntry(b []byte, previous [sha256.Size]byte, payload []byte) ([]byte, [sha256.Size]byte) {
	return appendEntry(b, previous, payload)
}

// appendEntry appends the bytes of an entry to b and returns the entry's hash.
func appendEntry(b []byte, previous [sha256.Size]byte, payload []byte) ([]byte, [sha256.Size]byte) {
	start := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, previous[:]...)
	check := sha256.Sum256(b[start:])
	b = append(b, check[:4]...)
	b = append(b, payload...)
	hash := sha256.Sum256(b[start:])
	return append(b, hash[:]...), hash
}

// Commit writes the appended entries and waits until they are on the disk. After an error other
// than ErrFull the journal refuses all further calls. Opening it again determines what is on the
// disk.
func (j *Journal) Commit() error {
	if j.failed != nil {
		return j.failed
	}
	if len(j.pending) == 0 {
		return nil
	}
	if _, err := j.file.Write(j.pending); err != nil {
		return j.undo(fmt.Errorf("write journal: %w", err))
	}
	if err := j.file.Sync(); err != nil {
		j.failed = fmt.Errorf("write journal: %w", err)
		return j.failed
	}
	j.size += int64(len(j.pending))
	j.pending = j.pending[:0]
	return nil
}

// ReadAt reads committed bytes. Any goroutine may call it while the journal is open.
func (j *Journal) ReadAt(b []byte, offset int64) (int, error) { return j.file.ReadAt(b, offset) }

// EntryHead is the number of bytes of an entry before its payload, and EntryTail the number after
// it.
const (
	EntryHead = headerSize
	EntryTail = sha256.Size
)

// PayloadSize returns the payload size of an entry, given its first bytes.
func PayloadSize(head []byte) int { return int(binary.BigEndian.Uint32(head)) }

// First is the offset of the first entry.
const First = int64(len(magic))

// OpenTemporary creates a journal that is deleted when the process ends. Other processes do not see
// it, and Commit does not wait for the disk.
func OpenTemporary() (*Journal, error) {
	made, err := os.CreateTemp("", "psyche-*.journal")
	if err != nil {
		return nil, fmt.Errorf("make a journal: %w", err)
	}
	if err := errors.Join(os.Remove(made.Name()), writeMagic(made)); err != nil {
		return nil, fmt.Errorf("make a journal: %w", errors.Join(err, made.Close()))
	}
	return &Journal{file: unsynced{made}, size: First}, nil
}

func writeMagic(f *os.File) error {
	_, err := f.WriteString(magic)
	return err
}

// unsynced is a file without a name, which disappears when the process ends.
type unsynced struct{ *os.File }

func (unsynced) Sync() error { return nil }

// End returns the size that the journal will have once the appended entries are committed.
func (j *Journal) End() int64 { return j.size + int64(len(j.pending)) }

// Size returns the number of bytes that are known to be on the disk.
func (j *Journal) Size() int64 { return j.size }

// Position returns the end of the journal. All appended entries must be committed.
func (j *Journal) Position() Position {
	return Position{Offset: j.size, Entries: j.entries, Last: j.last}
}

// Close closes the file. It drops entries that were appended but not committed.
func (j *Journal) Close() error { return j.file.Close() }

// ErrStop is returned by the callback of Read to stop reading without an error.
var ErrStop = errors.New("stop reading")

// Read verifies the journal in r and passes every payload in order to replay. replay must not keep the
// payload. A torn tail is not an error; Summary.Torn contains its length.
func Read(r io.Reader, replay func(payload []byte) error) (Summary, error) {
	summary, err := read(r, replay)
	if errors.Is(err, ErrStop) {
		err = nil
	}
	return summary, err
}

func read(source io.Reader, replay func([]byte) error) (Summary, error) {
	r := bufio.NewReaderSize(source, 64<<10)
	var summary Summary
	var start [len(magic)]byte
	n, err := io.ReadFull(r, start[:])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if bytes.HasPrefix([]byte(magic), start[:n]) {
			summary.Torn = int64(n)
			return summary, nil
		}
		err = nil
	}
	if err != nil {
		return summary, err
	}
	if other := formatOf(start[:n]); other != "" && other != format {
		return summary, fmt.Errorf("format %s: %w: continue with the program that wrote it, or move it away and begin a new run from the old run's checkpoint", other, errVersion)
	}
	if string(start[:]) != magic {
		return summary, fmt.Errorf("%w at offset 0: the start is not a journal header of this version", ErrDamaged)
	}
	summary.Size = int64(len(magic))
	return readEntries(r, summary, replay)
}

// formatOf returns the format in the first bytes of a file, or an empty string.
func formatOf(start []byte) string {
	rest, named := bytes.CutPrefix(start, []byte(magicName))
	number, _, whole := bytes.Cut(rest, []byte("\n"))
	if !named || !whole || len(bytes.Trim(number, "0123456789")) > 0 {
		return ""
	}
	return string(number)
}

// readEntries reads entries until the end of the file and adds them to the summary.
func readEntries(r *bufio.Reader, summary Summary, replay func([]byte) error) (Summary, error) {
	var buffer bytes.Buffer
	for {
		payload, hash, err := readEntry(r, summary.Last, &buffer)
		switch {
		case errors.Is(err, io.EOF):
			return summary, nil
		case errors.Is(err, errTorn):
			summary.Torn = int64(buffer.Len())
			return summary, nil
		case errors.Is(err, ErrDamaged):
			if zeros, only := zerosOnly(buffer.Bytes(), r); only {
				summary.Torn = zeros
				return summary, nil
			}
		}
		if err != nil {
			return summary, fmt.Errorf("entry %d at offset %d: %w", summary.Entries, summary.Size, err)
		}
		if err := replay(payload); err != nil {
			return summary, fmt.Errorf("entry %d at offset %d: %w", summary.Entries, summary.Size, err)
		}
		summary.Entries++
		summary.Size += int64(buffer.Len())
		summary.Last = hash
	}
}

// zerosOnly reports whether the read part of an entry and all data after it are zeros. It also
// returns their size.
func zerosOnly(entry []byte, rest io.Reader) (int64, bool) {
	isZero := func(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
	size, only := int64(len(entry)), isZero(entry)
	piece := make([]byte, 4<<10)
	for only {
		n, err := rest.Read(piece)
		size, only = size+int64(n), isZero(piece[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		only = only && err == nil
	}
	return size, only
}

// readEntry reads an entry into buffer. It returns io.EOF at the end of the file, and errTorn if
// the file ends inside the entry. Its use of memory depends on the data that exists, not on the
// length in the header.
func readEntry(r io.Reader, previous [sha256.Size]byte, buffer *bytes.Buffer) (payload []byte, hash [sha256.Size]byte, err error) {
	buffer.Reset()
	n, err := io.CopyN(buffer, r, headerSize)
	if errors.Is(err, io.EOF) {
		if n > 0 {
			err = errTorn
		}
		return nil, hash, err
	}
	if err != nil {
		return nil, hash, err
	}
	header := buffer.Bytes()
	length := binary.BigEndian.Uint32(header)
	check := sha256.Sum256(header[:headerSize-4])
	switch {
	case !bytes.Equal(check[:4], header[headerSize-4:]):
		return nil, hash, fmt.Errorf("%w: the entry's header does not verify", ErrDamaged)
	case !bytes.Equal(previous[:], header[4:4+sha256.Size]):
		return nil, hash, fmt.Errorf("%w: the chain is broken, the entry does not follow the one before it", ErrDamaged)
	case length > MaxPayload:
		return nil, hash, fmt.Errorf("%w: the entry claims %d bytes, at most %d", ErrDamaged, length, MaxPayload)
	}
	_, err = io.CopyN(buffer, r, int64(length)+sha256.Size)
	if errors.Is(err, io.EOF) {
		return nil, hash, errTorn
	}
	if err != nil {
		return nil, hash, err
	}
	entry := buffer.Bytes()
	end := len(entry) - sha256.Size
	hash = sha256.Sum256(entry[:end])
	if !bytes.Equal(hash[:], entry[end:]) {
		return nil, hash, fmt.Errorf("%w: the entry's hash does not verify", ErrDamaged)
	}
	return entry[headerSize:end], hash, nil
}
