package auditor

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
)

const (
	// This member's openings are kept for both openRounds rounds and openTime, which is longer than
	// any other member may request them. The openings of the newest openRounds rounds are also in
	// memory.
	openRounds = 2 * leastKept
	openTime   = 2 * keptTime
	openSuffix = ".opening"
)

// errNotServed means that a client is not served: it is neither a member nor a juror.
var errNotServed = errors.New("openings are for members and jurors")

// openings stores the parts of openings and sends them to members that request them. It is safe for
// concurrent use.
type openings struct {
	dir string // for this member's openings; may be empty
	me  coordinator.ClientID
	now func() time.Time

	mu       sync.Mutex
	of       map[resultID]*opened
	swept    uint32 // step in which old files were last removed
	audience audience
	partSize int // size of a part in bytes, to estimate the time of a transfer
	turns    turns
}

// opened is one opening. Some of its parts may be missing.
type opened struct {
	parts [][]byte // by position among the drawn chunks, nil for a missing part; empty if only the file has them
	file  []span   // positions of the parts in the file; nil: no file
	at    time.Time
	sent  [audit.MaxChunks]uint16 // number of times that each part was sent
}

// span is the position of a part in a file.
type span struct{ offset, size int64 }

// newOpenings returns an empty store of openings. If dir is not empty, this member's openings are also
// in that folder, so that a later process can serve them.
func newOpenings(me identity.ID, dir string, now func() time.Time) *openings {
	return &openings{dir: dir, me: coordinator.ClientID(me), now: now, of: make(map[resultID]*opened)}
}

// serve answers the requests of peers.
func (o *openings) serve(network env.Requests) {
	network.Handle(OpeningProtocol, requestSize, o.answer)
}

// admit replaces the set of clients that are served, and the size of a part, in bytes.
func (o *openings) admit(a audience, partSize int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.audience, o.partSize = a, partSize
}

// renew resets the number of parts that each member may still get. It is called when a round starts.
func (o *openings) renew() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turns.renew(o.now())
}

// keep stores all parts of the opening of a result. If it returns an error, the opening is not on
// the disk.
func (o *openings) keep(key resultID, parts [][]byte) error {
	o.mu.Lock()
	e := &opened{parts: parts, at: o.now()}
	o.of[key] = e
	o.mu.Unlock()
	if o.dir == "" || key.Trainer != o.me {
		return nil
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	file := encodeParts(parts)
	if err := os.WriteFile(o.file(key.Step), file, 0o600); err != nil {
		return err
	}
	spans, err := decodeParts(file)
	o.mu.Lock()
	e.file = spans
	o.mu.Unlock()
	if err != nil {
		return err
	}
	return nil
}

// Add stores the verified part at a position among count drawn chunks.
func (o *openings) Add(key resultID, count, position int, part []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.of[key]
	if e == nil || len(e.parts) != count {
		e = &opened{parts: make([][]byte, count), at: o.now()}
		o.of[key] = e
	}
	e.parts[position] = part
}

func (o *openings) file(step uint32) string {
	return filepath.Join(o.dir, fmt.Sprint(step, openSuffix))
}

// parts returns the stored parts of an opening by position, with nil for missing parts. It returns nil
// if no part is stored. The caller must not modify the parts.
func (o *openings) parts(key resultID) [][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.find(key)
	if e == nil {
		return nil
	}
	parts := make([][]byte, e.count())
	for i := range parts {
		parts[i] = o.part(e, key, i)
	}
	return parts
}

// find returns an opening. If it is this member's and not in memory, find looks for the file that an
// earlier process may have left. It reads such a file once, and ignores a partly written file.
func (o *openings) find(key resultID) *opened {
	e := o.of[key]
	if e != nil && (e.parts != nil || e.file != nil) {
		return e
	}
	if o.dir == "" || key.Trainer != o.me {
		return nil
	}
	file, err := os.ReadFile(o.file(key.Step))
	if err != nil {
		return nil
	}
	spans, err := decodeParts(file)
	if err != nil {
		return nil
	}
	e = &opened{file: spans, at: o.now()}
	o.of[key] = e
	return e
}

// count returns the number of parts, including missing ones.
func (e *opened) count() int { return max(len(e.parts), len(e.file)) }

// part returns one part, from memory or from the file, or nil if it is missing.
func (o *openings) part(e *opened, key resultID, i int) []byte {
	if e.parts != nil {
		return e.parts[i]
	}
	file, err := os.Open(o.file(key.Step))
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	part := make([]byte, e.file[i].size)
	if _, err := file.ReadAt(part, e.file[i].offset); err != nil {
		return nil
	}
	return part
}

// encodeParts returns the bytes of a file with parts: SHA-256 of the rest ‖ for each part: size u32 ‖ part.
func encodeParts(parts [][]byte) []byte {
	b := make([]byte, sha256.Size)
	for _, part := range parts {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(part))), part...)
	}
	sum := sha256.Sum256(b[sha256.Size:])
	copy(b, sum[:])
	return b
}

// decodeParts returns the positions of the parts in the output of encodeParts.
func decodeParts(b []byte) (parts []span, err error) {
	if len(b) < sha256.Size || sha256.Sum256(b[sha256.Size:]) != [sha256.Size]byte(b) {
		return nil, fmt.Errorf("%w: wrong checksum", errMalformed)
	}
	for at := sha256.Size; at < len(b); {
		rest := b[at:]
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) || len(parts) == audit.MaxChunks {
			return nil, fmt.Errorf("%w: %d bytes after part %d", errMalformed, len(rest), len(parts))
		}
		size := int(binary.LittleEndian.Uint32(rest))
		parts, at = append(parts, span{int64(at + 4), int64(size)}), at+4+size
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%w: no parts", errMalformed)
	}
	return parts, nil
}

// drop drops the opening of another member's result.
func (o *openings) drop(key resultID) {
	if key.Trainer == o.me {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, key)
}

// prune drops this member's openings of old rounds that are not on trial.
func (o *openings) prune(newest uint32, onTrial func(step uint32) bool) {
	old := func(step uint32) bool { return step+openRounds < newest && !onTrial(step) }
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	for key, e := range o.of {
		switch {
		case key.Trainer != o.me || !old(key.Step):
		case now.Sub(e.at) > openTime:
			delete(o.of, key)
		case e.file != nil:
			e.parts = nil
		}
	}
	if o.dir == "" || o.swept <= newest && newest < o.swept+openRounds {
		return
	}
	o.swept = newest
	o.sweep(old)
}

// sweep removes files of old steps, including files of earlier processes. It removes a file only if
// another file was written more than openTime later, so that no member may still request the old one.
func (o *openings) sweep(old func(step uint32) bool) {
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return
	}
	written := make(map[uint32]time.Time)
	var last time.Time
	for _, e := range entries {
		digits, found := strings.CutSuffix(e.Name(), openSuffix)
		step, err := strconv.ParseUint(digits, 10, 32)
		if !found || err != nil {
			continue
		}
		if info, err := e.Info(); err == nil {
			written[uint32(step)] = info.ModTime()
			if info.ModTime().After(last) {
				last = info.ModTime()
			}
		}
	}
	for step, at := range written {
		if old(step) && last.Sub(at) > openTime {
			_ = os.Remove(o.file(step)) // if it fails, the next sweep tries again
			if key := (resultID{o.me, step}); o.of[key] != nil && o.of[key].parts == nil {
				delete(o.of, key)
			}
		}
	}
}

// answer answers a request with parts of an opening, or with the time after which to ask again. ctx
// ends when the answer has arrived at the peer.
func (o *openings) answer(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
	req, err := decodeRequest(request)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	rank := o.audience.rank(from)
	if rank == rankNone {
		return nil, errNotServed
	}
	missing := fmt.Errorf("opening of step %d of %s: %w", req.Step, hex.EncodeToString(req.Trainer[:4]), errNotKept)
	e := o.find(req.resultID)
	if e == nil {
		return nil, missing
	}
	if e.rarest(req.wanted) < 0 {
		return nil, missing
	}
	count, later := o.turns.take(ctx, from, rank, o.partSize, o.now())
	if later > 0 {
		return encodeLater(later), nil
	}
	var parts [][]byte
	for wanted := req.wanted; len(parts) < count; {
		position := e.rarest(wanted)
		if position < 0 {
			break
		}
		wanted &^= 1 << position
		if part := o.part(e, req.resultID, position); part != nil {
			e.sent[position]++
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return nil, missing
	}
	o.turns.sends(len(parts))
	return encodeAnswer(parts), nil
}

// rarest returns the position of the wanted part that was sent the fewest times, or -1 if no wanted
// part is stored. Each of the first requests thus gets a different part. The members that asked first
// soon have all parts between them, and can get the rest from each other.
func (e *opened) rarest(wanted uint64) int {
	best := -1
	for wanted != 0 {
		i := bits.TrailingZeros64(wanted)
		wanted &^= 1 << i
		if i < e.count() && (e.parts == nil || e.parts[i] != nil) && (best < 0 || e.sent[i] < e.sent[best]) {
			best = i
		}
	}
	return best
}
