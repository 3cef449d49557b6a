package client

import (
	"fmt"
	"math"

	"github.com/psyche-go/psyche/node/keep"
)

// forgotten describes the models in the folder for steps that the run has not reached, as this
// client finds it; empty: none. The host has lost its records of them. They are never mistaken for
// the run's models, because a model counts only if the run recorded its digest. Checkpoints stay,
// since a run can start from one; intermediate checkpoints are removed when the next one is
// written.
func forgotten(f keep.Folder, step uint32) string {
	saved, haveSaved := f.NewestBefore(math.MaxUint32)
	copied, haveCopy := f.Commits().NewestBefore(math.MaxUint32)
	haveSaved, haveCopy = haveSaved && saved >= step, haveCopy && copied >= step
	if !haveSaved && !haveCopy {
		return ""
	}
	newest := copied
	if !haveCopy || haveSaved && saved > copied {
		newest = saved
	}
	text := fmt.Sprintf("the run stands before step %d, and the folder has a model of step %d: the run's host went back, or another run had this name; what was done in steps %d to %d is lost to the run", step, newest, step, newest)
	if haveSaved {
		text += fmt.Sprintf("; %s stays, and a run can begin from it with --resume-from", f.Checkpoint(saved))
	}
	return text
}
