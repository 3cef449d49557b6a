package clienttest

import (
	"encoding/binary"
	"fmt"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
)

// Width is how many numbers the model of Trainer has.
const Width = 8

// Model returns the model that a run of Trainers begins with.
func Model() checkpoint.Snapshot { return Snapshot([Width]uint64{1, 2, 3, 4, 5, 6, 7, 8}) }

// Bulky makes a model larger than it is.
func Bulky(s checkpoint.Snapshot, size int) checkpoint.Snapshot {
	if size > 0 {
		s.Files = append(s.Files, checkpoint.File{Name: "tokenizer.json", Data: make([]byte, size)})
	}
	return s
}

// Snapshot returns the model with these numbers.
func Snapshot(weights [Width]uint64) checkpoint.Snapshot {
	s := checkpoint.Snapshot{Files: []checkpoint.File{{Name: "config.json", Data: []byte(`{"architectures":["Fake"]}`)}}}
	for i, w := range weights {
		s.Tensors = append(s.Tensors, safetensors.Tensor{
			Name: fmt.Sprintf("w%d", i), DType: "I64", Shape: []int64{1}, Data: binary.LittleEndian.AppendUint64(nil, w),
		})
	}
	return s
}
