package audit_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/golden"
)

// openings are one of a first step and one with all there can be.
func openings(t testing.TB) (audit.Shapes, []audit.Opening) {
	r := newRig(t)
	first := []uint32{0, 5, 6, 9}
	r.train(1, r.gradient())
	o := []audit.Opening{r.claim(first, false, nil).Opening}
	r.train(2, r.gradient())
	r.train(3, r.gradient())
	return r.shapes, append(o, r.claim([]uint32{7, 9}, true, &r.history[0]).Opening)
}

func TestOpeningsRoundTrip(t *testing.T) {
	shapes, all := openings(t)
	for i, o := range all {
		b, err := o.Encode(shapes)
		if err != nil {
			t.Fatal(err)
		}
		if most := audit.MaxOpeningSize(shapes, len(o.Chunks)); len(b) > most {
			t.Errorf("%d bytes, MaxOpeningSize says %d", len(b), most)
		}
		got, err := audit.DecodeOpening(b, shapes)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o, got); diff != "" {
			t.Errorf("(-encoded +decoded):\n%s", diff)
		}
		golden.Compare(t, []string{"opening-first-v1.golden", "opening-v1.golden"}[i], b)
	}
}

func TestRefusedOpenings(t *testing.T) {
	shapes, all := openings(t)
	good, err := all[1].Encode(shapes)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(at int, b ...byte) []byte {
		c := bytes.Clone(good)
		copy(c[at:], b)
		return c
	}
	const firstValue = 51 + 4
	for _, c := range []struct {
		name, want string
		bytes      []byte
	}{
		{"nothing", "header alone", nil},
		{"magic", "magic", changed(0, 'X')},
		{"version", "version 2", changed(4, 2)},
		{"previous not before", "goes on from", changed(41, 3)},
		{"earlier not before previous", "given back before", changed(45, 2)},
		{"too many chunks", "at most 64", changed(49, 65)},
		{"no chunk", "after the last", changed(49, 0)},
		{"no such chunk", "of 10", changed(51, 10)},
		{"not finite", "momentum is NaN", changed(firstValue, 0, 0, 0xc0, 0x7f)},
		{"cut", "end in chunk 9", good[:len(good)-1]},
		{"longer", "after the last", append(bytes.Clone(good), 0)},
		{"too long", "at most", make([]byte, 1<<20)},
	} {
		if _, err := audit.DecodeOpening(c.bytes, shapes); !errors.Is(err, audit.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one about %q", c.name, err, c.want)
		}
	}
	for _, bad := range []audit.Shapes{nil, {{Chunks: 1, Rows: 129, Cols: 1, K: 1}}, {{Chunks: math.MaxInt32, Rows: 1, Cols: 1, K: 1}, {Chunks: 1, Rows: 1, Cols: 1, K: 1}}, {{Chunks: 1, Rows: 2, Cols: 2, K: 5}}} {
		if _, err := audit.DecodeOpening(good, bad); !errors.Is(err, audit.ErrInvalid) {
			t.Errorf("shapes %v: error %v", bad, err)
		}
	}
	descending := all[1]
	descending.Chunks = []audit.Opened{descending.Chunks[1], descending.Chunks[0]}
	if _, err := descending.Encode(shapes); !errors.Is(err, audit.ErrInvalid) {
		t.Errorf("chunks in another order: error %v", err)
	}
}

func FuzzDecodeOpening(f *testing.F) {
	shapes, all := openings(f)
	for _, o := range all {
		b, err := o.Encode(shapes)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := audit.DecodeOpening(b, shapes)
		if err != nil {
			if !errors.Is(err, audit.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if again, err := o.Encode(shapes); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("decoded bytes encode differently (%v)", err)
		}
	})
}

func someVerdict() audit.Verdict {
	return audit.Verdict{
		Run: [32]byte{1}, Step: 7, Seed: 1 << 63, Trainer: [32]byte{2}, Verifier: [32]byte{3}, Result: [32]byte{4},
		Outcome: audit.Strange, Error: 1.5,
		Chunks: []audit.Said{{audit.Print{Chunk: 1, Length: 2, Projection: -1}, 0.5}, {audit.Print{Chunk: 9, Length: 0, Projection: 0}, 3}},
	}
}

func TestVerdictsRoundTrip(t *testing.T) {
	b, err := someVerdict().Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "verdict-v1.golden", b)
	got, err := audit.DecodeVerdict(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(someVerdict(), got); diff != "" {
		t.Errorf("(-encoded +decoded):\n%s", diff)
	}
	for name, change := range map[string]func(v *audit.Verdict){
		"no outcome":     func(v *audit.Verdict) { v.Outcome = 0 },
		"fault":          func(v *audit.Verdict) { v.Fault = audit.FaultPath },
		"no such fault":  func(v *audit.Verdict) { v.Outcome, v.Fault = audit.Faulty, 99 },
		"error":          func(v *audit.Verdict) { v.Error = float32(math.NaN()) },
		"no chunk":       func(v *audit.Verdict) { v.Chunks = nil },
		"twice the same": func(v *audit.Verdict) { v.Chunks[1].Chunk = 1 },
		"length":         func(v *audit.Verdict) { v.Chunks[0].Length = -1 },
	} {
		v := someVerdict()
		change(&v)
		if _, err := v.Encode(); !errors.Is(err, audit.ErrInvalid) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func FuzzDecodeVerdict(f *testing.F) {
	b, err := someVerdict().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := audit.DecodeVerdict(b)
		if err != nil {
			if !errors.Is(err, audit.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if again, err := v.Encode(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("decoded bytes encode differently (%v)", err)
		}
	})
}

// TestSealsDiffer by salt, domain and body.
func TestSealsDiffer(t *testing.T) {
	seals := map[[32]byte]bool{}
	for _, domain := range []string{audit.SealPrints, audit.SealVerdict} {
		for salt := range byte(2) {
			for body := range byte(2) {
				seals[audit.Seal(domain, [32]byte{salt}, []byte{body})] = true
			}
		}
	}
	if len(seals) != 8 {
		t.Errorf("%d seals of 8 secrets", len(seals))
	}
}
