package blob

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/bao"

	"github.com/psyche-go/psyche/base/filelock"
)

const (
	blobSuffix  = ".blob"  // hash.blob: a payload
	partSuffix  = ".part"  // hash-size.part: the bytes of an incomplete payload
	spansSuffix = ".spans" // hash-size.spans: its verified spans
	tempSuffix  = ".new"   // hash-….new: a payload that is being written
	lockName    = "lock"

	// staleAfter is the age after which a folder's unused files are removed.
	staleAfter = 7 * 24 * time.Hour
)

// ErrInUse means that another process uses the folder of a store.
var ErrInUse = errors.New("in use by another process")

// errDamaged means that a file does not match its name.
var errDamaged = errors.New("file does not have the hash in its name")

// readerAt is a payload that is being read.
type readerAt interface {
	io.ReaderAt
	io.Closer
}

// Close implements io.Closer.
func (memory) Close() error { return nil }

// folder is the disk storage of a store. It verifies the hash of a file's content before it trusts
// it, because other users of the disk, or a power failure, may have changed the files since they
// were written.
type folder struct {
	dir  string
	lock *os.File
}

func openFolder(dir string) (*folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := filelock.Open(filepath.Join(dir, lockName), 0o600)
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("%s: %w%s; each client needs a separate folder", dir, ErrInUse, filelock.By(err))
	}
	if err != nil {
		return nil, err
	}
	return &folder{dir, file}, nil
}

func (f *folder) close() error { return f.lock.Close() }

func (f *folder) path(h Hash) string { return filepath.Join(f.dir, h.String()+blobSuffix) }

// write stores a payload. A file under its final name is always complete.
func (f *folder) write(h Hash, data []byte) error {
	file, err := os.CreateTemp(f.dir, h.String()+"-*"+tempSuffix)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), f.path(h))
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

func (f *folder) open(h Hash) (readerAt, error) { return os.Open(f.path(h)) }

// read returns a payload after comparing its hash.
func (f *folder) read(h Hash, size uint64) ([]byte, error) {
	file, err := os.Open(f.path(h))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data := make([]byte, size)
	if _, err := io.ReadFull(file, data); err != nil {
		return nil, err
	}
	if blake3.Sum256(data) != h {
		return nil, errDamaged
	}
	return data, nil
}

// outboard computes the hash tree of a payload.
func (f *folder) outboard(h Hash, size uint64) ([]byte, error) {
	file, err := os.Open(f.path(h))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	tree := make(outboardBuffer, bao.EncodedSize(int(size), group, true))
	root, err := bao.Encode(tree, file, int64(size), group, true)
	if err == nil && root != h {
		err = errDamaged
	}
	return tree, err
}

// outboardBuffer is memory that can be written at any offset.
type outboardBuffer []byte

func (b outboardBuffer) WriteAt(p []byte, offset int64) (int, error) {
	return copy(b[offset:], p), nil
}

// remove removes a payload's file. If that fails, a later start of the store removes the stale file.
func (f *folder) remove(h Hash) { _ = os.Remove(f.path(h)) }

// restore adds the files that an earlier process left in the folder, oldest first.
func (s *Store) restore() error {
	entries, err := os.ReadDir(s.folder.dir)
	if err != nil {
		return err
	}
	type found struct {
		key  flightKey
		part bool
		name string
		used time.Time
	}
	var files []found
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		name := entry.Name()
		file := found{name: name, used: info.ModTime()}
		var ok bool
		switch filepath.Ext(name) {
		case blobSuffix:
			file.key.hash, ok = parseHash(strings.TrimSuffix(name, blobSuffix))
			file.key.size = uint64(info.Size())
		case partSuffix:
			file.part = true
			file.key, ok = parseKey(strings.TrimSuffix(name, partSuffix))
		case tempSuffix, spansSuffix:
			ok = s.folder.isLeftover(name)
			file.used = time.Time{}
		}
		if ok {
			files = append(files, file)
		}
	}
	slices.SortFunc(files, func(a, b found) int { return a.used.Compare(b.used) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, file := range files {
		if time.Since(file.used) > staleAfter || file.key.size > uint64(max(s.disk.max, 0)) ||
			!s.disk.makeRoom(cost(file.key.size)) {
			s.folder.forget(file.name)
			continue
		}
		s.disk.used += cost(file.key.size)
		if file.part {
			s.keepPartial(&partial{key: file.key, room: &s.disk, path: s.folder.partPath(file.key)})
			continue
		}
		s.insert(s.onDisk(file.key))
	}
	return nil
}

// isLeftover reports whether a file of a store, recognized by its name, is useless because its
// process was interrupted: while it wrote the payload, or after it removed only one of a partial's
// two files.
func (f *folder) isLeftover(name string) bool {
	stem := strings.TrimSuffix(name, filepath.Ext(name))
	hash, _, _ := strings.Cut(stem, "-")
	if _, ours := parseHash(hash); !ours || filepath.Ext(name) == tempSuffix {
		return ours
	}
	_, err := os.Stat(filepath.Join(f.dir, stem+partSuffix))
	return errors.Is(err, os.ErrNotExist)
}

// onDisk returns the entry of a payload whose hash tree will be computed on demand.
func (s *Store) onDisk(key flightKey) *entry {
	return &entry{hash: key.hash, size: key.size, room: &s.disk, outboard: sync.OnceValues(func() ([]byte, error) {
		return s.folder.outboard(key.hash, key.size)
	})}
}

func (f *folder) forget(name string) {
	path := filepath.Join(f.dir, name)
	_ = os.Remove(path)
	if stem, ok := strings.CutSuffix(path, partSuffix); ok {
		_ = os.Remove(stem + spansSuffix)
	}
}

func (f *folder) partPath(key flightKey) string {
	return filepath.Join(f.dir, key.hash.String()+"-"+strconv.FormatUint(key.size, 10)+partSuffix)
}

func parseHash(text string) (h Hash, ok bool) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(h) || text != strings.ToLower(text) {
		return h, false
	}
	return Hash(raw), true
}

func parseKey(text string) (key flightKey, ok bool) {
	name, size, _ := strings.Cut(text, "-")
	if key.hash, ok = parseHash(name); !ok {
		return key, false
	}
	var err error
	key.size, err = strconv.ParseUint(size, 10, 63)
	return key, err == nil && key.size > 0
}
