package audit

import (
	"errors"
	"fmt"
	"math"
)

// ErrInvalid means that bytes, chunks or shapes do not match each other or the format.
var ErrInvalid = errors.New("invalid audit")

// maxEdge is the maximum length of a chunk's side.
const maxEdge = 128

// Shape describes how a tensor is cut into chunks of Rows × Cols. At most K coefficients of each
// chunk are sent.
type Shape struct {
	Chunks, Rows, Cols, K int
}

func (s Shape) size() int { return s.Rows * s.Cols }

// Shapes are the tensors of a model, in the order of a result. The chunks of a model are numbered
// consecutively over all tensors.
type Shapes []Shape

// validate reports the first problem of the shapes.
func (s Shapes) validate() error {
	chunks := 0
	for i, t := range s {
		if t.Chunks < 1 || t.Rows < 1 || t.Rows > maxEdge || t.Cols < 1 || t.Cols > maxEdge || t.K < 1 || t.K > t.size() ||
			t.Chunks > math.MaxInt32-chunks {
			return fmt.Errorf("%w: tensor %d has %d chunks of %d × %d with %d sent coefficients", ErrInvalid, i, t.Chunks, t.Rows, t.Cols, t.K)
		}
		chunks += t.Chunks
	}
	if chunks == 0 {
		return fmt.Errorf("%w: a model without chunks", ErrInvalid)
	}
	return nil
}

// Chunks returns the number of chunks of all tensors.
func (s Shapes) Chunks() int {
	total := 0
	for _, t := range s {
		total += t.Chunks
	}
	return total
}

// Find returns the tensor of a chunk and the chunk's number within the tensor.
func (s Shapes) Find(chunk uint32) (tensor, within int, ok bool) {
	at := int(chunk)
	for i, t := range s {
		if at < t.Chunks {
			return i, at, true
		}
		at -= t.Chunks
	}
	return 0, 0, false
}
