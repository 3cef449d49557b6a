package verify

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/face/dash/shown"
	"github.com/psyche-go/psyche/record/journal"
)

// Told is what somebody said of a log, to be compared with the log. Zero: nobody said anything.
type Told struct {
	Run     string `json:"run"`     // hash of the genesis, hex
	Records int    `json:"records"` // in the log
	Head    string `json:"head"`    // hash of the newest entry, hex
	State   string `json:"state"`   // hash of the state after it, hex
}

// Report is what was found.
type Report struct {
	Verified   bool   `json:"verified"`          // of all that there is, and it is what was told
	Problem    string `json:"problem,omitempty"` // why it is not
	Broken     bool   `json:"broken,omitempty"`  // an entry does not verify; nothing after it can
	Records    int    `json:"records"`           // that were verified, from the first on
	Signatures int    `json:"signatures"`        // of members and authorities, of these records
	Bytes      int64  `json:"bytes"`             // of these records
	Torn       int64  `json:"torn,omitempty"`    // bytes of an unfinished write after them
	Run        string `json:"run,omitempty"`     // hash of the genesis
	Host       string `json:"host,omitempty"`    // key
	Authority  string `json:"authority,omitempty"`
	Head       string `json:"head,omitempty"`  // hash of the newest entry
	State      string `json:"state,omitempty"` // hash of the state after it
	Chain      *Chain `json:"chain,omitempty"` // of a run on a chain
}

// Chain says which account of a chain an archive has to be compared with. Run, in a Report of it, is the hash that the
// program and the account have as a run.
type Chain struct {
	Program string `json:"program"` // keys in base58
	Account string `json:"account"`
	Began   string `json:"began"`   // key of the main authority that began the run
	Genesis string `json:"genesis"` // hash that names the chain, as whoever made the archive says
	Event   uint64 `json:"event"`   // number of the newest
	Head    string `json:"head"`    // of the chain of hashes over all events, which the account has too
}

// Verifier checks one log. One goroutine uses it; it starts another, which Close ends.
type Verifier struct {
	source *source
	closed bool
	done   chan struct{} // closed when the Verifier's goroutine ends

	// The Verifier's goroutine changes these fields only while Write or Close runs.
	log        log // nil before the first record
	history    history.History
	records    int
	signatures int
	bytes      int64    // end of the newest verified record in the log
	head       [32]byte // hash of the newest entry
	entry      []byte   // buffer
	err        error

	written int64 // bytes that Write took
}

// log is a log of one of the two kinds, as far as it was verified.
type log interface {
	// take verifies the record of a number, and has what it tells seen. It returns how many signatures it had.
	take(number uint64, payload []byte, see func(history.Entry, *coordinator.State)) (signatures int, err error)
	// state returns the newest state, nil before the first.
	state() *coordinator.State
	// describe says which run it is.
	describe(*Report)
	// run is the hash of the genesis, as the page shows it: zero on a chain.
	run() [32]byte
	// costs is what a chain was paid; nil on a server.
	costs() *history.Costs
	// event returns the number of the event of a chain with a head; 0: there is none.
	event(head [32]byte) uint64
}

// logOf returns the kind of log that begins with a record.
func logOf(first []byte) log {
	if archive.IsHeader(first) {
		return &chainLog{}
	}
	return &serverLog{}
}

// New returns a Verifier of a log of which nothing has arrived. The caller closes it.
func New() *Verifier {
	v := &Verifier{source: newSource(), done: make(chan struct{}), bytes: journal.First}
	go func() {
		defer close(v.done)
		_, v.err = journal.Read(v.source, v.take)
	}()
	return v
}

// Write takes the next bytes of the log. When it returns, every record that is complete has been verified. It fails
// after a record that does not verify.
func (v *Verifier) Write(p []byte) (int, error) {
	if v.closed || !v.source.give(p, v.done) {
		return 0, cmp.Or(v.err, io.ErrClosedPipe)
	}
	v.written += int64(len(p))
	return len(p), nil
}

// Records returns the number of verified records.
func (v *Verifier) Records() int { return v.records }

// take verifies a record.
func (v *Verifier) take(payload []byte) error {
	if v.log == nil {
		v.log = logOf(payload)
	}
	signatures, err := v.log.take(uint64(v.records), payload, v.history.See)
	if err != nil {
		return err
	}
	v.entry, v.head = journal.AppendEntry(v.entry[:0], v.head, payload)
	v.bytes += int64(len(v.entry))
	v.signatures += signatures
	v.records++
	return nil
}

// state returns the newest state; nil: there is none.
func (v *Verifier) state() *coordinator.State {
	if v.log == nil {
		return nil
	}
	return v.log.state()
}

// Close ends the log and returns its Report.
func (v *Verifier) Close(told Told) Report {
	if !v.closed {
		v.closed = true
		v.source.end()
		<-v.done
	}
	return v.Report(told)
}

// Report describes the written part of the log and compares it with a description. The caller may continue to Write.
func (v *Verifier) Report(told Told) Report {
	r := Report{Records: v.records, Signatures: v.signatures, Broken: v.err != nil}
	if state := v.state(); state != nil {
		hash := state.Hash()
		r.Bytes, r.State, r.Head = v.bytes, hex.EncodeToString(hash[:]), hex.EncodeToString(v.head[:])
		v.log.describe(&r)
		if state.Authority.Main != (coordinator.ClientID{}) {
			r.Authority = identity.ID(state.Authority.Main).String()
		}
		if !r.Broken {
			r.Torn = v.written - v.bytes
		}
	}
	if err := v.problem(told, r); err != nil {
		r.Problem = err.Error()
	}
	r.Verified = r.Problem == ""
	return r
}

// problem returns the first fault of the log, or the first difference between the log and its description.
func (v *Verifier) problem(told Told, r Report) error {
	switch {
	case v.err != nil:
		return fmt.Errorf("the log does not verify: %w", v.err)
	case v.state() == nil:
		return errors.New("the log is truncated before its first entry")
	case told.Run != "" && told.Run != r.Run:
		return fmt.Errorf("this is the log of another run, %s, not of %s", r.Run, told.Run)
	case told.Records > r.Records:
		return fmt.Errorf("the log is truncated after %d entries, but the host reports %d", r.Records, told.Records)
	case told.Records == r.Records && told.Head != "" && told.Head != r.Head:
		return fmt.Errorf("the log differs from the host's report: its newest entry is %s, not %s", r.Head, told.Head)
	case told.Records == r.Records && told.State != "" && told.State != r.State:
		return fmt.Errorf("the reported state is wrong: after entry %d the state is %s, not %s", r.Records-1, r.State, told.State)
	}
	return nil
}

// Show describes the run as far as its log was verified: see shown.Of.
func (v *Verifier) Show(last uint32) shown.Run {
	state := v.state()
	if state == nil {
		return shown.Of(nil, [32]byte{}, nil, 0)
	}
	run := shown.Of(state, v.log.run(), &v.history, last)
	run.Costs = v.log.costs()
	return run
}

// Event returns the number of the event after which a chain's log had a head, in hex; 0: it never had it. If the
// account of the run has this head, everything up to that event happened on the chain, and nothing else did.
func (v *Verifier) Event(head string) uint64 {
	var wanted [32]byte
	if n, err := hex.Decode(wanted[:], []byte(head)); err != nil || n != len(wanted) || v.log == nil {
		return 0
	}
	return v.log.event(wanted)
}

// Events returns what happened before the newest events: see shown.Events.
func (v *Verifier) Events(before int) ([]history.Event, int) { return shown.Events(&v.history, before) }
