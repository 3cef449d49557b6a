package client

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/node/clienttest"
)

func TestOptionsThatAreMissing(t *testing.T) {
	if _, err := New(Options{}); !errors.Is(err, ErrInvalidOptions) {
		t.Errorf("got %v", err)
	}
	if _, err := New(Options{Key: clienttest.Key(1), RunID: "r"}); !errors.Is(err, ErrInvalidOptions) {
		t.Errorf("got %v", err)
	}
}
