package shuffle

import (
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestAtIsAPermutation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, 300).Draw(t, "n")
		pass := rapid.Uint64Range(0, 3).Draw(t, "pass")
		seed := [32]byte{rapid.Byte().Draw(t, "seed")}
		p := New(seed, n)
		seen := make([]bool, n)
		for i := range n {
			at := p.At(pass*n + i)
			if at >= n || seen[at] {
				t.Fatalf("index %d of pass %d goes to %d, which is out of range or taken", i, pass, at)
			}
			seen[at] = true
		}
	})
}

// TestAtIsStable pins the order, because a run's clients may have different versions.
func TestAtIsStable(t *testing.T) {
	order := func(p *Permutation, first uint64) []uint64 {
		var order []uint64
		for i := range uint64(12) {
			order = append(order, p.At(first+i))
		}
		return order
	}
	tests := []struct {
		name  string
		seed  byte
		n     uint64
		first uint64
		want  []uint64
	}{
		{"first pass", 7, 12, 0, []uint64{0x3, 0x8, 0xa, 0x9, 0xb, 0x5, 0x1, 0x6, 0x0, 0x7, 0x4, 0x2}},
		{"second pass", 7, 12, 12, []uint64{0xb, 0x7, 0x9, 0x3, 0x4, 0x1, 0x5, 0x6, 0x8, 0x0, 0xa, 0x2}},
		{"other seed", 8, 12, 0, []uint64{0x3, 0x0, 0x9, 0x4, 0x7, 0x6, 0xa, 0x8, 0x1, 0x2, 0xb, 0x5}},
		{"large", 7, 1 << 40, 0, []uint64{
			0xab34a0ab69, 0x34a79664c3, 0x9830b2385d, 0x8675887355, 0xa7f0dd6210, 0xeccfb6761c,
			0xfe1b8fd434, 0xa8694a9a26, 0x661c515dfd, 0x3bddc2dde3, 0x17e3e13a7c, 0x87c98d37cb,
		}},
	}
	for _, test := range tests {
		if got := order(New([32]byte{test.seed}, test.n), test.first); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %#v", test.name, got)
		}
	}
}

func TestAtIsUniform(t *testing.T) {
	const n, seeds = 16, 2000
	var counts [n][n]int
	for s := range seeds {
		p := New([32]byte{byte(s), byte(s >> 8)}, n)
		for i := range uint64(n) {
			counts[i][p.At(i)]++
		}
	}
	// The expected count is 125 with a standard deviation of 10.8.
	for i := range n {
		for j := range n {
			if counts[i][j] < 70 || counts[i][j] > 180 {
				t.Errorf("index %d goes to %d in %d of %d orders, want about %d", i, j, counts[i][j], seeds, seeds/n)
			}
		}
	}
}

func TestAtConcurrently(t *testing.T) {
	const n = 50
	p := New([32]byte{1}, n)
	want := make([]uint64, 3*n)
	for i := range want {
		want[i] = p.At(uint64(i))
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for i := range want {
				if got := p.At(uint64(i)); got != want[i] {
					t.Errorf("index %d goes to %d, then to %d", i, want[i], got)
				}
			}
		})
	}
	wait.Wait()
}

func BenchmarkAt(b *testing.B) {
	p := New([32]byte{1}, 400_000)
	var index uint64
	for b.Loop() {
		p.At(index % 400_000)
		index++
	}
}

// TestTheOrderIsTheDocumentedOne compares with positions that an independent program computed from
// the description in docs/data.md alone.
func TestTheOrderIsTheDocumentedOne(t *testing.T) {
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(i)
	}
	p := New(seed, 1000)
	for index, want := range map[uint64]uint64{0: 738, 1: 603, 2: 594, 999: 269, 1000: 307, 1001: 568} {
		if got := p.At(index); got != want {
			t.Errorf("index %d goes to %d, want %d", index, got, want)
		}
	}
}
