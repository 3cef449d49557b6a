package train

import (
	"crypto/sha256"
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
)

// decoder decodes results of an optimizer. Its methods are safe for concurrent use, also with all
// methods of the optimizer.
type decoder interface {
	// decode decodes a payload strictly. Errors wrap ErrResult.
	decode(payload []byte) (codec.Header, []codec.TensorResult, error)
	// bounded returns a decoded result in the form in which it is applied.
	bounded(results []codec.TensorResult) []codec.TensorResult
}

// reader decodes and checks the results of a run. It is safe for concurrent use.
type reader struct {
	decoder  decoder
	run      [32]byte
	decoded  decodedResults                                                            // results that verify has decoded
	onlyF32  bool                                                                      // Options.OnlyF32
	verified func(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) // may be nil
}

func newReader(o Options, d decoder) *reader {
	return &reader{
		decoder: d, run: sha256.Sum256([]byte(o.RunID)), decoded: decodedResults{room: maxDecoded},
		onlyF32: o.OnlyF32, verified: o.Verified,
	}
}

// verify is Trainer.Verify.
func (r *reader) verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	header, tensors, err := r.decoder.decode(payload)
	if err != nil {
		return err
	}
	want := codec.Header{RunHash: r.run, Step: step, BatchStart: batch.Start, BatchEnd: batch.End, Trainer: trainer}
	if err := compareHeaders(header, want); err != nil {
		return err
	}
	if r.onlyF32 && header.Precision == audit.BF16.Code() {
		return fmt.Errorf("%w: computed in bf16, which members of this run cannot audit", ErrResult)
	}
	r.decoded.put(payload, header, tensors)
	if r.verified != nil {
		r.verified(payload, step, batch, trainer)
	}
	return nil
}

func compareHeaders(header, want codec.Header) error {
	switch {
	case header.RunHash != want.RunHash:
		return fmt.Errorf("%w: belongs to another run", ErrResult)
	case header.Step != want.Step:
		return fmt.Errorf("%w: belongs to step %d, want %d", ErrResult, header.Step, want.Step)
	case header.BatchStart != want.BatchStart || header.BatchEnd != want.BatchEnd:
		return fmt.Errorf("%w: belongs to batch [%d,%d), want [%d,%d)",
			ErrResult, header.BatchStart, header.BatchEnd, want.BatchStart, want.BatchEnd)
	case header.Trainer != want.Trainer:
		return fmt.Errorf("%w: belongs to trainer %x, want %x", ErrResult, header.Trainer[:4], want.Trainer[:4])
	}
	return nil
}

// read decodes a payload, unless verify has already decoded it.
func (r *reader) read(payload []byte) (codec.Header, []codec.TensorResult, error) {
	if header, tensors, known := r.decoded.get(payload); known {
		return header, tensors, nil
	}
	return r.decoder.decode(payload)
}

// readAll decodes the results of a step, which are in ascending order of their batches, in the form
// in which they are applied.
func (r *reader) readAll(step uint32, payloads [][]byte) ([][]codec.TensorResult, error) {
	results := make([][]codec.TensorResult, len(payloads))
	end := uint64(0)
	for i, payload := range payloads {
		header, tensors, err := r.read(payload)
		if err != nil {
			return nil, fmt.Errorf("result %d: %w", i, err)
		}
		want := header
		want.RunHash, want.Step = r.run, step
		if err := compareHeaders(header, want); err != nil {
			return nil, fmt.Errorf("result %d: %w", i, err)
		}
		if header.BatchStart < end {
			return nil, fmt.Errorf("result %d: %w: batch [%d,%d) does not come after the one before", i, ErrResult, header.BatchStart, header.BatchEnd)
		}
		results[i], end = r.decoder.bounded(tensors), header.BatchEnd
	}
	return results, nil
}
