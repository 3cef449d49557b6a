package server

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
)

// ErrReplay means that a journal is intact but its records do not follow from each other.
var ErrReplay = errors.New("journal does not replay")

// replayer rebuilds a run from the records of a journal.
type replayer struct {
	log        *follow.Follower // nil before the first record, unless there is a snapshot
	wantDigest bool             // the next record has to confirm a snapshot
	names      core.Names
}

// apply applies one record.
func (r *replayer) apply(payload []byte) (record follow.Record, err error) {
	if r.wantDigest && (len(payload) == 0 || follow.Kind(payload[0]) != follow.KindDigest) {
		err = fmt.Errorf("%w: no digest follows", errSnapshot)
	} else {
		record, r.log, err = follow.Take(r.log, payload)
		r.wantDigest = false
	}
	if err == nil && record.Kind == follow.KindAction {
		if r.names == nil {
			r.names = core.Names{}
		}
		r.names.Note(coordinator.ClientID(record.Action.From), record.Action.Action, &r.log.State)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrReplay, err)
	}
	return record, err
}

// Replay reads the journal at path, verifies every record and returns the run after the last
// record. visit, which may be nil, is called with each record and the state after it, and must not
// keep either. The error names the first entry that does not verify, with its offset. An incomplete
// last entry is not an error: the summary has its length.
func Replay(path string, visit func(follow.Record, *coordinator.State) error) (*follow.Follower, journal.Summary, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, journal.Summary{}, fmt.Errorf("replay: %w", err)
	}
	defer func() { _ = file.Close() }()
	return ReplayFrom(path, file, visit)
}

// ReplayFrom replays a journal from a reader. Errors contain name.
func ReplayFrom(name string, from io.Reader, visit func(follow.Record, *coordinator.State) error) (*follow.Follower, journal.Summary, error) {
	var r replayer
	summary, err := journal.Read(from, func(payload []byte) error {
		record, err := r.apply(payload)
		if err == nil && visit != nil {
			err = visit(record, &r.log.State)
		}
		return err
	})
	if err != nil {
		return nil, summary, fmt.Errorf("replay %s: %w", name, err)
	}
	if r.log == nil {
		return nil, summary, fmt.Errorf("replay %s: %w: no genesis", name, ErrReplay)
	}
	return r.log, summary, nil
}
