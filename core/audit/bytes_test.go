package audit_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/audit"
)

// openings returns an opening of a first step and an opening of a later step.
func openings(t testing.TB) (audit.Shapes, []audit.Opening) {
	t.Helper()
	r := newRig(t)
	first := []uint32{0, 5, 6, 9}
	r.train(1, r.gradient())
	o := []audit.Opening{r.claim(first).Opening}
	r.train(3, r.gradient())
	return r.shapes, append(o, r.claim([]uint32{7, 9}).Opening)
}

func TestOpeningsRoundTrip(t *testing.T) {
	shapes, all := openings(t)
	for i, o := range all {
		b, err := o.Encode(shapes)
		if err != nil {
			t.Fatal(err)
		}
		if limit := audit.MaxOpeningSize(shapes, len(o.Chunks)); len(b) > limit {
			t.Errorf("%d bytes, MaxOpeningSize is %d", len(b), limit)
		}
		got, err := audit.DecodeOpening(b, shapes)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o, got); diff != "" {
			t.Errorf("(-encoded +decoded):\n%s", diff)
		}
		golden.Compare(t, []string{"opening-first-v2.golden", "opening-v2.golden"}[i], b)
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
	const firstValue = 47 + 4
	for _, c := range []struct {
		name  string
		bytes []byte
	}{
		{"nothing", nil},
		{"magic", changed(0, 'X')},
		{"version", changed(4, 1)},
		{"previous not before", changed(41, 3)},
		{"too many chunks", changed(45, 65)},
		{"no chunk", changed(45, 0)},
		{"no such chunk", changed(47, 10)},
		{"not finite", changed(firstValue, 0, 0, 0xc0, 0x7f)},
		{"cut", good[:len(good)-1]},
		{"longer", append(bytes.Clone(good), 0)},
		{"too long", make([]byte, 1<<20)},
	} {
		_, err := audit.DecodeOpening(c.bytes, shapes)
		if !errors.Is(err, audit.ErrInvalid) {
			t.Errorf("%s: error %v", c.name, err)
		}
		golden.Message(t, c.name, err)
	}
	for _, bad := range []audit.Shapes{nil, {{Chunks: 1, Rows: 129, Cols: 1, K: 1}}, {{Chunks: math.MaxInt32, Rows: 1, Cols: 1, K: 1}, {Chunks: 1, Rows: 1, Cols: 1, K: 1}}, {{Chunks: 1, Rows: 2, Cols: 2, K: 5}}} {
		if _, err := audit.DecodeOpening(good, bad); !errors.Is(err, audit.ErrInvalid) {
			t.Errorf("shapes %v: error %v", bad, err)
		}
	}
	descending := all[1]
	descending.Chunks = []audit.Opened{descending.Chunks[1], descending.Chunks[0]}
	if _, err := descending.Encode(shapes); !errors.Is(err, audit.ErrInvalid) {
		t.Errorf("chunks in a different order: error %v", err)
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
	fuzztest.Run(f, func(t *testing.T, b []byte) {
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
