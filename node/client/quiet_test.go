package client

import (
	"errors"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/node/clienttest"
)

// TestQuietly checks that quietly returns the errors and panics of its function, whatever the size
// of the model.
func TestQuietly(t *testing.T) {
	for _, size := range []int{0, 2 * largeModel} {
		s := checkpoint.Snapshot{Tensors: []safetensors.Tensor{{Data: make([]byte, size)}}}
		if err := quietly(s, func() error { panic("on purpose") }); err == nil || !strings.Contains(err.Error(), "on purpose") {
			t.Errorf("%d bytes: a panic is %v", size, err)
		}
		if err := quietly(s, func() error { return clienttest.ErrFake }); !errors.Is(err, clienttest.ErrFake) {
			t.Errorf("%d bytes: an error is %v", size, err)
		}
	}
}
