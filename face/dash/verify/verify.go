package verify

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

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

// Verifier checks one log. It is used by one goroutine, and has one of its own, which Close ends.
type Verifier struct {
	to      *io.PipeWriter
	done    chan struct{}
	records atomic.Int64

	// What the Verifier's own goroutine has until done is closed.
	log        log // nil before the first record
	history    history.History
	signatures int
	summary    journal.Summary
	err        error
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
	from, to := io.Pipe()
	v := &Verifier{to: to, done: make(chan struct{})}
	go func() {
		defer close(v.done)
		v.summary, v.err = journal.Read(from, v.take)
		_ = from.CloseWithError(v.err) // Write fails from now on
	}()
	return v
}

// Write takes the next bytes of the log. After something that does not verify it fails.
func (v *Verifier) Write(p []byte) (int, error) { return v.to.Write(p) }

// Records returns how many records were verified until now.
func (v *Verifier) Records() int { return int(v.records.Load()) }

// take verifies a record.
func (v *Verifier) take(payload []byte) error {
	if v.log == nil {
		v.log = logOf(payload)
	}
	signatures, err := v.log.take(uint64(v.records.Load()), payload, v.history.See)
	if err != nil {
		return err
	}
	v.signatures += signatures
	v.records.Add(1)
	return nil
}

// state returns the newest state; nil: there is none.
func (v *Verifier) state() *coordinator.State {
	if v.log == nil {
		return nil
	}
	return v.log.state()
}

// Close ends the log and says what was found, also compared with what was told of it.
func (v *Verifier) Close(told Told) Report {
	_ = v.to.Close() // an error of it is one of Write
	<-v.done
	r := Report{Records: v.Records(), Signatures: v.signatures, Bytes: v.summary.Size, Torn: v.summary.Torn}
	if state := v.state(); state != nil {
		hash := state.Hash()
		r.State, r.Head = hex.EncodeToString(hash[:]), hex.EncodeToString(v.summary.Last[:])
		v.log.describe(&r)
		if state.Authority.Main != (coordinator.ClientID{}) {
			r.Authority = identity.ID(state.Authority.Main).String()
		}
	}
	if err := v.problem(told, r); err != nil {
		r.Problem = err.Error()
	}
	r.Verified = r.Problem == ""
	return r
}

// problem says what is wrong with the log, or with what was told of it.
func (v *Verifier) problem(told Told, r Report) error {
	switch {
	case v.err != nil:
		return fmt.Errorf("the log does not verify: %w", v.err)
	case v.state() == nil:
		return errors.New("there is no log: it ends before its first entry")
	case told.Run != "" && told.Run != r.Run:
		return fmt.Errorf("this is the log of another run, %s, not of %s", r.Run, told.Run)
	case told.Records > r.Records:
		return fmt.Errorf("the log is cut: it ends after %d entries, and is said to have %d", r.Records, told.Records)
	case told.Records == r.Records && told.Head != "" && told.Head != r.Head:
		return fmt.Errorf("this is another log than the one that was told of: its newest entry is %s, not %s", r.Head, told.Head)
	case told.Records == r.Records && told.State != "" && told.State != r.State:
		return fmt.Errorf("what is shown is not what the log says: the state after entry %d is %s, not %s", r.Records-1, r.State, told.State)
	}
	return nil
}

// Show describes the run as far as its log was verified, after Close: see shown.Of.
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
