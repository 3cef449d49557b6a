package frame

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/record/wire"
	"pgregory.net/rapid"
)

// TestRecordsRoundTrip packs records into many frames. The window of each frame depends on the
// frames before it.
func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var here, there []byte // windows of both sides
		first := rapid.Uint64Range(1, 1<<40).Draw(t, "first")
		for range rapid.IntRange(1, 5).Draw(t, "frames") {
			records := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 3000), 0, 20).Draw(t, "records")
			want := Records{First: first}
			for _, r := range records {
				want.Raw = AppendRecord(want.Raw, r)
			}
			if rapid.Bool().Draw(t, "with heads") {
				want.Heads = []wire.Head{{Index: 1, Step: 2, Hash: [32]byte{3}}, {Index: 9}}
			}
			got, err := DecodeRecords(want.AppendTo(nil, here), there)
			if err != nil || got.First != first || !bytes.Equal(got.Raw, want.Raw) || !slices.Equal(got.Heads, want.Heads) {
				t.Fatalf("got %+v, %v; want nil error and got.First == first and want.Raw and want.Heads", got, err)
			}
			n := 0
			err = got.Each(func(r []byte) error {
				if !bytes.Equal(r, records[n]) {
					t.Fatalf("record %d differs", n)
				}
				n++
				return nil
			})
			if err != nil || n != len(records) {
				t.Fatalf("%d of %d records, %v", n, len(records), err)
			}
			here, there = Slide(here, want.Raw), Slide(there, got.Raw)
			if !bytes.Equal(here, there) || len(here) > windowSize {
				t.Fatalf("windows of %d and %d bytes", len(here), len(there))
			}
			first += uint64(n)
		}
		if again, err := DecodeWindow(AppendWindow(nil, here)); err != nil || !bytes.Equal(again, here) {
			t.Fatalf("window: %v", err)
		}
	})
}

// TestShortWindow packs incompressible records with short windows, because package flate stored
// windows of up to 50 bytes together with such records.
func TestShortWindow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 20_000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	for length := range 100 {
		for _, size := range []int{1, 40, 300, 3000, len(noise) - length} {
			window, want := noise[:length], Records{First: 2, Raw: noise[length:][:size]}
			got, err := DecodeRecords(want.AppendTo(nil, window), window)
			if err != nil || !bytes.Equal(got.Raw, want.Raw) {
				t.Fatalf("window of %d bytes, %d bytes of records: got %d bytes, %v", length, size, len(got.Raw), err)
			}
		}
	}
}

func TestBadRecordsAreRefused(t *testing.T) {
	good := Records{First: 3, Raw: AppendRecord(nil, []byte("record")), Heads: []wire.Head{{Index: 4}}}.AppendTo(nil, nil)
	bomb := Records{First: 3, Raw: make([]byte, maxRawRecords+1)}.AppendTo(nil, nil)
	many := append(bytes.Clone(good[:8]), maxHeads+1)
	for name, payload := range map[string][]byte{
		"nothing": nil, "cut in the heads": good[:20], "cut in the records": good[:len(good)-3], "more": append(bytes.Clone(good), 1),
		"unpacks to too much": bomb, "too many heads": many, "a head of nothing": append(append(bytes.Clone(good[:8]), 1), make([]byte, wire.HeadSize)...),
	} {
		if _, err := DecodeRecords(payload, nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v; want error ErrMalformed", name, err)
		}
	}
	if err := (Records{Raw: []byte{9, 1}}).Each(func([]byte) error { return nil }); !errors.Is(err, ErrMalformed) {
		t.Errorf("a record that is cut: %v", err)
	}
	if _, err := DecodeFollow(Follow{}.AppendTo(nil)); !errors.Is(err, ErrMalformed) {
		t.Errorf("follow of no records: %v", err)
	}
}

// FuzzRecords checks that arbitrary frames cause no crash and give a bounded number of records.
func FuzzRecords(f *testing.F) {
	f.Add(Records{First: 3, Raw: AppendRecord(nil, []byte("record")), Heads: []wire.Head{{Index: 4}}}.AppendTo(nil, nil), []byte("window"))
	fuzztest.Run(f, func(t *testing.T, payload, window []byte) {
		r, err := DecodeRecords(payload, window)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if len(r.Raw) > maxRawRecords || len(r.Heads) > maxHeads {
			t.Fatalf("%d bytes, %d heads", len(r.Raw), len(r.Heads))
		}
		_ = r.Each(func([]byte) error { return nil })
		for _, decode := range []func([]byte) error{
			func(b []byte) error { _, err := DecodeSign(b); return err },
			func(b []byte) error { _, err := DecodeFollow(b); return err },
			func(b []byte) error { _, err := DecodeWindow(b); return err },
		} {
			if err := decode(payload); err != nil && !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
		}
	})
}
