package dummy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/safetensors"
)

// Errors of a trainer.
var (
	// ErrResult means that a payload is not a result of its batch.
	ErrResult = errors.New("invalid dummy result")
	// errModel means that a snapshot is not a snapshot of the dummy model.
	errModel = errors.New("not the dummy model")
)

// Number of the model's tensors, and of the elements of each.
const (
	tensors  = 4
	elements = 1024
)

// configuration is the model's config.json, which other programs do not recognize as a model.
const configuration = `{"architectures":["DummyForTestsOfTheNetwork"],"model_type":"dummy"}` + "\n"

// Model returns the first model of every run.
func Model() checkpoint.Snapshot {
	weights := make([][]float32, tensors)
	for i := range weights {
		weights[i] = make([]float32, elements)
		for j := range weights[i] {
			weights[i][j] = float32(j%7) - 3
		}
	}
	return snapshot(0, weights)
}

func snapshot(step uint32, weights [][]float32) checkpoint.Snapshot {
	s := checkpoint.Snapshot{Step: step, Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(configuration)}}}
	for i, w := range weights {
		s.Tensors = append(s.Tensors, safetensors.FromFloat32s(fmt.Sprintf("dummy.%d.weight", i), []int64{elements}, slices.Clone(w)))
	}
	return s
}

// Options are the settings of a trainer.
type Options struct {
	Model     checkpoint.Snapshot // Model, or the snapshot of a Trainer
	RunID     string
	TrainerID [32]byte
	Delay     time.Duration // duration of a training
	ApplyLag  uint32        // rounds after which results are applied; 0 means 1

	// Verified is called with each result that Verify finds valid, from its goroutine. May be nil.
	Verified func(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte)
}

// Trainer trains the dummy model. It implements the client's interface of a trainer.
type Trainer struct {
	run     [32]byte
	trainer [32]byte
	delay   time.Duration
	lag     uint32

	verified func(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte)

	mu      sync.Mutex
	step    uint32
	weights [][]float32
}

// New returns a trainer.
func New(o Options) (*Trainer, error) {
	t := &Trainer{run: sha256.Sum256([]byte(o.RunID)), trainer: o.TrainerID, delay: o.Delay, lag: max(o.ApplyLag, 1), verified: o.Verified}
	if t.verified == nil {
		t.verified = func([]byte, uint32, assign.BatchID, [32]byte) {}
	}
	return t, t.Load(context.Background(), o.Model)
}

// header returns the start of a result.
func (t *Trainer) header(step uint32, batch assign.BatchID, trainer [32]byte) []byte {
	b := append([]byte(nil), t.run[:]...)
	b = binary.LittleEndian.AppendUint32(b, step)
	b = binary.LittleEndian.AppendUint64(b, batch.Start)
	b = binary.LittleEndian.AppendUint64(b, batch.End)
	return append(b, trainer[:]...)
}

const (
	headerSize = 32 + 4 + 8 + 8 + 32
	resultSize = headerSize + sha256.Size
)

// Train waits for the duration of a training, and returns a result. Its loss falls with the steps.
func (t *Trainer) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	if err := t.wait(ctx); err != nil {
		return nil, 0, err
	}
	if err := begun(ctx); err != nil {
		return nil, 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	hash := sha256.New()
	for _, w := range t.weights {
		hash.Write(safetensors.FromFloat32s("", []int64{elements}, w).Data)
	}
	for _, sequence := range batch.Sequences {
		for _, token := range sequence {
			hash.Write(binary.LittleEndian.AppendUint32(nil, uint32(token)))
		}
	}
	return hash.Sum(t.header(step, batch.ID, t.trainer)), 10 / math.Sqrt(float64(step)+1), nil
}

// wait waits for the duration of a training.
func (t *Trainer) wait(ctx context.Context) error {
	if pause.For(ctx, t.delay) != nil {
		return ctx.Err()
	}
	return nil
}

// Verify checks that a payload is a result of that step, batch and trainer.
func (t *Trainer) Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	if len(payload) != resultSize || !slices.Equal(payload[:headerSize], t.header(step, batch, trainer)) {
		return ErrResult
	}
	t.verified(payload, step, batch, trainer)
	return nil
}

// Apply moves every weight by the results times their votes, one after the other.
func (t *Trainer) Apply(_ context.Context, step uint32, payloads [][]byte, votes []uint8, _ bool) error {
	hashes := make([][32]byte, len(payloads))
	for i, payload := range payloads {
		if len(payload) != resultSize {
			return ErrResult
		}
		hashes[i] = [32]byte(payload[headerSize:])
	}
	t.move(step, hashes, votes)
	return nil
}

func (t *Trainer) move(step uint32, results [][32]byte, votes []uint8) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, result := range results {
		weight := float32(1)
		if votes != nil {
			weight = float32(votes[n]) / assign.FullVote
		}
		for i, w := range t.weights {
			for j := range w {
				seen := result[(i+j)%len(result)]
				w[j] = float32(w[j]*0.5) + float32(float32(int8(seen))*weight) // rounded twice, on every machine
			}
		}
	}
	t.step = step
}

// Snapshot returns a copy of the model.
func (t *Trainer) Snapshot(context.Context) (checkpoint.Snapshot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return snapshot(t.step, t.weights), nil
}

// Load replaces the model.
func (t *Trainer) Load(_ context.Context, s checkpoint.Snapshot) error {
	weights := make([][]float32, tensors)
	want := snapshot(0, make([][]float32, 0))
	if config, _ := s.File(checkpoint.ConfigFile); string(config) != string(want.Files[0].Data) || len(s.Tensors) != tensors {
		return fmt.Errorf("load model: %w", errModel)
	}
	for i, tensor := range s.Tensors {
		if tensor.DType != "F32" || len(tensor.Data) != 4*elements {
			return fmt.Errorf("load model: %w: tensor %s", errModel, tensor.Name)
		}
		weights[i] = make([]float32, elements)
		for j := range weights[i] {
			weights[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(tensor.Data[4*j:]))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.step, t.weights = s.Step, weights
	return nil
}

// ResetOptimizer does nothing, because there is no momentum.
func (t *Trainer) ResetOptimizer(context.Context) error { return nil }

// SetColdStart does nothing, because there is no learning rate.
func (t *Trainer) SetColdStart(context.Context, uint32, uint32) error { return nil }

// MaxResultSize returns the size of every result.
func (t *Trainer) MaxResultSize() int { return resultSize }

// ApplyLag returns the number of rounds after which results are applied.
func (t *Trainer) ApplyLag() uint32 { return t.lag }
