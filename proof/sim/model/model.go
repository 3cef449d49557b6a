// Package model implements the model of simulated runs: a few integers, into which results are
// mixed.
package model

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/proof/sim/random"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

const (
	weights    = 8 // numbers of the model
	headerSize = 4 + 8 + 8 + 32
	// ResultSize is the size of a result in bytes.
	ResultSize = headerSize + sha256.Size
)

// ErrInvalidResult means that a payload is not the expected result.
var ErrInvalidResult = errors.New("not a result of this step, batch and trainer")

// Model is the simulated model. Number 0 is the end of the newest applied batch. All other numbers
// are a mix of all applied results, in their order.
type Model [weights]uint64

// Initial returns the starting model of every run.
func Initial() Model {
	var m Model
	for i := 1; i < weights; i++ {
		m[i] = uint64(i)
	}
	return m
}

// Apply applies results with their votes to the model. It returns the first batch that cannot be applied
// because it is before the end of an applied batch.
func (m *Model) Apply(step uint32, payloads [][]byte, votes []uint8) (again *assign.BatchID) {
	for i := 1; i < weights; i++ {
		m[i] = m[i]*6364136223846793005 + uint64(step)
	}
	for n, payload := range payloads {
		_, batch, _ := ReadHeader(payload)
		if batch.Start < m[0] && again == nil {
			again = &batch
		}
		m[0] = batch.End
		for i := 1; i < weights; i++ {
			m[i] = (m[i] ^ binary.LittleEndian.Uint64(payload[headerSize+8*(i%4):])) * 0x100000001b3
			if n < len(votes) { // a mutation may add results
				m[i] -= uint64(assign.FullVote - votes[n])
			}
		}
	}
	return again
}

// Snapshot returns the model as a checkpoint.
func (m *Model) Snapshot() checkpoint.Snapshot {
	data := make([]byte, 0, 8*weights)
	for _, w := range m {
		data = binary.LittleEndian.AppendUint64(data, w)
	}
	return checkpoint.Snapshot{
		Files:   []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(`{"architectures":["Simulated"]}`)}},
		Tensors: []safetensors.Tensor{{Name: "w", DType: "I64", Shape: []int64{weights}, Data: data}},
	}
}

// Digest returns the digest of the checkpoint after a step.
func (m *Model) Digest(step uint32) [32]byte {
	s := m.Snapshot()
	s.Step = step
	return s.Manifest().Digest()
}

// Of reads the model from a checkpoint.
func Of(s checkpoint.Snapshot) (Model, error) {
	var m Model
	if len(s.Tensors) != 1 || len(s.Tensors[0].Data) != 8*weights {
		return m, fmt.Errorf("not a simulated model: %d tensors", len(s.Tensors))
	}
	for i := range m {
		m[i] = binary.LittleEndian.Uint64(s.Tensors[0].Data[8*i:])
	}
	return m, nil
}

// NewResult returns the bytes of a result. variant distinguishes several results of one batch.
func NewResult(m *Model, step uint32, batch assign.BatchID, trainer [32]byte, variant byte) []byte {
	b := make([]byte, 0, ResultSize)
	b = binary.LittleEndian.AppendUint32(b, step)
	b = binary.LittleEndian.AppendUint64(b, batch.Start)
	b = binary.LittleEndian.AppendUint64(b, batch.End)
	b = append(b, trainer[:]...)
	seed := append(b[:len(b):len(b)], variant)
	for _, w := range m {
		seed = binary.LittleEndian.AppendUint64(seed, w)
	}
	hash := sha256.Sum256(seed)
	return append(b, hash[:]...)
}

// ReadHeader returns the step, batch and trainer of a result. payload has at least the size of a
// header.
func ReadHeader(payload []byte) (step uint32, batch assign.BatchID, trainer [32]byte) {
	return binary.LittleEndian.Uint32(payload), assign.BatchID{
		Start: binary.LittleEndian.Uint64(payload[4:]), End: binary.LittleEndian.Uint64(payload[12:]),
	}, [32]byte(payload[20:headerSize])
}

// Verify checks that a payload is a result of a step, a batch and a trainer, or else returns
// ErrInvalidResult.
func Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	if len(payload) != ResultSize {
		return ErrInvalidResult
	}
	if s, b, t := ReadHeader(payload); s != step || b != batch || t != trainer {
		return ErrInvalidResult
	}
	return nil
}

// Spoil returns an invalid modification of a result.
func Spoil(payload []byte, r *random.Source) []byte {
	payload = slices.Clone(payload)
	switch r.Below(3) {
	case 0:
		return append(payload, 0)
	case 1:
		return payload[:len(payload)-1-r.Below(headerSize)]
	default:
		payload[r.Below(headerSize)] ^= byte(1 + r.Below(255))
		return payload
	}
}

// Definition returns the coordinator's definition of the model.
func Definition() coordinator.Model {
	return coordinator.Model{
		MaxSeqLen:  scenario.SeqLen,
		Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy},
	}
}
