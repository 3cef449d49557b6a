package server

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/psyche-go/psyche/backend/backendtest"
	"github.com/psyche-go/psyche/backend/tcp/frame"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/server/journal"
	"github.com/psyche-go/psyche/wire"
)

// FuzzRecord replays arbitrary records: no crash, and what replays has one encoding.
func FuzzRecord(f *testing.F) {
	state, err := backendtest.Genesis(hostileRun, 1)(coordinator.ClientID(backendtest.Key(9).ID()))
	if err != nil {
		f.Fatal(err)
	}
	genesis := Record{Kind: RecordGenesis, State: state.AppendTo(nil)}.AppendTo(nil)
	f.Add(genesis)
	f.Add(Record{Kind: RecordDigest, Digest: state.Hash()}.AppendTo(nil))
	created := state.Clone()
	created.Authority.Main = coordinator.ClientID(backendtest.Key(1).ID())
	created.Authority.Join = created.Authority.Main
	f.Add(append([]byte{byte(RecordCreate)}, frame.SignCreate(backendtest.Key(1), created.AppendTo(nil))...))
	f.Add(Record{Kind: RecordTick, Now: 5, Draw: [32]byte{6}}.AppendTo(nil))
	f.Add(append([]byte{byte(RecordAction)}, wire.SignAction(backendtest.Key(1), hostileRun, 1, coordinator.Join{})...))
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, before := range [][][]byte{nil, {genesis}} {
			var r replayer
			for _, p := range before {
				if _, err := r.apply(p); err != nil {
					t.Fatal(err)
				}
			}
			record, err := r.apply(payload)
			if err != nil {
				if !errors.Is(err, ErrReplay) {
					t.Fatalf("error %v", err)
				}
				continue
			}
			if !bytes.Equal(record.AppendTo(nil), payload) {
				t.Fatalf("record %+v encodes to other bytes", record)
			}
			if record.Kind == RecordAction && identity.ID(r.state.Pending[0].ID) != record.Action.From {
				t.Fatal("an action has no effect")
			}
		}
	})
}

// FuzzSnapshot reads arbitrary files: no crash, and what is a snapshot has one encoding. The
// hash at the end is made right, or fuzzing would end there.
func FuzzSnapshot(f *testing.F) {
	state, err := backendtest.Genesis(hostileRun, 1)(coordinator.ClientID(backendtest.Key(9).ID()))
	if err != nil {
		f.Fatal(err)
	}
	whole := snapshot{position: journal.Position{Offset: 99, Entries: 2}, state: state.AppendTo(nil)}.appendTo(nil)
	f.Add(whole[:len(whole)-sha256.Size])
	f.Add([]byte(snapshotMagic))
	f.Fuzz(func(t *testing.T, body []byte) {
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
			t.Fatalf("snapshot %+v encodes to other bytes", s.position)
		}
	})
}
