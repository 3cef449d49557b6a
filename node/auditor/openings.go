package auditor

import (
	"context"
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
	// The own ones are kept for so many rounds and so long: longer than anybody may ask.
	openRounds = 2 * keptRounds
	openTime   = 2 * keptTime
)

// errMalformed says that bytes are no request, or no disclosure.
var errMalformed = errors.New("malformed request or opening")

// openings has the openings of results, and hands them to members that ask.
type openings struct {
	dir string // for the own ones; empty: none
	me  coordinator.ClientID

	mu sync.Mutex
	of map[resultID]*opened
}

type opened struct {
	bytes    []byte
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
	o.put(key, bytes, now)
	o.mu.Unlock()
	if o.dir == "" || key.Trainer != o.me {
		return nil
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(o.file(key.Step), bytes, 0o600)
}

func (o *openings) put(key resultID, bytes []byte, now time.Time) *opened {
	e := &opened{bytes: bytes, at: now, answered: make(map[identity.ID]int)}
	o.of[key] = e
	return e
}

func (o *openings) file(step uint32) string {
	return filepath.Join(o.dir, fmt.Sprintf("%d.opening", step))
}

// Get returns the opening of a result, or nil.
func (o *openings) Get(key resultID) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.find(key); e != nil {
		return e.bytes
	}
	return nil
}

// find looks for an opening also among those of an earlier process.
func (o *openings) find(key resultID) *opened {
	if e := o.of[key]; e != nil {
		return e
	}
	if o.dir == "" || key.Trainer != o.me {
		return nil
	}
	bytes, err := os.ReadFile(o.file(key.Step))
	if err != nil {
		return nil
	}
	return o.put(key, bytes, time.Time{})
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
	var steps []uint32
	for key, e := range o.of {
		if key.Trainer == o.me && old(key.Step) && now.Sub(e.at) > openTime {
			delete(o.of, key)
			steps = append(steps, key.Step)
		}
	}
	if o.dir == "" || len(steps) == 0 {
		return
	}
	files, err := os.ReadDir(o.dir)
	if err != nil {
		return
	}
	for _, f := range files { // also of earlier processes
		digits, found := strings.CutSuffix(f.Name(), ".opening")
		step, err := strconv.ParseUint(digits, 10, 32)
		if found && err == nil && o.of[resultID{o.me, uint32(step)}] == nil && (old(uint32(step)) || uint32(step) > newest) {
			_ = os.Remove(filepath.Join(o.dir, f.Name())) // the next time
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
	e := o.find(key)
	if e == nil || e.answered[from] >= maxAnswers {
		return nil, fmt.Errorf("opening of step %d of %s: %w", key.Step, hex.EncodeToString(key.Trainer[:4]), errNotKept)
	}
	e.answered[from]++
	return e.bytes, nil
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
