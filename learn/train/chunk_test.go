package train

import (
	"errors"
	"fmt"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/record/config"
)

// TestChunkOfConfig checks that a run's definition allows exactly the chunk sizes that the
// optimizer supports.
func TestChunkOfConfig(t *testing.T) {
	for chunk, good := range map[int]bool{0: false, 1: true, distro.MaxChunk: true, distro.MaxChunk + 1: false} {
		_, layoutErr := distro.NewLayout([]int64{300, 300}, chunk)
		encoded, err := config.EncodeModel(config.Model{
			Architecture: config.HfLlama, DataType: config.Pretraining, MaxSeqLen: 8,
			DataLocations: []config.DataLocation{{Dummy: &config.DummyData{}}},
			Checkpoint:    config.Checkpoint{Dummy: &config.HubRepo{RepoID: "dummy"}},
			LRSchedule:    config.LRSchedule{Constant: &config.ConstantLR{BaseLR: 1}},
			Optimizer:     config.Optimizer{Distro: &config.Distro{CompressionTopK: 1, CompressionChunk: uint16(chunk)}},
		})
		if err == nil {
			_, err = config.DecodeModel(encoded)
		}
		if (layoutErr == nil) != good || (err == nil) != good {
			t.Errorf("chunk %d: the optimizer reports %v, the configuration %v", chunk, layoutErr, err)
		}
		if err != nil {
			if !errors.Is(err, config.ErrInvalidModel) {
				t.Errorf("chunk %d: error %v, want ErrInvalidModel", chunk, err)
			}
			golden.Message(t, fmt.Sprint("chunk ", chunk), err)
		}
	}
}
