package wire

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/psyche-go/psyche/base/fuzztest"
)

func testHead() Head { return Head{Index: 70, Step: 9, Hash: [32]byte{6}}.Sign(testKey(), walk) }

func TestHeadKeepsItsBytes(t *testing.T) {
	raw := testHead().AppendTo(nil)
	keeps(t, "head-v1", raw)
	keeps(t, "run-v1", append(walk[:], func() []byte { r := ChainRun([32]byte{1}, [32]byte{2}); return r[:] }()...))
	opened, err := DecodeHead(raw)
	if err != nil || len(raw) != HeadSize {
		t.Fatalf("%d bytes: %v", len(raw), err)
	}
	if diff := cmp.Diff(testHead(), opened); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestHeadIsOfOneRunAndHost(t *testing.T) {
	h := testHead()
	if !h.Verify(testKey().ID(), walk) {
		t.Fatal("the signature of the host's own head is invalid")
	}
	if h.Verify(testKey().ID(), HostedRun([]byte("other"))) {
		t.Error("the head is valid for a different run")
	}
	for name, change := range map[string]func(h *Head){
		"index": func(h *Head) { h.Index++ }, "step": func(h *Head) { h.Step++ }, "hash": func(h *Head) { h.Hash[0] ^= 1 },
	} {
		other := h
		change(&other)
		if other.Verify(testKey().ID(), walk) {
			t.Errorf("the head is valid with a different %s", name)
		}
	}
}

func TestContradictions(t *testing.T) {
	a := Head{Index: 70, Step: 9, Hash: [32]byte{6}}
	tests := map[string]struct {
		b    Head
		want bool
	}{
		"the same":                        {a, false},
		"signed again":                    {Head{Index: 70, Step: 9, Hash: [32]byte{6}, Signature: [64]byte{1}}, false},
		"another record there":            {Head{Index: 70, Step: 9, Hash: [32]byte{7}}, true},
		"said to have begun nothing":      {Head{Index: 70, Hash: [32]byte{6}}, true},
		"the round began later":           {Head{Index: 71, Step: 9, Hash: [32]byte{7}}, true},
		"a later record":                  {Head{Index: 71, Hash: [32]byte{7}}, false},
		"the next round's start":          {Head{Index: 90, Step: 10, Hash: [32]byte{7}}, false},
		"an earlier round's start, later": {Head{Index: 90, Step: 8, Hash: [32]byte{7}}, false},
	}
	for name, test := range tests {
		if got := a.Contradicts(test.b); got != test.want || got != test.b.Contradicts(a) {
			t.Errorf("%s: got %v; want %v and test.b.Contradicts(a)", name, got, test.want)
		}
	}
	if (Head{Index: 3}).Contradicts(Head{Index: 4}) {
		t.Error("heads that start no round contradict each other")
	}
}

func TestBadHeadsAreRefused(t *testing.T) {
	raw := testHead().AppendTo(nil)
	for name, bad := range map[string][]byte{
		"nothing": nil, "cut": raw[:HeadSize-1], "longer": append(bytes.Clone(raw), 0), "of no records": make([]byte, HeadSize),
	} {
		if _, err := DecodeHead(bad); !errors.Is(err, errMalformed) {
			t.Errorf("%s: got %v; want error errMalformed", name, err)
		}
	}
}

func FuzzHead(f *testing.F) {
	f.Add(testHead().AppendTo(nil))
	fuzztest.Run(f, func(t *testing.T, raw []byte) {
		if h, err := DecodeHead(raw); err == nil && !bytes.Equal(h.AppendTo(nil), raw) {
			t.Fatal("a second encoding of the same head was accepted")
		}
	})
}
