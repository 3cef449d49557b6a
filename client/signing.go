package client

import (
	"crypto/sha256"
	"log/slog"

	"github.com/psyche-go/psyche/client/keep"
	"github.com/psyche-go/psyche/coordinator"
)

// signing is what this client has signed: never two results of one step, whatever became of the
// process that signed the first.
type signing struct {
	folder keep.Folder
	run    [32]byte // which run the note is of
	newest uint32   // step of which a result was signed, by this process or perhaps an earlier one
}

func newSigning(folder keep.Folder) signing {
	return signing{folder: folder, run: sha256.Sum256([]byte(folder.RunID))}
}

// recall finds out which steps an earlier process may have signed results of, from the first
// state that this one sees. Without a note that is the round that runs: nobody signs a result of
// a round to come.
func (s *signing) recall(state *coordinator.State, log *slog.Logger) {
	step, found, err := s.folder.NewestSigned(s.run)
	if found {
		s.newest = step
		if step > state.Progress.Step {
			log.Warn("this key signed results of later steps of a run of this name: it signs none again until then; a run that began anew needs another name or checkpoint folder",
				"signed", step, "step", state.Progress.Step, "file", s.folder.Signed())
		}
		return
	}
	if err != nil {
		log.Warn("it is not known what this client signed: it leaves out the round that runs", "err", err)
	}
	s.newest = state.Progress.Step - 1
	if state.RunState == coordinator.RoundTrain || state.RunState == coordinator.RoundWitness {
		s.newest = state.Progress.Step
	}
}

// may reports whether a result of the step can be signed.
func (s *signing) may(step uint32) bool { return step > s.newest }

// note is called, from any goroutine, before a result is handed to the loop to be signed.
func (s *signing) note(step uint32) error { return s.folder.NoteSigned(s.run, step) }
