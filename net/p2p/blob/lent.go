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

// errChanged says that a file of the caller is not what it was when it was lent.
var errChanged = errors.New("the file was changed")

// readAtOnce is how many bytes of a lent file are read at once for its hash.
const readAtOnce = 128 << 10

// lentFile is where data of the caller lie, on its disk.
type lentFile struct {
	*io.SectionReader
	lost func(error)
}

// Lend is Put for data that the caller keeps in memory until Drop whatever the store does: it takes no room here and is
// never written to the folder. The tree of its hashes is made with its hash, so that nobody who asks for a part of it waits
// for that: of data of a gigabyte it takes a second and more, after which a holder counts as silent.
func (s *Store) Lend(data []byte) Hash {
	if data == nil { // which would say that it is in a file
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

// LendFrom is Lend for data that lie in a file, which is read once for their hash. The file has to stay open: who opened
// it leaves it to the collector to close it, since a stream may be sending it when it is dropped. In memory is the tree of
// the hashes alone, of the data what is being sent; data that were in memory until now are not any more. What is sent,
// and what Get returns, is compared with the hash before. Data that are others by then, or cannot be read, are dropped,
// and lost is told why, from any goroutine.
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

// read returns a payload that is in a file after comparing its hash.
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

// checked reads a payload that is in a file, whole groups at a time, and compares them with the tree of hashes: others may
// change the file, and whoever gets wrong bytes holds that against this member.
type checked struct {
	readerAt
	store    *Store
	entry    *entry
	outboard []byte
}

// ReadAt implements io.ReaderAt for ranges as a request has them.
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
	// diskReads is how many answers read from a disk at once. A disk that does not answer keeps their places, and no others:
	// what is in memory can be had.
	diskReads = 8
	diskTurn  = 2 * time.Second // for which the others wait
)

// errDiskTurn says that a disk does not answer.
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

// Close implements io.Closer: the file is the caller's.
func (*lentFile) Close() error { return nil }
