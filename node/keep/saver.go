package keep

import (
	"context"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// Model is the model at the end of an epoch, or a model that an epoch fell back to.
type Model struct {
	Step     uint32
	Digest   [32]byte // of its manifest
	Snapshot checkpoint.Snapshot
	Stored   bool             // it is already on the disk (Lent.Save): the snapshot has no tensors
	Facts    checkpoint.Facts // set if the model was taken during the epoch; zero: derived from the state
}

// Options are the settings of a Saver.
type Options struct {
	Folder Folder
	Keep   int // newest checkpoints of the run to keep; 0: all
	// Saved is called for each new checkpoint in the folder, before older ones are removed. It is
	// called from any goroutine and must not block. May be nil.
	Saved func(dir string, f checkpoint.Facts)
	// MakeRoom frees disk space and returns the number of bytes that it freed. It is called from
	// any goroutine if a checkpoint does not fit. May be nil.
	MakeRoom func() int64
	// InPlace is called in the client's loop for each model that has reached its final folder. May
	// be nil.
	InPlace func(digest [32]byte, dir string)
	// Card describes a model of the run for people. It is called in the client's loop. May be nil.
	Card  func(s *coordinator.State, step uint32) checkpoint.Card
	Tasks *env.Tasks
	Emit  func(body event.Body)
	Log   *slog.Logger
}

// Saver writes the model of each epoch to the folder. Only the loop of a client may use it.
type Saver struct {
	Options
	Uploads  Uploads // uploads that the run may not know of
	Momentum int     // bytes of a momentum that is being written to the folder; 0: none

	put func(dir string, s checkpoint.Snapshot, beside ...checkpoint.Extra) error // writeCheckpoint; replaced in tests

	unsaved *Model        // model of the newest epoch, until it is known to be the run's
	since   time.Time     // time of the newest Take; before the first, when the Saver was created
	took    time.Duration // time from the previous Take to the newest
	pending *pending      // newest model that was written before its report
	failed  *attempt      // newest attempt, if it failed
	writing []*Model      // being written
	hung    bool          // it was logged that the disk does not respond
	quiet   time.Time     // until then, errors about a full disk are not logged again
	err     error         // of the newest attempt
	newest  uint32        // step of the newest checkpoint that this process wrote to the folder

	looked coordinator.Checkpoint // checkpoint that the folder was searched for
	holds  bool                   // whether it was there
}

// maxSaves is the maximum number of models that are being written to the disk, since each of them
// stays in memory until then. If the disk does not respond, only the newest further model waits.
const maxSaves = 2

// NewSaver returns a Saver without work.
func NewSaver(o Options) *Saver {
	return &Saver{Options: o, put: writeCheckpoint, since: o.Tasks.Now()}
}

// Take accepts a model that may become the run's checkpoint.
func (k *Saver) Take(m Model) {
	now := k.Tasks.Now()
	k.unsaved, k.took, k.since = &m, now.Sub(k.since), now
	if m.Stored {
		k.pending = &pending{step: m.Step, since: now, begun: true, done: true}
	}
}

// Busy reports whether a model still has to be saved.
func (k *Saver) Busy() bool { return len(k.writing) > 0 || k.unsaved != nil }

// Unwritten returns the steps of the models that are being written, are queued, or could not be
// written, and the total bytes of these and of a momentum that is being written.
func (k *Saver) Unwritten() (steps []uint32, bytes int) {
	bytes = k.Momentum
	models := slices.Clone(k.writing)
	if k.unsaved != nil {
		models = append(models, k.unsaved)
	}
	if k.failed != nil {
		models = append(models, k.failed.model)
	}
	for _, m := range models {
		if !slices.Contains(steps, m.Step) {
			steps = append(steps, m.Step)
		}
		for _, tensor := range m.Snapshot.Tensors {
			bytes += len(tensor.Data)
		}
	}
	return steps, bytes
}

// Wrote returns the step of the newest checkpoint that this process wrote; 0: none. It does not
// access the disk.
func (k *Saver) Wrote() uint32 { return k.newest }

// wrote removes a model from those being written.
func (k *Saver) wrote(m *Model) {
	i := slices.Index(k.writing, m)
	k.writing = slices.Delete(k.writing, i, i+1)
}

// Err returns the reason why the newest checkpoint was not saved, or nil.
func (k *Saver) Err() error { return k.err }

// Holds reports whether this client saved the run's checkpoint and can load it from its disk. It
// caches the result until a call names another checkpoint.
func (k *Saver) Holds(c coordinator.Checkpoint) bool {
	if k.Folder.Dir == "" || !c.FromPeers() {
		return false
	}
	if k.looked != c {
		_, err := k.Folder.Find(c.Step, c.Digest)
		k.looked, k.holds = c, err == nil
	}
	return k.holds
}

// Newest returns the newest model that the run recorded and that this client can load from its disk.
func (k *Saver) Newest(s *coordinator.State) (r coordinator.Recorded, found bool) {
	c := s.Model.Checkpoint
	if k.Folder.Dir == "" || !c.FromPeers() {
		return r, false
	}
	if k.Holds(c) {
		return coordinator.Recorded{Step: c.Step, Digest: c.Digest}, true
	}
	for _, r := range slices.Backward(s.Earlier) {
		if _, err := k.Folder.Find(r.Step, r.Digest); err == nil {
			return r, true
		}
	}
	return r, false
}

// OnDisk returns the step of the newest model that the run recorded and that is in the folder now;
// 0: none.
func (k *Saver) OnDisk(s *coordinator.State) uint32 {
	if s == nil {
		return 0
	}
	k.looked = coordinator.Checkpoint{} // it may have been added or removed
	newest, _ := k.Newest(s)
	return newest.Step
}

// Locations describes the locations of the run's newest recorded model.
func (k *Saver) Locations(s *coordinator.State) string {
	c := s.Model.Checkpoint
	if !c.FromPeers() {
		return "only the initial checkpoint was recorded"
	}
	digest := "digest " + hex.EncodeToString(c.Digest[:8])
	if dir, err := k.Folder.Find(c.Step, c.Digest); err == nil {
		return digest + ", in " + dir
	}
	var places []string
	for _, u := range s.UploadsOf(c.Digest) {
		places = append(places, u.Place.String())
	}
	if len(places) == 0 {
		return digest + ", in the --checkpoint-dir of members that saved it; no member reported an upload"
	}
	return digest + ", reported by members at " + strings.Join(places, " or ")
}

// SaveAgreed saves the model of an epoch when the run has left the epoch's Cooldown. A model that
// the run's quorum did not report is not a checkpoint of the run.
func (k *Saver) SaveAgreed(s *coordinator.State) {
	k.tryAgain()
	m := k.unsaved
	if m == nil || s.RunState == coordinator.Cooldown {
		return
	}
	ahead := k.ahead(m.Step)
	if c := s.Model.Checkpoint; c.FromPeers() && c.Step == m.Step && c.Digest != m.Digest {
		if ahead != nil {
			return // called again when the model is on the disk
		}
		k.unsaved = nil
		k.Log.Warn("checkpoint not saved: the run recorded a different one", "step", m.Step, "digest", hex.EncodeToString(m.Digest[:8]))
		if k.pending != nil && k.pending.step == m.Step {
			k.Tasks.Spawn(func(context.Context) func() {
				_ = k.Tasks.AtDisk(func() error { k.clean(m.Step); return nil })
				return func() {}
			})
		}
		return
	}
	if ahead == nil && len(k.writing) >= maxSaves {
		if !k.hung {
			k.hung = true
			k.Log.Warn("the disk does not answer: checkpoints wait, and only the newest waiting one is saved", "dir", k.Folder.Dir, "step", m.Step)
		}
		return
	}
	k.hung = false
	k.unsaved = nil
	facts, known := factsOf(m, s)
	a := &attempt{model: m, epoch: s.Progress.Epoch, facts: facts, known: known, recorded: s.Model.Checkpoint.Digest == m.Digest, spare: m.Step}
	if !a.recorded { // the run continues from an earlier model, which must stay
		newest, _ := k.Newest(s)
		a.spare = newest.Step
	}
	if k.Card != nil {
		a.card = k.Card(s, m.Step)
		a.card.Facts = facts
	}
	if ahead != nil {
		ahead.then = a
		return
	}
	k.save(a)
}

// FactsAfter returns the facts about the model after a step during its epoch, without the digest.
func FactsAfter(s *coordinator.State, step uint32) checkpoint.Facts {
	f, _ := factsOf(&Model{Step: step}, s)
	f.Epoch++ // when the run falls back to it, the epoch is over
	return f
}

// factsOf returns the position of the model in the run. known is false if the run has advanced so
// far that its state does not contain the position any more.
func factsOf(m *Model, s *coordinator.State) (f checkpoint.Facts, known bool) {
	if m.Facts != (checkpoint.Facts{}) {
		return m.Facts, true
	}
	at := s.Progress
	f = checkpoint.Facts{
		RunID: s.RunID, Epoch: at.Epoch, Step: m.Step, DataIndex: at.DataIndex,
		MaxSeqLen: s.Model.MaxSeqLen, Digest: hex.EncodeToString(m.Digest[:]),
	}
	known = at.Step == m.Step+1
	for _, round := range s.Epoch.Rounds { // the next round may be running already, with its own data
		if round.Step == m.Step+1 {
			f.DataIndex, known = round.DataIndex, true
		}
	}
	return f, known
}
