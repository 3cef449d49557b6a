package clienttest

import (
	"encoding/binary"
	"fmt"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
)

// Width is the number of values in the model of Trainer.
const Width = 8

// Model returns the first model of a run of Trainers.
func Model() checkpoint.Snapshot { return Snapshot([Width]uint64{1, 2, 3, 4, 5, 6, 7, 8}) }

// Bulky adds a file of size bytes to a model.
func Bulky(s checkpoint.Snapshot, size int) checkpoint.Snapshot {
	if size > 0 {
		s.Files = append(s.Files, checkpoint.File{Name: "tokenizer.json", Data: make([]byte, size)})
	}
	return s
}

// Snapshot returns the model with the given values.
func Snapshot(weights [Width]uint64) checkpoint.Snapshot {
	s := checkpoint.Snapshot{Files: []checkpoint.File{{Name: "config.json", Data: []byte(`{"architectures":["Fake"]}`)}}}
	for i, w := range weights {
		s.Tensors = append(s.Tensors, safetensors.Tensor{
			Name: fmt.Sprintf("w%d", i), DType: "I64", Shape: []int64{1}, Data: binary.LittleEndian.AppendUint64(nil, w),
		})
	}
	return s
}
