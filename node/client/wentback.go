package client

import (
	"fmt"
	"math"

	"github.com/psyche-go/psyche/node/keep"
)

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
