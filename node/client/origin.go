package client

import (
	"errors"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
)

// ErrReplaced means that the run's main authority replaced the model that the members trained. The
// members have not agreed to train the new model.
var ErrReplaced = errors.New("the run's main authority replaced its model")

// origin identifies the model that the run trains: its first model, or a model that its main
// authority set later.
type origin struct {
	from  coordinator.Checkpoint
	since uint32 // first step that the model does not include
}

func originOf(s *coordinator.State) origin {
	c := s.Model.Checkpoint
	if c.FromPeers() {
		c = coordinator.Checkpoint{Kind: c.Origin, Repo: c.Repo, Revision: c.Revision}
	}
	return origin{c, s.OriginStep}
}

// watch returns ErrReplaced if the run's model was replaced. If the update contains the run's genesis,
// any replacement since the start of the run counts, and otherwise any since this client's first
// state.
func (o *origin) watch(u backend.Update) error {
	now := originOf(u.State)
	if now.from.Kind == 0 { // on a chain the model may be set later
		return nil
	}
	if o.from.Kind == 0 {
		*o = now
		if first, ok := began(u.Genesis); ok && now.since > first.since {
			return replaced(first, now, u.State)
		}
		return nil
	}
	before := *o
	*o = now
	if now == before {
		return nil
	}
	return replaced(before, now, u.State)
}

// began returns the model that a run started with.
func began(genesis []byte) (origin, bool) {
	g, err := follow.OpenGenesis(genesis)
	if err != nil {
		return origin{}, false
	}
	s, err := coordinator.Decode(g.State)
	return originOf(&s), err == nil
}

func replaced(before, now origin, s *coordinator.State) error {
	return fmt.Errorf("%w: before step %[3]d, %[4]s replaced %[2]s; the training after that step is discarded, and this client does not know the new model. Ask the host whether the change is intended. To train the new model, start the client with --follow-updates",
		ErrReplaced, before.name(), s.OriginStep, now.name())
}

// name returns a description of the model for messages.
func (o origin) name() string {
	kinds := map[coordinator.CheckpointKind]string{
		coordinator.CheckpointHub: "Hub", coordinator.CheckpointGcs: "bucket", coordinator.CheckpointLocal: "folder", coordinator.CheckpointDummy: "dummy",
	}
	text := fmt.Sprintf("%s %q", kinds[o.from.Kind], o.from.Repo)
	if o.from.Revision != "" {
		text += fmt.Sprintf(" at %q", o.from.Revision)
	}
	return text
}

// forgotten describes the models in the folder that are of later steps than the run has reached;
// empty: none. The host has lost its records of these steps. Such models are never mistaken for the
// run's models, because a model counts only if the run recorded its digest. Checkpoints stay, since a
// new run can start from one; intermediate checkpoints are removed when the next one is written.
func forgotten(f keep.Folder, step uint32) string {
	saved, haveSaved := f.NewestBefore(math.MaxUint32)
	copied, haveCopy := f.Intermediates().NewestBefore(math.MaxUint32)
	haveSaved, haveCopy = haveSaved && saved >= step, haveCopy && copied >= step
	if !haveSaved && !haveCopy {
		return ""
	}
	newest := copied
	if !haveCopy || haveSaved && saved > copied {
		newest = saved
	}
	text := fmt.Sprintf("the run is before step %d, but the checkpoint folder has a model of step %d: the run's host restarted from an older state, or another run had this name; the run does not contain the work of steps %d to %d", step, newest, step, newest)
	if haveSaved {
		text += fmt.Sprintf("; %s is kept, and a new run can begin from it with --resume-from", f.Checkpoint(saved))
	}
	return text
}
