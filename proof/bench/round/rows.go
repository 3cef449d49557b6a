package main

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/psyche-go/psyche/proof/testbed"
)

// row is one measurement: a run of one epoch.
type row struct {
	Name         string           `toml:"name"`
	Rounds       int              `toml:"rounds"`        // that count; there is an additional round before and after them
	Batch        int              `toml:"batch"`         // sequences, over all clients
	TrainSeconds float64          `toml:"train_seconds"` // desired training time; determines the batch
	Delay        testbed.Duration `toml:"delay"`         // of every link, one way; 0: loopback
	Mbits        int64            `toml:"mbits"`         // Mbit/s of every link, each way; 0: unlimited
	Loss         int              `toml:"loss"`          // lost packets per thousand
	State        string           `toml:"state"`         // state.toml that the row changes; empty: the file of -state
	Set          map[string]any   `toml:"set"`           // keys of state.toml, dotted
}

// Limits of a row, so that a typo does not start a run of days.
const (
	maxRounds = 1000
	maxBatch  = 100_000
)

// readRows reads the file with the rows.
func readRows(path string) ([]row, error) {
	return testbed.ReadRows(path, func(r *row) (string, error) { return r.Name, r.check() })
}

func (r row) check() error {
	switch {
	case r.Name == "":
		return errors.New("name is missing")
	case r.Rounds < 1 || r.Rounds > maxRounds:
		return fmt.Errorf("rounds is %d, want 1 to %d", r.Rounds, maxRounds)
	case (r.Batch == 0) == (r.TrainSeconds == 0):
		return errors.New("set either batch or train_seconds, and only one of them")
	case r.Batch < 0 || r.Batch > maxBatch:
		return fmt.Errorf("batch is %d, want 1 to %d", r.Batch, maxBatch)
	case r.TrainSeconds < 0 || r.TrainSeconds > 60:
		return fmt.Errorf("train_seconds is %g, want at most 60", r.TrainSeconds)
	case r.Delay < 0 || r.Delay > testbed.Duration(time.Second):
		return fmt.Errorf("delay is %s, want 0s to 1s", time.Duration(r.Delay))
	case r.Mbits < 0 || r.Mbits > 100_000 || r.Mbits > 0 && r.Delay == 0:
		return fmt.Errorf("mbits is %d, want at most 100000, and a delay in the same row", r.Mbits)
	case r.Loss < 0 || r.Loss > 500 || r.Loss > 0 && r.Delay == 0:
		return fmt.Errorf("loss is %d per thousand, want at most 500, and a delay in the same row", r.Loss)
	}
	return nil
}

// sequencesFor returns the batch whose training takes the given time, if a client needs perSequence
// seconds for a sequence. It is a multiple of the clients.
func sequencesFor(seconds, perSequence float64, clients int) int {
	return min(max(1, int(seconds/perSequence+0.5)), maxBatch/clients) * clients
}

// settings returns the row's changes to state.toml. common applies to all rows, and the row's
// settings override it.
func (r row) settings(common map[string]any) map[string]any {
	all := map[string]any{
		"config.total_steps":                     r.Rounds + 2,
		"config.rounds_per_epoch":                r.Rounds + 2,
		"config.global_batch_size_start":         r.Batch,
		"config.global_batch_size_end":           r.Batch,
		"config.global_batch_size_warmup_tokens": 0,
	}
	maps.Copy(all, common)
	maps.Copy(all, r.Set)
	return all
}

// parseSetting parses KEY=VALUE, where VALUE is in TOML syntax.
func parseSetting(text string) (key string, value any, err error) {
	key, written, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return "", nil, fmt.Errorf("%q: want KEY=VALUE", text)
	}
	var document map[string]any
	if err := toml.Unmarshal([]byte("value = "+written), &document); err != nil {
		return "", nil, fmt.Errorf("%q: %q is not a TOML value: %w", text, written, err)
	}
	return key, document["value"], nil
}
