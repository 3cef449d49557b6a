package client

import (
	"encoding/hex"
	"reflect"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/event"
)

// parseDigest reads what hexOf wrote.
func parseDigest(digest *[32]byte, text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && copy(digest[:], raw) == len(digest) && len(raw) == len(digest)
}

// hexOf is how hashes are written in events and messages.
func hexOf(hash [32]byte) string { return hex.EncodeToString(hash[:]) }

func batchOf(b assign.BatchID) event.Batch { return event.Batch{b.Start, b.End} }

func sameState(a, b event.State) bool { return reflect.DeepEqual(a, b) }
