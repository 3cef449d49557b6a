package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Model is the definition of a language model and of its training.
type Model struct {
	Architecture Architecture
	DataType     DataType

	// MaxSeqLen is the number of tokens of a training sequence.
	MaxSeqLen uint32

	// ColdStartWarmupSteps is the number of steps over which the learning rate rises again after an
	// epoch that started with fresh optimizers. 0: no rise.
	ColdStartWarmupSteps uint32

	// DataLocations are the sources of the data, in the order in which clients try them.
	DataLocations []DataLocation

	// Checkpoint is the source of the run's first model. The coordinator's state contains the
	// current one.
	Checkpoint Checkpoint

	LRSchedule LRSchedule
	Optimizer  Optimizer

	// CommitEveryRounds is the number of rounds between intermediate checkpoints, which members
	// report during an epoch. 0: the default of CommitEvery.
	CommitEveryRounds uint32 `json:",omitempty"`

	// Name and Description are for people; see NameOf.
	Name        string `json:",omitempty"`
	Description string `json:",omitempty"`
}

// commitsPerEpoch is the default number of times that members report their model during an epoch.
const commitsPerEpoch = 20

// CommitEvery returns the number of rounds between intermediate checkpoints, which the members of a
// run report during an epoch. It is the definition's CommitEveryRounds, or a twentieth of the
// rounds of an epoch. If time bounds the epoch, CommitEvery assumes that every round takes
// max_round_train_time. The result is at least 1, and the same for all members.
func CommitEvery(definition []byte, c coordinator.Config) uint32 {
	var says struct{ CommitEveryRounds uint32 }
	if json.Unmarshal(definition, &says) == nil && says.CommitEveryRounds > 0 {
		return says.CommitEveryRounds
	}
	rounds := uint64(c.RoundsPerEpoch)
	if rounds == 0 && c.MaxRoundTrainTime > 0 {
		rounds = c.EpochTime / c.MaxRoundTrainTime
	}
	return uint32(min(max(rounds/commitsPerEpoch, 1), math.MaxUint32))
}

// Trainable returns the reason why clients cannot train the model, if it uses a part of the
// published format that is not implemented.
func (m Model) Trainable() error {
	switch dummy := m.Checkpoint.Dummy != nil; {
	case m.Optimizer.AdamW != nil:
		return errors.New("AdamW exchanges nothing between members, so each would train a separate model; want Distro or LocalSteps (psyche-client solo --optimizer adamw trains with AdamW)")
	case m.Optimizer.Dummy != nil && !dummy:
		return errors.New("Dummy changes no model that is one; want Distro, or checkpoint.Dummy as well")
	}
	return nil
}

// Architecture is the name of the implementation that builds and trains the model.
type Architecture string

// Architectures of the published format.
const (
	HfLlama    Architecture = "HfLlama"
	HfDeepseek Architecture = "HfDeepseek"
	HfAuto     Architecture = "HfAuto"
	Torchtitan Architecture = "Torchtitan"
)

// DataType is the purpose of the sequences.
type DataType string

// Data types of the published format.
const (
	Pretraining DataType = "Pretraining"
	Finetuning  DataType = "Finetuning"
)

// TokenSize is the number of bytes of a token in a token file: 2 or 4.
type TokenSize uint8

// Token sizes of the published format.
const (
	TwoBytes  TokenSize = 2
	FourBytes TokenSize = 4
)

// String returns the name in the published format.
func (s TokenSize) String() string {
	switch s {
	case TwoBytes:
		return "TwoBytes"
	case FourBytes:
		return "FourBytes"
	default:
		return fmt.Sprintf("TokenSize(%d)", uint8(s))
	}
}

// MarshalText returns the name in the published format.
func (s TokenSize) MarshalText() ([]byte, error) {
	if s != TwoBytes && s != FourBytes {
		return nil, fmt.Errorf("token size %d: want 2 or 4", uint8(s))
	}
	return []byte(s.String()), nil
}

// UnmarshalText parses the name in the published format.
func (s *TokenSize) UnmarshalText(text []byte) error {
	switch string(text) {
	case "TwoBytes":
		*s = TwoBytes
	case "FourBytes":
		*s = FourBytes
	default:
		return fmt.Errorf("token size %q: want TwoBytes or FourBytes", text)
	}
	return nil
}

// Shuffle is the order in which sequences are used.
type Shuffle struct {
	// Seed is the seed of the permutation. Nil means the order of the files (DontShuffle).
	Seed *[32]byte `json:",omitempty"`
}

// Checkpoint is the source of a model. Exactly one field is set.
type Checkpoint struct {
	Hub    *HubRepo         `json:",omitempty"` // a Hugging Face repository
	P2P    *HubRepo         `json:",omitempty"` // peers; the repository is the fallback
	Gcs    *GcsRepo         `json:",omitempty"` // a Google Cloud Storage bucket
	P2PGcs *GcsRepo         `json:",omitempty"` // peers; the bucket is the fallback
	Local  *LocalCheckpoint `json:",omitempty"` // a folder that every client can read
	Dummy  *HubRepo         `json:",omitempty"` // a tiny model, for tests of the network
}

// HubRepo is a repository of the Hugging Face Hub.
type HubRepo struct {
	RepoID   string // owner/name
	Revision string `json:",omitempty"` // branch, tag or commit; empty: the default branch
}

// GcsRepo is a prefix in a Google Cloud Storage bucket.
type GcsRepo struct {
	Bucket string
	Prefix string `json:",omitempty"`
}

// LocalCheckpoint is a Hugging Face directory on the disk of each client. A relative path is
// relative to the client's working directory.
type LocalCheckpoint struct {
	Path string
}

// coordinator returns the coordinator's form of the checkpoint that a run starts from. No peer has
// the model at that time, so the P2P kinds start from their origin.
func (c Checkpoint) coordinator() coordinator.Checkpoint {
	hub, gcs := cmp.Or(c.Hub, c.P2P), cmp.Or(c.Gcs, c.P2PGcs)
	switch {
	case hub != nil:
		return coordinator.Checkpoint{Kind: coordinator.CheckpointHub, Repo: hub.RepoID, Revision: hub.Revision}
	case gcs != nil:
		return coordinator.Checkpoint{Kind: coordinator.CheckpointGcs, Repo: gcs.Bucket, Revision: gcs.Prefix}
	case c.Local != nil:
		return coordinator.Checkpoint{Kind: coordinator.CheckpointLocal, Repo: c.Local.Path}
	case c.Dummy != nil:
		return coordinator.Checkpoint{Kind: coordinator.CheckpointDummy, Repo: c.Dummy.RepoID, Revision: c.Dummy.Revision}
	default:
		return coordinator.Checkpoint{}
	}
}
