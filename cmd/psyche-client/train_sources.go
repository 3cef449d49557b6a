package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/node/member"
	"github.com/psyche-go/psyche/record/config"
)

// sourceFlags say where model and data of a run may come from: whoever set it up names places, and
// the user decides what is read from them.
type sourceFlags struct {
	DataPath        string `help:"Folder of tokens to use in place of the run's data locations. It must hold the same data." type:"path"`
	GCSCredentials  bool   `name:"gcs-credentials" help:"Read the buckets of Google Cloud Storage that the run or its members name with your credentials (GOOGLE_APPLICATION_CREDENTIALS, gcloud's, the machine's) in place of none."`
	ModelPath       string `help:"Folder of the model that the run began with, in place of the one that the run names." type:"path"`
	AllowLocalPaths bool   `help:"Let the run name folders of this machine for its model and data. Whoever set up the run decides what is read from them, trained on and shared."`

	AllowInnerData bool `help:"Let the run name data at addresses of inner networks: of this machine, of private networks, of the link. Whoever set up the run decides what is read from there and trained on. Not needed for a data server on the host of --server-addr."`

	OtherCheckpointDir []string `placeholder:"DIR" help:"The --checkpoint-dir of another member, on this machine or mounted here: the run's model is looked for there when no member gives it. May be repeated." sep:"none" type:"path"`

	AllowPrivateRepos bool `help:"Let the run name repositories of the Hub that only your token may read. Whoever set up the run decides which are read, trained on and shared."`
}

// errLocalPath refuses what a stranger's run could use to read private files.
var errLocalPath = errors.New("the run names a folder of this machine, which only you may choose (or --allow-local-paths, if you trust the run)")

// missingModel says what to do about a model that the run's host has and does not hand out, and why it
// does not.
func missingModel(name string, why error) error {
	return fmt.Errorf("the model %s: name a folder with --model-path (of the run's server: %w)", name, why)
}

// wantsModelPath reports whether a run begins with a folder that only the user may choose.
func (f sourceFlags) wantsModelPath(from coordinator.Checkpoint) bool {
	return from.Kind == coordinator.CheckpointLocal && f.ModelPath == "" && !f.AllowLocalPaths
}

// wantsDataPath reports whether a run's data is in a folder that only the user may choose.
func (f sourceFlags) wantsDataPath(run config.Model) bool {
	return namesFolders(run.DataLocations) && f.DataPath == "" && !f.AllowLocalPaths
}

// checkModelPath looks at the config.json of a model that comes from a folder: of --model-path, of the
// run, or where the run's server put it.
func (f sourceFlags) checkModelPath(run config.Model, from coordinator.Checkpoint, hosted string) error {
	dir := cmp.Or(f.ModelPath, hosted)
	switch from.Kind {
	case coordinator.CheckpointP2P, coordinator.CheckpointP2PGcs:
		return nil // it comes from members
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
