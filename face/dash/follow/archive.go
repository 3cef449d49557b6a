package follow

import (
	"encoding/hex"

	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/record/journal"
)

type archiveReader struct {
	path     string
	follower archive.Follower
	paid     history.Payments
}

func newArchiveReader(path string) *archiveReader { return &archiveReader{path: path} }

func (r *archiveReader) read(see func(history.Entry, *coordinator.State) error) error {
	return r.follower.Read(r.path, func(step archive.Step, s *coordinator.State) error {
		r.paid.See(step)
		return see(history.EntryOfStep(step), s)
	})
}

func (r *archiveReader) state() (*coordinator.State, bool) { return r.follower.State() }

func (r *archiveReader) until() int64 { return r.follower.ReadUntil() }

func (r *archiveReader) run() [32]byte { return [32]byte{} }

func (r *archiveReader) keep(*history.History) error { return nil }

func (r *archiveReader) extent() *Extent { return extentOf(r.follower.Position()) }

func (r *archiveReader) costs() *history.Costs {
	costs := r.paid.Costs(r.follower.Summary())
	return &costs
}

// extentOf returns the extent of a log up to a position.
func extentOf(at journal.Position) *Extent {
	return &Extent{Records: at.Entries, Bytes: at.Offset, Head: hex.EncodeToString(at.Last[:])}
}
