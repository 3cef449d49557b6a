package blob

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/bao"
)

// persistSize is the number of verified bytes after which their spans are recorded in the journal. A
// process that is killed has to fetch at most that much again for each running range.
const persistSize = 1 << 20

// partial contains the verified data of an incomplete payload. It outlives the fetch that started
// it and, if it has a file, the process. While a fetch runs, only that fetch uses it.
type partial struct {
	key     flightKey
	room    *room      // medium on which its space is reserved
	inRoom  *roomEntry // nil while a fetch runs
	path    string     // its file; empty: memory only
	missing []span     // each at most maxRange; nil before open

	data   []byte // nil before the first verified bytes
	memory sync.Once

	restored uint64 // bytes that an earlier process verified
	mu       sync.Mutex
	file     *os.File // with the bytes
	journal  *os.File // with the verified spans, 16 bytes each
	broken   error    // error after which nothing is recorded any more
}

// take returns the partial of a payload, with space reserved for it.
func (s *Store) take(key flightKey) (*partial, error) {
	s.mu.Lock()
	if p := s.partials[key]; p != nil {
		delete(s.partials, key)
		p.room.remove(p.inRoom)
		p.inRoom = nil
		s.mu.Unlock()
		return p, nil
	}
	s.mu.Unlock()
	r, err := s.reserve(key.size)
	if err != nil {
		return nil, err
	}
	p := &partial{key: key, room: r}
	if r == &s.disk {
		p.path = s.folder.partPath(key)
	}
	return p, nil
}

// keepPartial keeps an incomplete partial for later fetches. The caller must hold s.mu.
func (s *Store) keepPartial(p *partial) {
	s.partials[p.key] = p
	p.inRoom = p.room.add(func() { s.discard(p) }, cost(p.key.size))
}

// discard drops a partial. The caller must hold s.mu.
func (s *Store) discard(p *partial) {
	if s.partials[p.key] == p {
		delete(s.partials, p.key)
		p.room.remove(p.inRoom)
	}
	p.room.used -= cost(p.key.size)
	if p.path != "" {
		_ = os.Remove(p.path)
		_ = os.Remove(spansPath(p.path))
	}
}

// setAside ends a failed fetch and keeps the verified data for the next one.
func (s *Store) setAside(p *partial) {
	p.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blobs[p.key.hash] != nil || p.data == nil || p.isEmpty() {
		s.discard(p)
		return
	}
	if p.path != "" && p.broken == nil { // the file has the data
		p.data, p.missing, p.restored, p.memory = nil, nil, 0, sync.Once{}
	}
	s.keepPartial(p)
}

// isEmpty reports whether no data has been verified.
func (p *partial) isEmpty() bool {
	missing := uint64(0)
	for _, part := range p.missing {
		missing += part.length
	}
	return missing == p.key.size
}

// complete turns the partial into a payload. Its hash has been verified.
func (s *Store) complete(p *partial) []byte {
	p.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blobs[p.key.hash] != nil {
		s.discard(p)
		return p.data
	}
	if p.path != "" {
		err := p.broken
		if err == nil {
			err = os.Rename(p.path, s.folder.path(p.key.hash))
		}
		if err == nil {
			_ = os.Remove(spansPath(p.path))
			s.insert(s.onDisk(p.key))
			return p.data
		}
		fits := s.memory.makeRoom(cost(p.key.size))
		s.logger.Warn("blob: a payload could not be written", "blob", p.key.hash.short(), "bytes", p.key.size, "kept_in_memory", fits, "err", err)
		s.discard(p)
		if !fits { // only the caller gets the data; members fetch it from other holders
			return p.data
		}
		p.room = &s.memory
		p.room.used += cost(p.key.size)
	}
	data := memory(p.data)
	s.insert(&entry{
		hash: p.key.hash, size: p.key.size, data: data, room: p.room,
		outboard: sync.OnceValues(func() ([]byte, error) {
			tree, _ := bao.EncodeBuf(data, group, true)
			return tree, nil
		}),
	})
	return p.data
}

func spansPath(path string) string { return strings.TrimSuffix(path, partSuffix) + spansSuffix }

// buffer returns the memory of the whole payload.
func (p *partial) buffer() []byte {
	p.memory.Do(func() { p.data = make([]byte, p.key.size) })
	return p.data
}

// open prepares the partial for a fetch: it reads the data in its file.
func (p *partial) open() {
	if p.missing == nil {
		p.missing = gaps(nil, p.key.size)
	}
	if p.path == "" || p.broken != nil {
		return
	}
	if p.broken = p.load(); p.broken != nil {
		p.close()
	}
}

func (p *partial) load() (err error) {
	if p.file, err = os.OpenFile(p.path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if p.journal, err = os.OpenFile(spansPath(p.path), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return err
	}
	limit := int64(p.key.size/groupSize+1) * spanSize
	raw, err := io.ReadAll(io.LimitReader(p.journal, limit))
	if err != nil {
		return err
	}
	spans := decodeSpans(raw, p.key.size)
	if len(spans) == 0 {
		return nil
	}
	data := p.buffer()
	for _, part := range spans {
		if _, err := p.file.ReadAt(data[part.offset:part.end()], int64(part.offset)); err != nil {
			return fmt.Errorf("read %s: %w", p.path, err)
		}
	}
	p.missing = gaps(spans, p.key.size)
	p.restored = p.key.size
	for _, part := range p.missing {
		p.restored -= part.length
	}
	return nil
}

// persist records that a part of the payload was verified.
func (p *partial) persist(part span) {
	if part.length == 0 {
		return
	}
	p.mu.Lock()
	file, broken := p.file, p.broken
	p.mu.Unlock()
	if file == nil || broken != nil {
		return
	}
	_, err := file.WriteAt(p.data[part.offset:part.end()], int64(part.offset))
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		_, err = p.journal.Write(encodeSpan(part))
	}
	p.broken = cmp.Or(p.broken, err)
}

// check verifies the hash of a payload that an earlier process had partly fetched. If the hash is
// wrong, the files were changed, and all data counts as missing again.
func (p *partial) check() bool {
	if p.restored == 0 || blake3.Sum256(p.data) == p.key.hash {
		return true
	}
	p.restored = 0
	p.missing = gaps(nil, p.key.size)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.journal != nil {
		p.broken = cmp.Or(p.broken, p.journal.Truncate(0))
	}
	return false
}

func (p *partial) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, file := range []*os.File{p.file, p.journal} {
		if file != nil {
			if err := file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
				p.broken = cmp.Or(p.broken, err)
			}
		}
	}
	p.file, p.journal = nil, nil
}

// spanSize is the size of one entry of a journal: offset and length, little-endian.
const spanSize = 16

func encodeSpan(s span) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, s.offset), s.length)
}

// decodeSpans decodes a journal up to the first invalid entry. Such an entry was only partially
// written, or the file has other content.
func decodeSpans(raw []byte, size uint64) []span {
	var spans []span
	for ; len(raw) >= spanSize; raw = raw[spanSize:] {
		s := span{binary.LittleEndian.Uint64(raw), binary.LittleEndian.Uint64(raw[8:])}
		if s.length == 0 || s.offset >= size || s.length > size-s.offset || s.offset%groupSize != 0 ||
			s.length%groupSize != 0 && s.end() != size {
			break
		}
		spans = append(spans, s)
	}
	return spans
}

// gaps returns the parts of a payload outside spans, in pieces of at most maxRange.
func gaps(spans []span, size uint64) []span {
	spans = slices.SortedFunc(slices.Values(spans), func(a, b span) int { return cmp.Compare(a.offset, b.offset) })
	missing := []span{}
	covered := uint64(0)
	for _, s := range append(spans, span{size, 0}) {
		for covered < s.offset {
			n := min(maxRange, s.offset-covered)
			missing = append(missing, span{covered, n})
			covered += n
		}
		covered = max(covered, s.end())
	}
	return missing
}
