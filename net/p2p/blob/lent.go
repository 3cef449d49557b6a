package blob

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/bao"
)

// errChanged means that the caller's file has changed since it was lent.
var errChanged = errors.New("the file was changed")

// readAtOnce is the number of bytes of a lent file that are read at once for its hash.
const readAtOnce = 128 << 10

// lentFile is the caller's data on its disk.
type lentFile struct {
	*io.SectionReader
	lost func(error)
}

// Lend is like Put, for data that the caller keeps in memory until Drop anyway. The data does not
// count against the store's limits and is never written to the folder. Lend computes the whole hash
// tree, so that requests for a part of the data need not wait for it. For a gigabyte this takes a
// second or more, and a holder that answers so late counts as silent.
func (s *Store) Lend(data []byte) Hash {
	if data == nil { // nil would mean that the data is in a file
		data = []byte{}
	}
	outboard, sum := bao.EncodeBuf(data, group, true)
	h := Hash(sum)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.blobs[h]; e == nil || e.from != nil {
		s.blobs[h] = &entry{hash: h, size: uint64(len(data)), data: data, outboard: made(outboard)}
	}
	s.retain(h)
	return h
}

// LendFrom is like Lend, for data in a file, which LendFrom reads once to hash it. The file must
// stay open, even after Drop, because a stream may still be sending the data. The caller must
// therefore leave closing it to the garbage collector. Only the hash tree and the part being sent
// are in memory. The store verifies data against the hash before it sends it or returns it from get.
// If the data has changed or cannot be read, the store drops it and calls lost with the reason, from
// any goroutine.
func (s *Store) LendFrom(data *io.SectionReader, lost func(error)) (Hash, error) {
	size := data.Size()
	tree := make(outboardBuffer, bao.EncodedSize(int(size), group, true))
	sum, err := bao.Encode(tree, bufio.NewReaderSize(io.NewSectionReader(data, 0, size), readAtOnce), size, group, true)
	if err != nil {
		return Hash{}, fmt.Errorf("lend a file: %w", err)
	}
	h := Hash(sum)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.blobs[h]; e == nil || !e.inFolder() {
		s.drop(h)
		s.blobs[h] = &entry{hash: h, size: uint64(size), from: &lentFile{data, lost}, outboard: made(tree)}
	}
	s.retain(h)
	return h, nil
}

// read returns a payload from a file after comparing its hash.
func (s *Store) read(e *entry) ([]byte, error) {
	if e.from == nil {
		return s.folder.read(e.hash, e.size)
	}
	data := make([]byte, e.size)
	if n, err := e.from.ReadAt(data, 0); n < len(data) {
		return nil, err
	}
	if blake3.Sum256(data) != e.hash {
		return nil, errChanged
	}
	return data, nil
}

// checked reads whole groups of a payload from a file and verifies them with the hash tree. Other
// programs may change the file, and a receiver of wrong bytes would penalise this member.
type checked struct {
	readerAt
	store    *Store
	entry    *entry
	outboard []byte
}

// ReadAt implements io.ReaderAt for the ranges of requests.
func (c checked) ReadAt(p []byte, offset int64) (int, error) {
	e, part := c.entry, span{uint64(offset), uint64(len(p))}
	if part.length == 0 {
		return 0, nil
	}
	if err := c.store.fromDisk(c.readerAt, p, offset); errors.Is(err, errDiskTurn) {
		return 0, err
	} else if err != nil {
		c.store.lost(e, err)
		return 0, err
	}
	parents := appendParents(nil, c.outboard[8:], part, 0, 0, e.size)
	d := decoder{
		r:        io.MultiReader(bytes.NewReader(parents), bytes.NewReader(p)),
		part:     part,
		dst:      func() []byte { return p },
		verified: func(int) error { return nil },
	}
	if d.decode(e.size, e.hash) != nil {
		c.store.lost(e, errChanged)
		return 0, errChanged
	}
	return len(p), nil
}

const (
	// diskReads is the number of answers that may read from a disk at the same time. A disk that
	// does not respond occupies only these slots, so payloads in memory stay available.
	diskReads = 8
	diskTurn  = 2 * time.Second // maximum wait of other answers for a slot
)

// errDiskTurn means that no slot for reading became free, because the disk does not respond.
var errDiskTurn = errors.New("the disk does not answer")

// fromDisk fills p from a file.
func (s *Store) fromDisk(file io.ReaderAt, p []byte, offset int64) error {
	timer := time.NewTimer(diskTurn)
	defer timer.Stop()
	select {
	case s.reading <- struct{}{}:
	case <-timer.C:
		return errDiskTurn
	}
	defer func() { <-s.reading }()
	if n, err := file.ReadAt(p, offset); n < len(p) {
		return err
	}
	return nil
}

// Close implements io.Closer. It does nothing, because the file belongs to the caller.
func (*lentFile) Close() error { return nil }
