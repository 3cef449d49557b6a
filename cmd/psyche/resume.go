package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/remote"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/record/config"
)

// resumeFlags make a run start from a checkpoint of an earlier run.
type resumeFlags struct {
	ResumeFrom string `placeholder:"DIR|hub:OWNER/NAME[@REVISION]" help:"Checkpoint to resume from, instead of the model in the file. The run continues at the checkpoint's step, epoch and data index. If the checkpoint is a folder, every client needs a copy at the same path, or another folder in --model-path."`
}

// apply sets the checkpoint as the run's start. It pins a repository to its newest commit, so that
// all clients get the same model.
func (f resumeFlags) apply(ctx context.Context, run *config.Run, out io.Writer) error {
	if f.ResumeFrom == "" {
		return nil
	}
	facts, from, err := f.find(ctx)
	if err != nil {
		return fmt.Errorf("--resume-from %s: %w", f.ResumeFrom, err)
	}
	switch {
	case run.Progress != (coordinator.Progress{}):
		return configError{errors.New("--resume-from: the file contains a [progress] table: remove it")}
	case facts.MaxSeqLen != run.Model.MaxSeqLen:
		return configError{fmt.Errorf("--resume-from: the checkpoint counts data in sequences of %d tokens, but max_seq_len is %d", facts.MaxSeqLen, run.Model.MaxSeqLen)}
	case facts.Step >= run.Config.TotalSteps:
		return configError{fmt.Errorf("--resume-from: the checkpoint is at step %d, but total_steps is %d: want more steps", facts.Step, run.Config.TotalSteps)}
	}
	run.Model.Checkpoint = from
	run.Progress = coordinator.Progress{Epoch: facts.Epoch, Step: facts.Step + 1, DataIndex: facts.DataIndex}
	_, err = fmt.Fprintf(out, "resuming from step %d of run %s, epoch %d, sequence %d\n", facts.Step, facts.RunID, facts.Epoch, facts.DataIndex)
	return err
}

// find reads the facts of the checkpoint, and its location for clients.
func (f resumeFlags) find(ctx context.Context) (checkpoint.Facts, config.Checkpoint, error) {
	name, isHub := strings.CutPrefix(f.ResumeFrom, "hub:")
	if !isHub {
		dir, err := filepath.Abs(f.ResumeFrom)
		if err != nil {
			return checkpoint.Facts{}, config.Checkpoint{}, err
		}
		facts, err := checkpoint.ReadFacts(dir)
		return facts, config.Checkpoint{Local: &config.LocalCheckpoint{Path: dir}}, err
	}
	o, err := hub.FromEnvironment(os.LookupEnv)
	if err != nil {
		return checkpoint.Facts{}, config.Checkpoint{}, err
	}
	client, err := hub.New(o)
	if err != nil {
		return checkpoint.Facts{}, config.Checkpoint{}, err
	}
	repo, revision, _ := strings.Cut(name, "@")
	facts, pinned, err := remote.HubRepo{Client: client, Repo: repo, Revision: revision}.Facts(ctx)
	return facts, config.Checkpoint{Hub: &config.HubRepo{RepoID: repo, Revision: pinned.Revision}}, err
}
