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

// Told is the expected description of a log. Zero fields are not compared.
type Told struct {
	Run     string `json:"run"`     // hash of the genesis, hex
	Records int    `json:"records"` // in the log
	Head    string `json:"head"`    // hash of the newest entry, hex
	State   string `json:"state"`   // hash of the state after it, hex
}

// Report is the result of a verification.
type Report struct {
	Verified   bool   `json:"verified"`          // the whole log verifies and matches the description
	Problem    string `json:"problem,omitempty"` // reason why it is not verified
	Broken     bool   `json:"broken,omitempty"`  // an entry does not verify; later entries cannot
	Records    int    `json:"records"`           // verified records at the start of the log
	Signatures int    `json:"signatures"`        // of members and authorities, in these records
	Bytes      int64  `json:"bytes"`             // of these records
	Torn       int64  `json:"torn,omitempty"`    // bytes of an incomplete write after them
	Run        string `json:"run,omitempty"`     // hash of the genesis
	Host       string `json:"host,omitempty"`    // key
	Authority  string `json:"authority,omitempty"`
	Head       string `json:"head,omitempty"`  // hash of the newest entry
	State      string `json:"state,omitempty"` // hash of the state after it
	Chain      *Chain `json:"chain,omitempty"` // of a run on a chain
}

// Chain identifies the account on a chain that an archive has to be compared with. In a Report with
// a Chain, Run is the hash of the run for this program and account.
type Chain struct {
	Program string `json:"program"` // keys in base58
	Account string `json:"account"`
	Began   string `json:"began"`   // key of the main authority that started the run
	Genesis string `json:"genesis"` // hash of the chain, as claimed by the archive's creator
	Event   uint64 `json:"event"`   // number of the newest event
	Head    string `json:"head"`    // of the hash chain over all events, which the account also contains
}

// Verifier checks one log. It is not safe for concurrent use. It starts a goroutine, which Close
// ends.
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

// log is the verified part of one of the two kinds of logs.
type log interface {
	// take verifies the record with a number, and passes its entries to see. It returns the number
	// of its signatures.
	take(number uint64, payload []byte, see func(history.Entry, *coordinator.State)) (signatures int, err error)
	// state returns the newest state; nil before the first.
	state() *coordinator.State
	// describe sets the fields that identify the run.
	describe(*Report)
	// run returns the hash of the genesis in the page's form: zero on a chain.
	run() [32]byte
	// costs returns the payments on a chain; nil on a server.
	costs() *history.Costs
	// event returns the number of a chain's event with a head; 0 if there is none.
	event(head [32]byte) uint64
}

// logOf returns the kind of log that starts with a record.
func logOf(first []byte) log {
	if archive.IsHeader(first) {
		return &chainLog{}
	}
	return &serverLog{}
}

// New returns a Verifier for an empty log. The caller must close it.
func New() *Verifier {
	v := &Verifier{source: newSource(), done: make(chan struct{}), bytes: journal.First}
	go func() {
		defer close(v.done)
		_, v.err = journal.Read(v.source, v.take)
	}()
	return v
}

// Write takes the next bytes of the log. When it returns, it has verified every complete record. It
// fails after a record that does not verify.
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

// state returns the newest state, or nil.
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

// Report describes the written part of the log and compares it with a description. The caller may
// continue to Write.
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

// problem returns the first fault of the log, or the first difference between the log and its
// description.
func (v *Verifier) problem(told Told, r Report) error {
	switch {
	case v.err != nil:
		return fmt.Errorf("the log does not verify: %w", v.err)
	case v.state() == nil:
		return errors.New("the log is truncated before its first entry")
	case told.Run != "" && told.Run != r.Run:
		return fmt.Errorf("log of the wrong run: %s, want %s", r.Run, told.Run)
	case told.Records > r.Records:
		return fmt.Errorf("the log is truncated after %d entries, but the host reports %d", r.Records, told.Records)
	case told.Records == r.Records && told.Head != "" && told.Head != r.Head:
		return fmt.Errorf("the log differs from the host's report: newest entry %s, want %s", r.Head, told.Head)
	case told.Records == r.Records && told.State != "" && told.State != r.State:
		return fmt.Errorf("the reported state is wrong: after entry %d the log's state is %s, but the host reports %s", r.Records-1, r.State, told.State)
	}
	return nil
}

// Show describes the run from the verified part of its log; see shown.Of.
func (v *Verifier) Show(last uint32) shown.Run {
	state := v.state()
	if state == nil {
		return shown.Of(nil, [32]byte{}, nil, 0)
	}
	run := shown.Of(state, v.log.run(), &v.history, last)
	run.Costs = v.log.costs()
	return run
}

// Event returns the number of the event after which the log of a run on a chain had the given head
// (hex), or 0 if the log never had this head. If the run's account has the same head, exactly the
// events up to this number happened on the chain.
func (v *Verifier) Event(head string) uint64 {
	var wanted [32]byte
	if n, err := hex.Decode(wanted[:], []byte(head)); err != nil || n != len(wanted) || v.log == nil {
		return 0
	}
	return v.log.event(wanted)
}

// Events returns older events; see shown.Events.
func (v *Verifier) Events(before int) ([]history.Event, int) { return shown.Events(&v.history, before) }
