package parquetfile

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/psyche-go/psyche/base/fuzztest"
)

func packedDeltas(t testing.TB, numbers []int32) []byte {
	t.Helper()
	raw, err := parquet.DeltaBinaryPacked.EncodeInt32(nil, numbers)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestDeltas reads numbers of all sizes that package parquet has packed.
func TestDeltas(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for width := range 33 {
		for _, count := range []int{0, 1, 2, 31, 32, 33, 128, 129, 1000} {
			want := make([]int32, count)
			for i := range want {
				want[i] = int32(random.Uint64() & (1<<width - 1))
			}
			raw := append(packedDeltas(t, want), "behind"...)
			d, err := deltasOf(raw, count)
			if err != nil {
				t.Fatal(err)
			}
			got := []int32{}
			for d.left > 0 {
				number, err := d.next()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, number)
			}
			if !slices.Equal(got, want) || string(d.behind) != "behind" {
				t.Fatalf("%d numbers of %d bits: got %d, and %q behind them, want %d", count, width, got, d.behind, want)
			}
			if _, err := deltasOf(raw, max(count-1, 0)); err == nil && count > 0 {
				t.Errorf("%d numbers, want at most %d", count, count-1)
			}
		}
	}
}

// FuzzDeltas checks that package parquet can read all accepted bytes, and that they contain no more
// numbers than counted.
func FuzzDeltas(f *testing.F) {
	texts, ends := []byte("onetwotwentytwenty-one"), []uint32{0, 3, 6, 12, 22}
	for _, encode := range []func([]byte, []byte, []uint32) ([]byte, error){parquet.DeltaByteArray.EncodeByteArray, parquet.DeltaLengthByteArray.EncodeByteArray} {
		raw, err := encode(nil, texts, ends)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add(append(append(packedDeltas(f, []int32{0, 40}), packedDeltas(f, []int32{40, 0})...), make([]byte, 40)...))
	f.Add(packedDeltas(f, []int32{1 << 30, 1 << 30, -1 << 31}))
	const most = 1000
	fuzztest.Run(f, func(t *testing.T, raw []byte) {
		if err := checkShared(raw, most); err == nil {
			_, _, err := parquet.DeltaByteArray.DecodeByteArray(nil, raw, nil)
			if err != nil {
				t.Errorf("shared: %v", err)
			}
		}
		if err := checkLengths(raw, most); err == nil {
			_, _, err := parquet.DeltaLengthByteArray.DecodeByteArray(nil, raw, nil)
			if err != nil {
				t.Errorf("lengths: %v", err)
			}
		}
	})
}
