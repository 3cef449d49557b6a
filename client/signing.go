package client

import (
	"log/slog"

	"github.com/psyche-go/psyche/client/keep"
	"github.com/psyche-go/psyche/coordinator"
)

// signing is what this client has signed: never two results of one step, whatever became of the
// process that signed the first.
type signing struct {
	folder keep.Folder
	run    [32]byte // hash of the run that the note is of
	newest uint32   // step of which a result was signed, by this process or perhaps an earlier one
	noted  uint32   // newest step of which this process has noted that it signs a result; of the task that trains
}

func newSigning(folder keep.Folder) signing {
	return signing{folder: folder}
}

// recall finds out which steps an earlier process may have signed results of, from the first
// state that this one sees. Without a note that is the round that runs: nobody signs a result of
// a round to come.
func (s *signing) recall(run [32]byte, state *coordinator.State, log *slog.Logger) {
	s.run = run
	step, found, err := s.folder.NewestSigned(s.run)
	if found {
		s.newest = step
		if step > state.Progress.Step {
			log.Warn("this key signed results of later steps of this run: it signs none again until then",
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

// note is called by the task that trains, before a result is handed to the loop to be signed. A
// step may be trained again whose first result was not signed.
func (s *signing) note(step uint32) error {
	if s.noted == step {
		return nil
	}
	if err := s.folder.NoteSigned(s.run, step); err != nil {
		return err
	}
	s.noted = step
	return nil
}
