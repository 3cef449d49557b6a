package server

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

// FuzzSnapshot checks that arbitrary files cause no crash, and that a snapshot has only one
// encoding. It corrects the hash at the end of each file, or all inputs would be refused.
func FuzzSnapshot(f *testing.F) {
	state, err := backendtest.Genesis(hostileRun, 1)(coordinator.ClientID(backendtest.Key(9).ID()))
	if err != nil {
		f.Fatal(err)
	}
	whole := snapshot{position: journal.Position{Offset: 99, Entries: 2}, starts: []wire.Head{{Index: 1, Step: 3}}, state: state.AppendTo(nil)}.appendTo(nil)
	f.Add(whole[:len(whole)-sha256.Size])
	names := core.Names{backendtest.Key(1).ID(): "Ada", backendtest.Key(2).ID(): "数"}
	named := snapshot{position: journal.Position{Offset: 99, Entries: 2}, names: names, state: state.AppendTo(nil)}.appendTo(nil)
	f.Add(named[:len(named)-sha256.Size])
	f.Add([]byte(snapshotMagic))
	fuzztest.Run(f, func(t *testing.T, body []byte) {
		hash := sha256.Sum256(body)
		content := append(bytes.Clone(body), hash[:]...)
		s, state, err := decodeSnapshot(content)
		if err != nil {
			if !errors.Is(err, errSnapshot) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if !bytes.Equal(s.appendTo(nil), content) || !bytes.Equal(state.AppendTo(nil), s.state) {
			t.Fatalf("snapshot %+v has a second encoding", s.position)
		}
	})
}
