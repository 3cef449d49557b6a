package codec

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestBinomialsAreTheBinomials(t *testing.T) {
	for _, c := range [][2]int{{1, 1}, {8, 8}, {64, 64}, {300, 300}, {4096, 32}, {16384, 8}} {
		size, k := c[0], c[1]
		table := newBinomials(size, k)
		for j := range k + 1 {
			for _, m := range []int{0, j - 1, j, j + 1, size / 2, size - 1, size} {
				if m < 0 || m > size {
					continue
				}
				want := new(big.Int).Binomial(int64(m), int64(j))
				if got := asBig(table.at(m, j)); got.Cmp(want) != 0 {
					t.Fatalf("C(%d, %d) = %v, want %v", m, j, got, want)
				}
			}
			last := new(big.Int).Binomial(int64(size), int64(j))
			if want := last.Sub(last, big.NewInt(1)).BitLen(); table.widths[j] != want {
				t.Errorf("sets of %d of %d: %d bits, want %d", j, size, table.widths[j], want)
			}
		}
	}
}

func asBig(n number) *big.Int {
	sum := new(big.Int)
	for _, word := range slices.Backward(n) {
		sum.Lsh(sum, 64).Or(sum, new(big.Int).SetUint64(word))
	}
	return sum
}

// TestRanksCountTheSets checks the ranks of all sets in order.
func TestRanksCountTheSets(t *testing.T) {
	const size, k = 9, 4
	table := newBinomials(size, k)
	for n := range k + 1 {
		next := uint64(0)
		for set := range 1 << size {
			var indices []uint16
			for i := range size {
				if set>>i&1 == 1 {
					indices = append(indices, uint16(i))
				}
			}
			if len(indices) != n {
				continue
			}
			// As binary numbers, sets in colexicographic order are ascending.
			rank := number{0}
			table.rank(indices, rank)
			if rank[0] != next {
				t.Fatalf("rank of %v is %d, want %d", indices, rank[0], next)
			}
			back := make([]uint16, n)
			if !table.unrank(rank, size, back) || !slices.Equal(back, indices) {
				t.Fatalf("rank %d of %v comes back as %v", next, indices, back)
			}
			next++
		}
		if table.unrank(number{next}, size, make([]uint16, n)) {
			t.Errorf("sets of %d: rank %d is too large but was accepted", n, next)
		}
	}
}

// bound returns log₂ C(size, k) + k, the number of bits of k equally likely indices and their
// signs.
func bound(size, k int) float64 {
	log := float64(k)
	for i := range k {
		log += math.Log2(float64(size-i)) - math.Log2(float64(i+1))
	}
	return log
}

func randomResult(l TensorLayout) TensorResult {
	random := rand.New(rand.NewPCG(3, 4))
	r := l.NewResult()
	for c := range l.Chunks {
		r.Counts[c] = uint16(l.K)
		indices := r.Indices[c*l.K:][:l.K]
		for i, index := range random.Perm(l.ChunkSize)[:l.K] {
			indices[i] = uint16(index)
			r.Values[c*l.K+i] = float32(1 - 2*random.IntN(2))
		}
		slices.Sort(indices)
	}
	return r
}

func TestSizeIsNearTheBound(t *testing.T) {
	for _, k := range []int{2, 4, 8, 16, 32} {
		l := TensorLayout{Chunks: 1000, ChunkSize: 4096, K: k}
		perChunk := float64(8*(fullSize([]TensorLayout{l}, true)-HeaderSize)) / float64(l.Chunks)
		fixed := k * (l.indexBits() + 1)
		t.Logf("%d of %d: %.2f bits a chunk, bound %.2f (ratio %.4f), indices one by one %d, 16-bit indices %d",
			k, l.ChunkSize, perChunk, bound(4096, k), perChunk/bound(4096, k), fixed, 17*k)
		if k >= 4 && perChunk > 1.015*bound(4096, k) {
			t.Errorf("%d of %d: %.2f bits a chunk", k, l.ChunkSize, perChunk)
		}
	}
}

func BenchmarkCodec(b *testing.B) {
	for _, k := range []int{8, 32} {
		// 10 million parameters
		layouts := []TensorLayout{{Chunks: 10_000_000 / 4096, ChunkSize: 4096, K: k}}
		results := []TensorResult{randomResult(layouts[0])}
		encoded, err := Encode(someHeader, layouts, true, results)
		if err != nil {
			b.Fatal(err)
		}
		perChunk := float64(8*(len(encoded)-HeaderSize)) / float64(layouts[0].Chunks)
		b.Run(fmt.Sprintf("encode/top=%d", k), func(b *testing.B) {
			for b.Loop() {
				if _, err := Encode(someHeader, layouts, true, results); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(perChunk, "bits/chunk")
			b.ReportMetric(bound(4096, k), "bound/chunk")
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N)*10, "ms/100M")
		})
		b.Run(fmt.Sprintf("decode/top=%d", k), func(b *testing.B) {
			for b.Loop() {
				if _, _, err := Decode(encoded, layouts, true); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N)*10, "ms/100M")
		})
	}
}
