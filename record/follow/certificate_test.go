package follow

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/wire"
)

// certified follows a run with the given number of members to the beginning of its first epoch.
func certified(t testing.TB, members int) (*Follower, []identity.Key, []identity.ID) {
	t.Helper()
	f := begun(t)
	var keys []identity.Key
	var ids []identity.ID
	for n := range members {
		key := backendtest.Key(byte(20 + n))
		keys, ids = append(keys, key), append(ids, key.ID())
		if _, err := f.Apply(action(f, key, 1, coordinator.Join{})); err != nil {
			t.Fatal(err)
		}
	}
	for now := uint64(1_000_000); f.State.RunState != coordinator.Warmup; now += 60_000 {
		if _, err := f.Apply(tick(now, [32]byte{1})); err != nil {
			t.Fatal(err)
		}
	}
	return f, keys, ids
}

// certificate returns a certificate with the signatures of keys.
func certificate(f *Follower, keys []identity.Key) Certificate {
	c := Certificate{Epoch: f.Epoch()}
	for _, key := range keys {
		c.Signatures = append(c.Signatures, Signature{key.ID(), c.Sign(key, f.Run())})
	}
	return c
}

func TestCertificates(t *testing.T) {
	f, keys, ids := certified(t, 7)
	e := f.Epoch()
	if e.Index != f.Head().Index || e.Hash != f.Head().Hash || e.State != f.State.Hash() || !cmp.Equal(e.Members, ids) || !cmp.Equal(e, f.FirstEpoch()) {
		t.Fatalf("epoch %+v", e)
	}
	for n := range 8 {
		err := certificate(f, keys[:n]).Check(f.Run(), ids)
		if enough := n >= 5; (err == nil) != enough {
			t.Errorf("%d of 7: %v", n, err)
		}
	}
	twice := certificate(f, keys[:4])
	twice.Signatures = append(twice.Signatures, twice.Signatures[0])
	others := certificate(f, []identity.Key{backendtest.Key(1), backendtest.Key(2), backendtest.Key(3), backendtest.Key(4), backendtest.Key(5)})
	false1 := certificate(f, keys)
	false1.Signatures[0].Signature[5] ^= 1
	for name, c := range map[string]Certificate{"signed twice": twice, "signed by strangers": others, "a false signature": false1} {
		if err := c.Check(f.Run(), ids); !errors.Is(err, ErrCertificate) {
			t.Errorf("%s: got %v; want error ErrCertificate", name, err)
		}
	}
	whole := certificate(f, keys)
	for name, change := range map[string]func(c *Certificate){
		"number": func(c *Certificate) { c.Number++ }, "index": func(c *Certificate) { c.Index++ }, "hash": func(c *Certificate) { c.Hash[0] ^= 1 },
		"state": func(c *Certificate) { c.State[0] ^= 1 }, "members": func(c *Certificate) { c.Members = c.Members[1:] },
	} {
		c := whole
		change(&c)
		if err := c.Check(f.Run(), ids); !errors.Is(err, ErrCertificate) {
			t.Errorf("with a different %s: %v", name, err)
		}
	}
	if err := whole.Check(wire.HostedRun([]byte("other")), ids); !errors.Is(err, ErrCertificate) {
		t.Errorf("for a different run: %v", err)
	}
	raw := whole.AppendTo(nil)
	if again, err := DecodeCertificate(raw); err != nil || !cmp.Equal(again, whole) {
		t.Errorf("decoded %+v, %v", again, err)
	}
	resumed, err := ResumeAt(f.Genesis(), whole, f.State.AppendTo(nil))
	if err != nil || resumed.Head() != f.Head() || resumed.State.Hash() != f.State.Hash() {
		t.Errorf("resumed at %+v: %v", resumed, err)
	}
	for name, state := range map[string][]byte{"cut": f.State.AppendTo(nil)[1:], "another": genesis(t).State} {
		if _, err := ResumeAt(f.Genesis(), whole, state); !errors.Is(err, ErrCertificate) {
			t.Errorf("a state that is %s: %v", name, err)
		}
	}
}

func TestSufficientIsMoreThanTwoThirds(t *testing.T) {
	for n, minimum := range map[int]int{1: 1, 2: 2, 3: 3, 4: 3, 6: 5, 7: 5, 256: 171} {
		if Suffices(minimum-1, n) || !Suffices(minimum, n) {
			t.Errorf("of %d members, want %d as the minimum", n, minimum)
		}
	}
	if Suffices(0, 0) {
		t.Error("an empty set of members is enough")
	}
}

// TestHostFaultKeepsItsEvidence checks that the evidence of two contradictory heads survives writing and
// reading.
func TestHostFaultKeepsItsEvidence(t *testing.T) {
	f := begun(t)
	a := wire.Head{Index: 9, Step: 3, Hash: [32]byte{1}}.Sign(hostKey, f.Run())
	b := wire.Head{Index: 9, Step: 3, Hash: [32]byte{2}}.Sign(hostKey, f.Run())
	unsigned := wire.Head{Index: 9, Step: 3, Hash: [32]byte{4}}
	for name, test := range map[string]struct {
		heads []wire.Head
		want  bool
	}{
		"two": {[]wire.Head{a, b}, true}, "one twice": {[]wire.Head{a, a}, false}, "one that nobody signed": {[]wire.Head{a, unsigned}, false},
	} {
		fault := &HostFault{Reason: name, Evidence: Evidence{Genesis: f.Genesis().Raw, Heads: test.heads, Index: 3, Records: [][]byte{{1, 2}}, Announcement: []byte("a")}}
		read, err := ReadHostFault(fault.JSON())
		if err != nil || !cmp.Equal(fault, read) {
			t.Errorf("%s: read %v, %v", name, read, err)
			continue
		}
		if _, _, found := read.Evidence.Contradiction(); found != test.want {
			t.Errorf("%s: contradiction %v", name, found)
		}
	}
	for _, bad := range []string{"", "{}x", `{"genesis":"zz"}`, `{"heads":[{"hash":"00"}]}`} {
		if _, err := ReadHostFault([]byte(bad)); err == nil {
			t.Errorf("%q was accepted as evidence", bad)
		}
	}
	if !errors.As(fmt.Errorf("wrapped: %w", error(&HostFault{Reason: "x"})), new(*HostFault)) {
		t.Error("errors.As does not find a host fault")
	}
}

// FuzzCertificate checks that arbitrary bytes cause no crash, and that a certificate has only one
// encoding.
func FuzzCertificate(f *testing.F) {
	run, keys, _ := certified(f, 3)
	f.Add(certificate(run, keys).AppendTo(nil))
	fuzztest.Run(f, func(t *testing.T, raw []byte) {
		c, err := DecodeCertificate(raw)
		if err != nil {
			if !errors.Is(err, ErrCertificate) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(c.AppendTo(nil), raw) {
			t.Fatal("a second encoding of the same certificate was accepted")
		}
	})
}
