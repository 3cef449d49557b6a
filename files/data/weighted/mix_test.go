package weighted

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/psyche-go/psyche/base/fuzztest"
	"pgregory.net/rapid"
)

// numbers is a source whose sequences contain the source's number and their index.
type numbers struct {
	number int32
	len    uint64
}

var errRead = errors.New("no")

func (n numbers) Read(_ context.Context, indices []uint64) ([][]int32, error) {
	var read [][]int32
	for _, index := range indices {
		if index == math.MaxUint64 {
			return nil, errRead
		}
		read = append(read, []int32{n.number, int32(index)})
	}
	return read, nil
}

func (n numbers) Len() uint64  { return n.len }
func (n numbers) Close() error { return nil }

func sources(n int) []Source {
	all := make([]Source, n)
	for i := range all {
		all[i] = numbers{int32(i), uint64(10 * (i + 1))}
	}
	return all
}

// TestEveryCycleIsExact checks that in every cycle, and so in any series of cycles, each source
// occurs as often as its shares, and delivers its next sequences once each.
func TestEveryCycleIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shares := rapid.SliceOfN(rapid.Uint32Range(1, 30), 1, 6).Draw(t, "shares")
		var seed *[32]byte
		if rapid.Bool().Draw(t, "seeded") {
			seed = &[32]byte{rapid.Byte().Draw(t, "seed")}
		}
		m, err := New(sources(len(shares)), shares, seed)
		if err != nil {
			t.Fatal(err)
		}
		cycle := rapid.Uint64Range(0, 1<<40).Draw(t, "cycle")
		got := make([][]uint64, len(shares))
		for i := range uint64(len(m.cycle)) {
			source, sequence := m.At(cycle*uint64(len(m.cycle)) + i)
			got[source] = append(got[source], sequence)
		}
		for source, share := range shares {
			slices.Sort(got[source])
			var want []uint64
			for i := range uint64(share) {
				want = append(want, cycle*uint64(share)+i)
			}
			if diff := cmp.Diff(want, got[source]); diff != "" {
				t.Fatalf("source %d (-want +got):\n%s", source, diff)
			}
		}
	})
}

// TestSourcesAreSpreadEvenly checks that without a seed each source always stays close to its
// share.
func TestSourcesAreSpreadEvenly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shares := rapid.SliceOfN(rapid.Uint32Range(1, 200), 1, 8).Draw(t, "shares")
		m, err := New(sources(len(shares)), shares, nil)
		if err != nil {
			t.Fatal(err)
		}
		taken := make([]float64, len(shares))
		for i := range m.cycle {
			taken[m.cycle[i].source]++
			for source, share := range shares {
				ideal := float64(share) * float64(i+1) / float64(len(m.cycle))
				if off := math.Abs(taken[source] - ideal); off > float64(len(shares)) {
					t.Fatalf("after %d sequences source %d came %v times, want about %v", i+1, source, taken[source], ideal)
				}
			}
		}
	})
}

func TestReadKeepsTheOrder(t *testing.T) {
	m, err := New(sources(2), []uint32{7, 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	indices := make([]uint64, 12)
	for i := range indices {
		indices[i] = uint64(i)
	}
	got, err := m.Read(t.Context(), indices)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]int32{{0, 0}, {1, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 1}, {0, 4}, {0, 5}, {1, 2}, {0, 6}, {0, 7}, {1, 3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m.Len() != 30 {
		t.Errorf("%d sequences", m.Len())
	}
}

// TestAtIsStable pins the mixture, because a run's clients may have different versions.
func TestAtIsStable(t *testing.T) {
	m, err := New(sources(3), []uint32{1, 2, 4}, &[32]byte{9})
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for i := range uint64(9) {
		source, sequence := m.At(1<<33 + i)
		got = append(got, uint64(source), sequence)
	}
	want := []uint64{
		2, 4908534054, 1, 2454267027, 0, 1227133513, 1, 2454267026, 2, 4908534053,
		2, 4908534055, 1, 2454267028, 1, 2454267029, 2, 4908534056,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOrderOfTheDocumentation checks the examples of docs/data.md. A program that was written from
// that text alone computed them.
func TestOrderOfTheDocumentation(t *testing.T) {
	order := func(seed *[32]byte, shares ...uint32) (got [][2]int) {
		m, err := New(sources(len(shares)), shares, seed)
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.cycle {
			source, sequence := m.At(uint64(i))
			got = append(got, [2]int{source, int(sequence)})
		}
		return got
	}
	if diff := cmp.Diff([][2]int{{2, 0}, {1, 0}, {0, 0}, {2, 1}, {1, 1}, {2, 2}}, order(nil, 1, 2, 3)); diff != "" {
		t.Errorf("1, 2 and 3 (-want +got):\n%s", diff)
	}
	want := [][2]int{{1, 0}, {0, 2}, {0, 1}, {0, 4}, {0, 0}, {1, 2}, {0, 5}, {0, 3}, {0, 6}, {1, 1}}
	if diff := cmp.Diff(want, order(&[32]byte{7}, 7, 3)); diff != "" {
		t.Errorf("7 and 3, seed 7 (-want +got):\n%s", diff)
	}
}

func TestShares(t *testing.T) {
	tests := []struct {
		weights []string
		want    []uint32
	}{
		{[]string{"0.7", "0.3"}, []uint32{7, 3}},
		{[]string{"1", "1.0", "2"}, []uint32{1, 1, 2}},
		{[]string{"5"}, []uint32{1}},
		{[]string{"1e3", "2.5E2"}, []uint32{4, 1}},
		{[]string{"65535", "1"}, []uint32{65535, 1}},
		{[]string{"65536", "1"}, []uint32{65535, 1}},
		{[]string{"0.333333333", "0.666666667"}, []uint32{21845, 43691}},
		{[]string{"1e-9", "1", "1e-9"}, []uint32{1, 65534, 1}},
		{[]string{"0.1234567", "0.7654321", "0.1111112"}, []uint32{8091, 50163, 7282}},
		{[]string{"0.3000001", "0.3000001", "0.3999998"}, []uint32{19661, 19661, 26214}},
	}
	for _, test := range tests {
		got, err := Shares(test.weights)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, %v, want %v", test.weights, got, err, test.want)
		}
	}
	for _, weights := range [][]string{nil, {"0"}, {"-1"}, {"1", "NaN"}, {"Inf"}, {"x"}, {""}, {"1e400"}, {"1e16"}, {"1e-400"}, {"1/3"}, {" 1"}, make([]string, maxSources+1)} {
		if got, err := Shares(weights); !errors.Is(err, errWeights) {
			t.Errorf("%.40q: %v, %v", weights, got, err)
		}
	}
}

// TestSharesAreClose checks that a cycle is never exceeded, and that each share is within one of
// the ideal share, unless the ideal is less than one.
func TestSharesAreClose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.Uint64Range(1, math.MaxUint64), 1, maxSources).Draw(t, "lengths")
		shares, err := SharesOf(lengths)
		if err != nil {
			t.Fatal(err)
		}
		sum, all, small := uint64(0), 0.0, 0.0
		for i, share := range shares {
			sum += uint64(share)
			all += float64(lengths[i])
			if share == 1 {
				small++
			}
		}
		if sum > maxCycle {
			t.Fatalf("%d shares", sum)
		}
		for i, share := range shares {
			ideal := float64(lengths[i]) / all * float64(sum)
			if share == 0 || share > 1 && math.Abs(float64(share)-ideal) > 1+small {
				t.Fatalf("source %d has %d shares, ideal %v", i, share, ideal)
			}
		}
	})
}

func FuzzShares(f *testing.F) {
	f.Add("0.7", "0.3")
	f.Add("1e15", "1e-15")
	fuzztest.Run(f, func(t *testing.T, a, b string) {
		shares, err := Shares([]string{a, b})
		if err != nil {
			return
		}
		x, errX := strconv.ParseFloat(a, 64)
		y, errY := strconv.ParseFloat(b, 64)
		if errX != nil || errY != nil || shares[0] == 0 || shares[1] == 0 || shares[0]+shares[1] > maxCycle {
			t.Fatalf("%q and %q: %v", a, b, shares)
		}
		if want, got := x/(x+y), float64(shares[0])/float64(shares[0]+shares[1]); math.Abs(want-got) > 1.0/(maxCycle-1) {
			t.Fatalf("%q and %q: %v, want a ratio of %v", a, b, shares, want)
		}
	})
}

func TestErrorsNameTheSource(t *testing.T) {
	m, err := New(sources(1), []uint32{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Read(t.Context(), []uint64{math.MaxUint64}); !errors.Is(err, errRead) {
		t.Errorf("got %v; want error errRead", err)
	}
	for _, shares := range [][]uint32{nil, {1}, {1, 0}, {maxCycle, 1}} {
		if _, err := New(sources(2), shares, nil); !errors.Is(err, errWeights) {
			t.Errorf("%v: got %v; want error errWeights", shares, err)
		}
	}
}
