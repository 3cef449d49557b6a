package main

import (
	"errors"
	"fmt"
	"maps"

	"github.com/psyche-go/psyche/proof/testbed"
)

// row is a run of honest members, with its control.
type row struct {
	Name         string           `toml:"name"`
	Model        string           `toml:"model"`   // "tied", "untied" or "moe"
	Clients      int              `toml:"clients"` // members
	BF16         int              `toml:"bf16"`    // number of them that compute in bf16
	GPU          int              `toml:"gpu"`     // number of them that compute on the first CUDA device
	Rounds       int              `toml:"rounds"`
	Epoch        int              `toml:"epoch"`        // rounds of an epoch; 0: a single epoch
	Batch        int              `toml:"batch"`        // sequences of a round
	Length       int              `toml:"length"`       // tokens of a sequence
	Audits       int              `toml:"audits"`       // verification_percent; the control has 0
	Data         string           `toml:"data"`         // "local", "http", "bucket" or "server"
	Permissioned bool             `toml:"permissioned"` // only authorized keys may join
	Delay        testbed.Duration `toml:"delay"`        // of every link, one way; 0: loopback
	Rate         int64            `toml:"rate"`         // of every link, bit/s; 0: unlimited
	Stress       []string         `toml:"stress"`       // "busy", "stop", "kill"
	Set          map[string]any   `toml:"set"`          // keys of state.toml, dotted
}

// Limits of a row.
const (
	maxRounds  = 10_000
	maxClients = 16
)

// readRows reads the file with the rows.
func readRows(path string) ([]row, error) {
	return testbed.ReadRows(path, func(r *row) (string, error) { return r.Name, r.check() })
}

func (r *row) check() error {
	_, known := models[r.Model]
	switch {
	case r.Name == "":
		return errors.New("name is missing")
	case !known:
		return fmt.Errorf("model is %q, want tied, untied or moe", r.Model)
	case r.Clients < 2 || r.Clients > maxClients || r.BF16 < 0 || r.BF16 > r.Clients || r.GPU < 0 || r.GPU > r.Clients:
		return fmt.Errorf("clients is %d, bf16 %d and gpu %d, want 2 to %d clients, and at most as many in bf16 and gpu", r.Clients, r.BF16, r.GPU, maxClients)
	case r.Rounds < 1 || r.Rounds > maxRounds:
		return fmt.Errorf("rounds is %d, want 1 to %d", r.Rounds, maxRounds)
	case r.Batch < 1 || r.Length < 2:
		return fmt.Errorf("batch is %d and length %d, want at least 1 and 2", r.Batch, r.Length)
	case r.Audits < 1 || r.Audits > 90:
		return fmt.Errorf("audits is %d, want 1 to 90", r.Audits)
	}
	switch r.Data {
	case "local", "http", "bucket", "server":
	default:
		return fmt.Errorf("data is %q, want local, http, bucket or server", r.Data)
	}
	for _, s := range r.Stress {
		if s != "busy" && s != "stop" && s != "kill" {
			return fmt.Errorf("stress is %q, want busy, stop or kill", s)
		}
	}
	return nil
}

// settings returns the keys of state.toml for a run with audits as its verification_percent.
func (r *row) settings(audits int, w world) map[string]any {
	epoch := r.Epoch
	if epoch == 0 {
		epoch = r.Rounds + 1
	}
	all := map[string]any{
		"config.total_steps":                           r.Rounds,
		"config.rounds_per_epoch":                      epoch,
		"config.global_batch_size_start":               r.Batch,
		"config.global_batch_size_end":                 r.Batch,
		"config.init_min_clients":                      r.Clients,
		"config.min_clients":                           2,
		"config.verification_percent":                  audits,
		"model.LLM.max_seq_len":                        r.Length,
		"model.LLM.architecture":                       models[r.Model].architecture,
		"model.LLM.checkpoint.Local.path":              w.model,
		"model.LLM.data_location":                      w.data.Location,
		"model.LLM.lr_schedule.Cosine":                 map[string]any{"base_lr": 4e-3, "warmup_steps": 4, "warmup_init_lr": 0.0, "total_steps": r.Rounds, "final_lr": 4e-4},
		"model.LLM.optimizer.Distro.compression_chunk": 16,
	}
	maps.Copy(all, r.Set)
	return all
}
