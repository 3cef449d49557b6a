package follow

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

var hostKey, authority = backendtest.Key(9), backendtest.Key(1)

// draw is the random draw of the first round in these tests.
var draw = [32]byte{7}

// first returns the initial state of the runs in these tests.
func first(t testing.TB) coordinator.State {
	t.Helper()
	state, err := backendtest.Genesis("followed", 1)(coordinator.ClientID(hostKey.ID()))
	if err != nil {
		t.Fatal(err)
	}
	state.Authority.Main = coordinator.ClientID(authority.ID())
	state.Authority.Join = state.Authority.Main
	state.DrawCommitment = sha256.Sum256(draw[:])
	return state
}

func genesis(t testing.TB) Genesis {
	t.Helper()
	state := first(t)
	g, err := OpenGenesis(SignGenesis(authority, [32]byte{7}, state.AppendTo(nil)))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func begun(t testing.TB) *Follower {
	t.Helper()
	f, err := Begin(genesis(t))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func action(f *Follower, key identity.Key, nonce uint64, a coordinator.Action) []byte {
	return append([]byte{byte(KindAction)}, wire.SignAction(key, f.Run(), nonce, a)...)
}

func tick(now uint64, draw [32]byte) []byte {
	return Record{Kind: KindTick, Now: now, Draw: draw}.AppendTo(nil)
}

// TestChainIsThatOfAJournal checks that heads have the same hashes as the journal's file.
func TestChainIsThatOfAJournal(t *testing.T) {
	var previous [32]byte
	for _, payload := range [][]byte{{1}, {}, []byte("some record"), make([]byte, 4096)} {
		_, want := journal.AppendEntry(nil, previous, payload)
		if got := Chain(previous, payload); got != want {
			t.Fatalf("hash of %d bytes: %x, in a journal %x", len(payload), got, want)
		}
		previous = want
	}
}

// TestFollowing follows a run to its second round and compares the follower with the core.
func TestFollowing(t *testing.T) {
	f, state := begun(t), first(t)
	records, now := 1, uint64(1_000_000)
	take := func(payload []byte) {
		t.Helper()
		if _, err := f.Apply(payload); err != nil {
			t.Fatal(err)
		}
		records++
	}
	take(action(f, backendtest.Key(2), 1, coordinator.Join{}))
	if err := state.Apply(coordinator.ClientID(backendtest.Key(2).ID()), 1, coordinator.Join{}); err != nil {
		t.Fatal(err)
	}
	for state.RunState != coordinator.RoundTrain {
		now += 60_000
		take(tick(now, draw))
		if !state.Tick(now, draw) {
			t.Fatal("nothing is due")
		}
	}
	take(Record{Kind: KindDigest, Digest: state.Hash()}.AppendTo(nil))
	if f.State.Hash() != state.Hash() {
		t.Error("the state of the follower differs from the core's state")
	}
	if h := f.Head(); h.Index != uint64(records) || h.Step != 0 {
		t.Errorf("head %+v after %d records", h, records)
	}
	if s := f.Starts(); len(s) != 1 || s[0].Step != 1 || s[0].Index != uint64(records-1) {
		t.Errorf("starts %+v", s)
	}
	take(tick(now-1, [32]byte{})) // a clock that was set back starts no round
	if s := f.Starts(); len(s) != 1 {
		t.Errorf("starts %+v", s)
	}
	resumed := Resume(f.Genesis(), f.State.Clone(), f.Head(), nil)
	if _, err := resumed.Apply(tick(now-2, [32]byte{})); err != nil || len(resumed.Starts()) != 0 {
		t.Errorf("a follower that resumed in the middle of a round has starts %+v, %v", resumed.Starts(), err)
	}
}

// TestHostFaultsAreFound checks that a follower refuses records that an honest host never writes.
func TestHostFaultsAreFound(t *testing.T) {
	state := first(t)
	other, err := OpenGenesis(SignGenesis(authority, [32]byte{8}, state.AppendTo(nil)))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]func(f *Follower) []byte{
		"nothing":              func(*Follower) []byte { return nil },
		"an unknown kind":      func(*Follower) []byte { return []byte{99} },
		"a second genesis":     func(f *Follower) []byte { return Record{Kind: KindGenesis, Genesis: f.Genesis()}.AppendTo(nil) },
		"an idle tick":         func(*Follower) []byte { return tick(1, draw) },
		"a long tick":          func(*Follower) []byte { return append(tick(1, draw), 0) },
		"a false digest":       func(*Follower) []byte { return Record{Kind: KindDigest, Digest: [32]byte{1}}.AppendTo(nil) },
		"a digest that is cut": func(*Follower) []byte { return []byte{byte(KindDigest), 1} },
		"a refused action":     func(f *Follower) []byte { return action(f, backendtest.Key(2), 1, coordinator.Ready{}) },
		"an action nobody signed": func(f *Follower) []byte {
			raw := action(f, backendtest.Key(2), 1, coordinator.Join{})
			raw[len(raw)-1] ^= 1
			return raw
		},
		"an action for another run of that name": func(*Follower) []byte {
			return append([]byte{byte(KindAction)}, wire.SignAction(backendtest.Key(2), other.Run(), 1, coordinator.Join{})...)
		},
	}
	for name, record := range tests {
		t.Run(name, func(t *testing.T) {
			f := begun(t)
			head := f.Head()
			if _, err := f.Apply(record(f)); !errors.Is(err, ErrRecord) {
				t.Fatalf("got %v; want error ErrRecord", err)
			}
			if _, err := f.Apply(action(f, backendtest.Key(2), 1, coordinator.Join{})); err == nil || f.Head() != head {
				t.Error("the follower continues after an invalid record")
			}
		})
	}
}

func TestGenesisIsRefused(t *testing.T) {
	state := first(t)
	sign := func(key identity.Key, change func(s *coordinator.State)) []byte {
		s := state.Clone()
		change(&s)
		return SignGenesis(key, [32]byte{7}, s.AppendTo(nil))
	}
	none := func(*coordinator.State) {}
	good := sign(authority, none)
	tests := map[string][]byte{
		"nothing": nil, "too large": make([]byte, MaxGenesis+1), "no state": good[:genesisPrefix],
		"another salt":                func() []byte { b := bytes.Clone(good); b[genesisPrefix-1] ^= 1; return b }(),
		"another state":               func() []byte { b := bytes.Clone(good); b[len(b)-1] ^= 1; return b }(),
		"signed by nobody of the run": sign(backendtest.Key(3), none),
		"without draws":               sign(authority, func(s *coordinator.State) { s.DrawCommitment = [32]byte{} }),
		"under way":                   sign(authority, func(s *coordinator.State) { s.HostNonce = 3 }),
		"no state of a run":           SignGenesis(authority, [32]byte{}, []byte("state")),
	}
	for name, raw := range tests {
		g, err := OpenGenesis(raw)
		if err == nil {
			_, err = Begin(g)
		}
		if !errors.Is(err, ErrGenesis) {
			t.Errorf("%s: got %v; want error ErrGenesis", name, err)
		}
	}
	for name, key := range map[string]identity.Key{"the main authority": authority, "the host": hostKey} {
		g, err := OpenGenesis(sign(key, none))
		if err == nil {
			_, err = Begin(g)
		}
		if err != nil {
			t.Errorf("signed by %s: %v", name, err)
		}
	}
}

// FuzzRecord checks that arbitrary records cause no crash, and that an accepted record has only one
// encoding.
func FuzzRecord(f *testing.F) {
	run := begun(f)
	f.Add(Record{Kind: KindGenesis, Genesis: run.Genesis()}.AppendTo(nil))
	f.Add(Record{Kind: KindDigest, Digest: run.State.Hash()}.AppendTo(nil))
	f.Add(tick(5, [32]byte{6}))
	f.Add(action(run, authority, 1, coordinator.Join{}))
	fuzztest.Run(f, func(t *testing.T, payload []byte) {
		if record, err := Decode(payload, run.Run()); err == nil && !bytes.Equal(record.AppendTo(nil), payload) {
			t.Fatalf("record %+v has a second encoding", record)
		}
		follower := begun(t)
		record, err := follower.Apply(payload)
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if record.Kind == KindAction && identity.ID(follower.State.Pending[0].ID) != record.Action.From {
			t.Fatal("an action has no effect")
		}
	})
}

// FuzzGenesis signs arbitrary states. It checks that an accepted state has only one encoding.
func FuzzGenesis(f *testing.F) {
	state := first(f)
	f.Add(state.AppendTo(nil))
	fuzztest.Run(f, func(t *testing.T, state []byte) {
		raw := SignGenesis(authority, [32]byte{7}, state)
		g, err := OpenGenesis(raw)
		if err != nil {
			return
		}
		if follower, err := Begin(g); err == nil && !bytes.Equal(follower.State.AppendTo(nil), state) {
			t.Fatal("a second encoding of the same state was accepted")
		}
	})
}
