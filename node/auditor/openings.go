package auditor

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/exchange"
)

// OpeningProtocol is what members ask each other by for the opening of a result. Its bytes are in
// docs/p2p.md.
const OpeningProtocol = "/psyche/opening/2"

const (
	requestSize = 32 + 4
	// maxAnswers is how often the same is handed to the same member: answers may be lost.
	maxAnswers = 24
	// The own ones are kept for so many rounds and so long: longer than anybody may ask. Of those on the
	// disk so many rounds are in memory, too.
	openRounds = 2 * keptRounds
	openTime   = 2 * keptTime
	openSuffix = ".opening"
)

// errMalformed says that bytes are no request, or no disclosure.
var errMalformed = errors.New("malformed request or opening")

// openings has the openings of results, and hands them to members that ask.
type openings struct {
	dir string // for the own ones; empty: none
	me  coordinator.ClientID

	mu    sync.Mutex
	of    map[resultID]*opened
	swept uint32 // step in which old files were removed last
}

type opened struct {
	bytes    []byte // nil: on the disk
	onDisk   bool
	at       time.Time
	answered map[identity.ID]int
}

// newOpenings returns those of a member. In dir, unless it is empty, the own ones outlive the
// process.
func newOpenings(me identity.ID, dir string) *openings {
	return &openings{dir: dir, me: coordinator.ClientID(me), of: make(map[resultID]*opened)}
}

// Serve answers the requests of peers.
func (o *openings) Serve(network exchange.Requests) {
	network.Handle(OpeningProtocol, requestSize, o.answer)
}

// Keep keeps the opening of a result. An error says that it is not on the disk.
func (o *openings) Keep(key resultID, bytes []byte, now time.Time) error {
	o.mu.Lock()
	e := &opened{bytes: bytes, at: now, answered: make(map[identity.ID]int)}
	o.of[key] = e
	o.mu.Unlock()
	if o.dir == "" || key.Trainer != o.me {
		return nil
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	sum := sha256.Sum256(bytes)
	if err := os.WriteFile(o.file(key.Step), append(sum[:], bytes...), 0o600); err != nil {
		return err
	}
	o.mu.Lock()
	e.onDisk = true
	o.mu.Unlock()
	return nil
}

func (o *openings) file(step uint32) string {
	return filepath.Join(o.dir, fmt.Sprint(step, openSuffix))
}

// Get returns the opening of a result, or nil.
func (o *openings) Get(key resultID) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, bytes := o.find(key)
	return bytes
}

// find looks for an opening also on the disk, where one of an earlier process may be. One that was
// written in part when the process was killed is none.
func (o *openings) find(key resultID) (*opened, []byte) {
	e := o.of[key]
	if e != nil && e.bytes != nil {
		return e, e.bytes
	}
	if o.dir == "" || key.Trainer != o.me {
		return nil, nil
	}
	file, err := os.ReadFile(o.file(key.Step))
	if err != nil || len(file) < sha256.Size || sha256.Sum256(file[sha256.Size:]) != [sha256.Size]byte(file) {
		return nil, nil
	}
	if e == nil {
		e = &opened{onDisk: true, answered: make(map[identity.ID]int)}
		o.of[key] = e
	}
	return e, file[sha256.Size:]
}

// Drop gives up the opening of another member's result.
func (o *openings) Drop(key resultID) {
	if key.Trainer == o.me {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, key)
}

// Prune gives up own openings that are as old as rounds that are not kept, and not needed.
func (o *openings) Prune(newest, needed uint32, now time.Time) {
	old := func(step uint32) bool { return step+openRounds < newest && step < needed }
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, e := range o.of {
		switch {
		case key.Trainer != o.me || !old(key.Step):
		case now.Sub(e.at) > openTime:
			delete(o.of, key)
		case e.onDisk:
			e.bytes = nil
		}
	}
	if o.dir == "" || o.swept <= newest && newest < o.swept+openRounds {
		return
	}
	o.swept = newest
	o.sweep(old)
}

// sweep removes files of old steps, also those of earlier processes, when another was written so much
// later that nobody may ask for them any more.
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
			_ = os.Remove(o.file(step)) // the next time
		}
	}
}

func (o *openings) answer(_ context.Context, from identity.ID, request []byte) ([]byte, error) {
	if len(request) != requestSize {
		return nil, fmt.Errorf("%w: %d bytes, want %d", errMalformed, len(request), requestSize)
	}
	key := resultID{coordinator.ClientID(request), binary.LittleEndian.Uint32(request[32:])}
	o.mu.Lock()
	defer o.mu.Unlock()
	e, bytes := o.find(key)
	if e == nil || e.answered[from] >= maxAnswers {
		return nil, fmt.Errorf("opening of step %d of %s: %w", key.Step, hex.EncodeToString(key.Trainer[:4]), errNotKept)
	}
	e.answered[from]++
	return bytes, nil
}

// disclosure is what a trainer shows of a result: its opening, and what its data server signed about the
// batch, if it has that from one.
type disclosure struct {
	Receipt [64]byte // signature of the receipt; zero: it has none
	Opening []byte
}

// Encode returns the bytes of a disclosure: signature [64] ‖ opening.
func (e disclosure) Encode() []byte { return append(e.Receipt[:], e.Opening...) }

// decodeDisclosure reads what Encode writes.
func decodeDisclosure(b []byte) (e disclosure, err error) {
	if len(b) < len(e.Receipt) {
		return e, fmt.Errorf("%w: opening of %d bytes", errMalformed, len(b))
	}
	return disclosure{[64]byte(b), b[len(e.Receipt):]}, nil
}

// askOpening asks a member for the disclosure of a result. What it answers is not looked at.
func askOpening(ctx context.Context, network exchange.Requests, from identity.ID, key resultID, shapes audit.Shapes) ([]byte, error) {
	request := binary.LittleEndian.AppendUint32(key.Trainer[:], key.Step)
	return network.Request(ctx, from, OpeningProtocol, request, len(disclosure{}.Receipt)+audit.MaxOpeningSize(shapes, audit.DefaultChunks))
}
