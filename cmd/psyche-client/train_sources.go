package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/node/member"
	"github.com/psyche-go/psyche/record/config"
)

// sourceFlags select permitted sources for the model and data of a run: the run names locations,
// and the user decides which of them are read.
type sourceFlags struct {
	DataPath         string `help:"Folder of token files to use instead of the run's data locations. It must contain the same data." type:"path"`
	HeldOut          string `help:"Token file or folder on which this member measures the loss of the model at the end of each epoch. It reports the loss to the run, as a claim. Default: heldout in the folder of the run's data, if the data is in a folder." type:"path"`
	HeldOutSequences uint64 `default:"${claim_sequences}" placeholder:"N" help:"Held-out sequences to use, spread evenly over the data; 0 means all (${default})."`
	GCSCredentials   bool   `name:"gcs-credentials" help:"Use your credentials (GOOGLE_APPLICATION_CREDENTIALS, gcloud's, the machine's) to read Google Cloud Storage buckets that the run or its members name. By default, no credentials are used."`
	ModelPath        string `help:"Folder of the run's initial model, to use instead of the location that the run names." type:"path"`
	AllowLocalPaths  bool   `help:"Allow the run to name folders of this machine for its model and data. The run's main authority decides which folders are read, trained on and shared."`

	AllowInnerData bool `help:"Allow the run to name data at private addresses: on this machine, in private networks, and link-local. The run's main authority decides which data is read and trained on. Not needed for a data server on the host of --server-addr."`

	OtherCheckpointDir []string `placeholder:"DIR" help:"The --checkpoint-dir of another member, on this machine or mounted here. The client looks there for the run's model if no member provides the model. May be repeated." sep:"none" type:"path"`

	AllowPrivateRepos bool `help:"Allow the run to name Hub repositories that need your token. The run's main authority decides which repositories are read, trained on and shared."`
}

// wantsModelPath reports whether a run starts with a folder that only the user may choose.
func (f sourceFlags) wantsModelPath(from coordinator.Checkpoint) bool {
	return from.Kind == coordinator.CheckpointLocal && f.ModelPath == "" && !f.AllowLocalPaths
}

// wantsDataPath reports whether a run's data is in a folder that only the user may choose.
func (f sourceFlags) wantsDataPath(run config.Model) bool {
	return namesFolders(run.DataLocations) && f.DataPath == "" && !f.AllowLocalPaths
}

// checkModelPath checks the config.json of a model in a folder: of --model-path, of the run, or of
// a download from the run's server.
func (f sourceFlags) checkModelPath(run config.Model, from coordinator.Checkpoint, hosted string) error {
	dir := cmp.Or(f.ModelPath, hosted)
	switch from.Kind {
	case coordinator.CheckpointP2P, coordinator.CheckpointP2PGcs:
		return nil // the model comes from members
	case coordinator.CheckpointLocal:
		if dir == "" {
			dir = from.Repo
		}
	}
	if dir == "" {
		return nil
	}
	path := filepath.Join(dir, checkpoint.ConfigFile)
	modelConfig, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read checkpoint %s: %w; a model folder has config.json and model.safetensors", dir, err)
	}
	description, err := model.Describe(modelConfig)
	if err == nil {
		err = member.Fits(run, description)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
