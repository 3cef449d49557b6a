package client

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/node/clienttest"
)

func TestOptionsThatAreMissing(t *testing.T) {
	if _, err := New(Options{}); !errors.Is(err, errInvalidOptions) {
		t.Errorf("got %v; want error errInvalidOptions", err)
	}
	if _, err := New(Options{Key: clienttest.Key(1), RunID: "r"}); !errors.Is(err, errInvalidOptions) {
		t.Errorf("got %v; want error errInvalidOptions", err)
	}
}

func TestInvalidName(t *testing.T) {
	key := clienttest.Key(1)
	if _, err := New(Options{Key: key, RunID: "r", Name: "\x1b[2J"}); !errors.Is(err, errInvalidOptions) {
		t.Errorf("got %v; want error errInvalidOptions", err)
	}
}
