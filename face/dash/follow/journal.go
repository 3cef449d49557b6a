package follow

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/psyche-go/psyche/base/atomicfile"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
)

// keptFormat is the version of saved histories. A history of a different version is recreated.
const keptFormat = 5

// maxKept limits the size of a saved history in bytes, uncompressed.
const maxKept = 64 << 20

// kept is the content of a saved history's file.
type kept struct {
	Format   int              `json:"format"`
	Position journal.Position `json:"position"`
	State    []byte           `json:"state"`
	History  history.History  `json:"history"`
}

type journalReader struct {
	path, keepPath string
	follower       *server.Follower
}

// openJournalReader loads the saved history if it belongs to the journal. Otherwise it returns the
// reason as an error.
func openJournalReader(o Options) (*journalReader, history.History, error) {
	r := &journalReader{path: o.Path, keepPath: o.Keep, follower: server.NewFollower()}
	if o.Keep == "" {
		return r, history.History{}, nil
	}
	found, err := readKept(o.Keep)
	if errors.Is(err, fs.ErrNotExist) {
		return r, history.History{}, nil
	}
	var state coordinator.State
	if err == nil {
		state, err = coordinator.Decode(found.State)
	}
	if err == nil {
		resumed := server.ResumeFollower(found.Position, state)
		err = resumed.Check(o.Path)
		if err == nil {
			r.follower = resumed
			return r, found.History, nil
		}
	}
	return r, history.History{}, err
}

func readKept(path string) (found kept, err error) {
	file, err := os.Open(path)
	if err != nil {
		return found, err
	}
	defer func() { _ = file.Close() }()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return found, fmt.Errorf("%s: %w", path, err)
	}
	if err := json.NewDecoder(io.LimitReader(unpacked, maxKept)).Decode(&found); err != nil {
		return found, fmt.Errorf("%s: %w", path, err)
	}
	if found.Format != keptFormat {
		return found, fmt.Errorf("%s: format %d, want %d", path, found.Format, keptFormat)
	}
	return found, nil
}

func (r *journalReader) read(see func(history.Entry, *coordinator.State) error) error {
	return r.follower.Read(r.path, func(number uint64, record follow.Record, s *coordinator.State) error {
		if e, tells := history.EntryOf(number, record); tells {
			return see(e, s)
		}
		return nil
	})
}

func (r *journalReader) state() (*coordinator.State, bool) { return r.follower.State() }

func (r *journalReader) until() int64 { return r.follower.ReadUntil() }

func (r *journalReader) run() [32]byte { return r.follower.Run() }

func (r *journalReader) costs() *history.Costs { return nil }

func (r *journalReader) extent() *Extent { return extentOf(r.follower.Position()) }

// keep saves the history atomically.
func (r *journalReader) keep(h *history.History) error {
	state, begun := r.follower.State()
	if r.keepPath == "" || !begun {
		return nil
	}
	var packed bytes.Buffer
	to := gzip.NewWriter(&packed)
	err := json.NewEncoder(to).Encode(kept{keptFormat, r.follower.Position(), state.AppendTo(nil), *h})
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	return atomicfile.Write(r.keepPath, packed.Bytes(), 0o644)
}
