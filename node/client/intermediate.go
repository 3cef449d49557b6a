package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/record/config"
)

// intermediates contains this client's copies of intermediate checkpoints, so that the run can fall
// back to a model of the running epoch. The copies are the checkpoint that enough members reported,
// and newer models that they may still report. A copy is on the disk if the client has a folder,
// else in memory.
type intermediates struct {
	tasks  *env.Tasks
	jobs   *core.Jobs
	folder keep.Folder
	report *reporter

	models  []intermediate // in ascending order of steps
	busy    bool           // a model is being hashed, or written for the first time
	disk    intermediateDisk
	answer  uint32       // newest step after which a model was taken because a member that left holds it
	owed    uint32       // step of the model to take as soon as the trainer is idle; 0: none
	size    int          // bytes of the newest copied or lent model
	leaving bool         // the client is leaving: it reports a model before the model is on the disk
	model   uint64       // bytes of the model that the epoch continues from
	large   uint64       // larger models are not copied, but written from the trainer's memory
	copies  uint32       // first step of an epoch in which large models are copied, because the disk did not accept one in time; 0: none
	dropped uint32       // step of the intermediate checkpoint before which folders were removed
	first   uint32       // step of the first copy that this process took; 0: none
	served  servedModels // models that this client serves to members that return
}

// intermediate is an intermediate checkpoint: the model after a step of the running epoch.
type intermediate struct {
	coordinator.Recorded
	copy  *checkpoint.Snapshot // nil: it is on the disk
	facts checkpoint.Facts
}

// isDue reports whether to copy the model after a step. The first copy is due commit_every_rounds
// rounds after the last agreed one, or after the start of the epoch. While no model has enough
// reports, the distance to the next copy doubles each time. Members that hash slowly, or see the
// run later, thus come to report the same models. A client that reaches a step whose model the
// other members have already agreed on also copies that model, because they may have left when the
// model is needed.
func (c *intermediates) isDue(s *coordinator.State, step uint32) bool {
	if c.busy || s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness {
		return false
	}
	since := s.Epoch.StartStep - 1
	if s.Epoch.Commit.Step != 0 {
		since = s.Epoch.Commit.Step
	}
	every := config.CommitEvery(s.Model.Definition, s.Config)
	return step == s.Epoch.Commit.Step || step > since && (step-since)%every == 0 && bits.OnesCount32((step-since)/every) == 1 ||
		c.isAsked(s, step)
}

// isAsked reports whether to copy the model after a step because a member that left has reported
// this model. The run records the model only if other members report it too. There is at most one
// such copy every commit_every_rounds rounds, however often members leave and return.
func (c *intermediates) isAsked(s *coordinator.State, step uint32) bool {
	if step <= s.Epoch.Commit.Step || c.answer != 0 && step-c.answer < config.CommitEvery(s.Model.Definition, s.Config) {
		return false
	}
	left := func(m coordinator.Client) bool { return m.State == coordinator.Withdrawn && m.Report.Step == step }
	return slices.ContainsFunc(s.Epoch.Clients, left) || slices.ContainsFunc(s.Epoch.Exited, left)
}

// takeOwed takes the model after the newest applied step, in two cases: a copy of it was due, but
// the trainer continued with a speculation; or a member that left reported this model. In the
// second case the run records the model when this client reports it too, so that no counted result
// is lost. takeOwed reports whether it has started.
func (c *intermediates) takeOwed(v *view, e *engine, rounds *roundStates) bool {
	r := rounds.replica
	if r == nil || r.closing || r.step < r.epoch.startStep || !v.isMember() || !e.Idle() || c.busy || c.has(r.step) || r.step != c.owed && !c.isAsked(v.state, r.step) {
		return false
	}
	c.owed = 0
	c.takeNow(v, r, e, func(err error) {
		c.report.log.Warn("skipping an intermediate checkpoint", "step", r.step, "err", err)
	})
	return true
}

// takeNow takes the model after the newest applied step, while the trainer is otherwise idle.
func (c *intermediates) takeNow(v *view, r *replica, e *engine, failed func(error)) {
	trainer, step := e.trainer, r.step
	t := c.begin(v.state, trainer, step)
	start(e, core.Snapshot{Step: step}, func(ctx context.Context) *taking {
		t.take(ctx, c.tasks, trainer)
		return t
	}, func(t *taking) {
		if err := c.taken(t, v.state); err != nil {
			failed(err)
		}
	}, nil)
}

// take hashes a copy of the model after a step, concurrently with the training, and writes it to
// the disk.
func (c *intermediates) take(step uint32, taken checkpoint.Snapshot, s *coordinator.State) {
	if c.busy || c.has(step) {
		return
	}
	c.note(step, s)
	c.busy = true
	c.size = sizeOf(taken)
	facts, work := keep.FactsAfter(s, step), quietly
	if c.leaving { // no training is running, and other members wait
		work = func(_ checkpoint.Snapshot, do func() error) error { return recovered(do) }
	}
	spawn(c.tasks, c.jobs, core.Hash{Step: step}, func(context.Context) (h hashed) {
		begun := c.tasks.Now()
		h.point = intermediate{Recorded: coordinator.Recorded{Step: step}, copy: &taken}
		h.err = work(taken, func() error {
			if err := taken.Validate(); err != nil {
				return err
			}
			h.point.Digest = taken.Manifest().Digest()
			facts.Digest = hexOf(h.point.Digest)
			h.point.facts = facts
			return nil
		})
		h.took = c.tasks.Now().Sub(begun)
		return h
	}, func(h hashed) {
		c.busy = false
		if h.err != nil {
			c.report.log.Error("intermediate checkpoint skipped; training continues", "step", step, "err", h.err)
			return
		}
		c.report.log.Debug("took an intermediate checkpoint", "step", step, "digest", hexOf(h.point.Digest)[:16], "seconds", h.took.Seconds(), "copied", true)
		c.save(h.point, c.needed(s))
	}, func(hashed) { c.busy = false })
}

// hashed is the result of hashing a copy.
type hashed struct {
	point intermediate
	took  time.Duration
	err   error
}

// note records that the model after a step is being taken.
func (c *intermediates) note(step uint32, s *coordinator.State) {
	if c.isAsked(s, step) {
		c.answer = step
	}
	if c.first == 0 {
		c.first = step
	}
}

// needed returns a function that reports, by step, which folders to keep when a new one is written:
//   - the folders of models in use;
//   - if this client does not have the run's newest intermediate checkpoint, the folders of all models
//     that the run recorded;
//   - the folders from an earlier process of this client, whose models the run may still record.
//
// All other folders contain abandoned models.
func (c *intermediates) needed(s *coordinator.State) func(step uint32) bool {
	keep := map[uint32]bool{s.Model.Checkpoint.Step: true}
	for _, p := range c.models {
		keep[p.Step] = true
	}
	commit, start, first := s.Epoch.Commit, s.Epoch.StartStep, c.first
	if !c.holds(commit.Digest) {
		keep[commit.Step] = true
		for _, r := range s.Earlier {
			keep[r.Step] = true
		}
	}
	return func(step uint32) bool { return keep[step] || step > commit.Step && step >= start && step < first }
}

// soon extends needed for a disk that executes a removal late. After diskTimeout it keeps all
// folders, because further models may have been written that needed does not know.
func (c *intermediates) soon(needed func(step uint32) bool) func(step uint32) bool {
	until := c.tasks.Now().Add(diskTimeout)
	return func(step uint32) bool { return needed(step) || !c.tasks.Now().Before(until) }
}

// add adds the run's intermediate checkpoint, which this client obtained.
func (c *intermediates) add(m *modelsync.Model) {
	point := intermediate{Recorded: coordinator.Recorded{Step: m.Step, Digest: m.Digest}}
	if m.Source != modelsync.FromDisk {
		taken := m.Snapshot // stays available if m releases its tensors
		point.copy = &taken
	}
	c.enter(point)
}

// enter adds a model unless there is already one of its step.
func (c *intermediates) enter(point intermediate) {
	if c.has(point.Step) {
		return
	}
	c.models = append(c.models, point)
	slices.SortFunc(c.models, func(a, b intermediate) int { return cmp.Compare(a.Step, b.Step) })
}

// has reports whether c contains the model after a step.
func (c *intermediates) has(step uint32) bool {
	return slices.ContainsFunc(c.models, func(p intermediate) bool { return p.Step == step })
}

// holds reports whether c contains the model with a digest.
func (c *intermediates) holds(digest [32]byte) bool {
	return slices.ContainsFunc(c.models, func(p intermediate) bool { return p.Digest == digest })
}

// of returns the model with a digest, or the zero value.
func (c *intermediates) of(digest [32]byte) (found intermediate) {
	for _, p := range c.models {
		if p.Digest == digest {
			return p
		}
	}
	return found
}

// onDisk returns the step of the newest model on the disk that the run can continue from; 0: none.
func (c *intermediates) onDisk(s *coordinator.State) (step uint32) {
	for _, p := range c.models {
		if p.copy == nil && s != nil && isRecorded(s, p.Recorded) {
			step = p.Step
		}
	}
	return step
}

// abandon drops the models that the run has not recorded. It is called when this client is
// desynchronised, because its weights, and thus these models, may be wrong.
func (c *intermediates) abandon(s *coordinator.State) {
	c.models = slices.DeleteFunc(c.models, func(p intermediate) bool { return !isRecorded(s, p.Recorded) })
}

// trim drops models that are no longer needed.
func (c *intermediates) trim(s *coordinator.State, models *modelsync.Models) {
	commit, checkpoint := s.Epoch.Commit, s.Model.Checkpoint
	shared := checkpoint.FromPeers() && models.Shared(checkpoint.Digest) != nil
	running := s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness || s.RunState == coordinator.Cooldown
	newest := len(c.models) - 1
	kept := c.models[:0]
	for i, p := range c.models {
		switch {
		case p.Step >= s.Progress.Step: // the host lost its records of this step
			continue
		case p.Recorded == commit, running && i >= newest-1 && p.Step > commit.Step && p.Step >= s.Epoch.StartStep:
		case isRecorded(s, p.Recorded) && (!shared || p.Step > checkpoint.Step) && (i == newest || commit.Step == 0):
		default:
			continue
		}
		kept = append(kept, p)
	}
	clear(c.models[len(kept):])
	c.models = kept
	if c.folder.Dir == "" || commit.Step == 0 || commit.Step == c.dropped || !c.holds(commit.Digest) {
		return
	}
	c.dropped = commit.Step
	needed := c.soon(func(step uint32) bool { return step >= commit.Step || step == checkpoint.Step })
	c.tasks.Spawn(func(context.Context) func() {
		err := c.tasks.AtDisk(func() error { return c.folder.DropIntermediates(needed) })
		return func() { c.warnOf(err) }
	})
}

// isRecorded reports whether the run has recorded a model.
func isRecorded(s *coordinator.State, r coordinator.Recorded) bool {
	c := s.Model.Checkpoint
	return r == s.Epoch.Commit || c.FromPeers() && r.Digest == c.Digest || slices.Contains(s.Earlier, r)
}

// toReport returns the newest model that this client holds but has not reported to the run.
func (c *intermediates) toReport(s *coordinator.State, me *coordinator.Client) (found coordinator.Recorded, ok bool) {
	for _, p := range slices.Backward(c.models) {
		if p.Step < s.Epoch.StartStep || p.Step >= s.Progress.Step {
			continue
		}
		if p.Recorded == s.Epoch.Commit && me.HoldsEarlier != p.Step || p.Step > max(me.Report.Step, s.Epoch.Commit.Step) {
			return p.Recorded, true
		}
	}
	return found, false
}

// reportTo reports, during rounds, the newest model that this client can continue from.
func (c *intermediates) reportTo(v *view, models *modelsync.Models, actions *submitter) {
	s := v.state
	c.trim(s, models)
	c.saveLater(s)
	me, ok := s.Member(v.myself())
	if !ok || !v.isMember() || s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness {
		return
	}
	model, ok := c.toReport(s, me)
	if !ok {
		return
	}
	report := coordinator.ReportCheckpoint{Step: model.Step + 1, Digest: model.Digest}
	actions.submit("intermediate checkpoint", report, report, func() {
		c.report.log.Debug("reported an intermediate checkpoint", "step", model.Step, "digest", hexOf(model.Digest)[:16])
	})
}

// largeModel is the size in bytes from which a model is hashed with the lowest priority.
const largeModel = 1 << 20

func sizeOf(s checkpoint.Snapshot) (size int) {
	for _, tensor := range s.Tensors {
		size += len(tensor.Data)
	}
	return size
}

// copyAfter copies the model for an intermediate checkpoint, inside the task that applied a step.
// An error costs only the intermediate checkpoint.
func copyAfter(ctx context.Context, trainer env.Trainer, step uint32) (s checkpoint.Snapshot, err error) {
	defer func() {
		if failed := recover(); failed != nil {
			err = fmt.Errorf("copy the model: %v", failed)
		}
	}()
	if s, err = trainer.Snapshot(ctx); err != nil {
		return s, errors.Join(errors.New("copy the model"), err)
	}
	s.Step = step
	return s, nil
}
