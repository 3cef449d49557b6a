package distro

import (
	"errors"
	"testing"
)

func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		shape                []int64
		rows, cols           int
		chunkRows, chunkCols int
		chunks               int
	}{
		{nil, 1, 1, 1, 1, 1},
		{[]int64{100}, 1, 100, 1, 50, 2},
		{[]int64{50257, 768}, 50257, 768, 29, 64, 1733 * 12},
		// A prime number of rows above 65,535 gives the same number of chunk rows.
		{[]int64{70001, 64}, 70001, 64, 1, 64, 70001},
		// Blocks of a stack do not cross from one matrix into the next.
		{[]int64{3, 2, 48, 20}, 288, 20, 48, 20, 6},
		{[]int64{8, 100, 67}, 800, 67, 50, 1, 16 * 67},
	} {
		l := newLayout(t, c.shape, 64)
		want := Layout{rows: c.rows, cols: c.cols, chunkRows: c.chunkRows, chunkCols: c.chunkCols}
		if l != want || l.Chunks() != c.chunks || l.Elements() != c.rows*c.cols {
			t.Errorf("shape %v: %+v with %d chunks, want %+v with %d", c.shape, l, l.Chunks(), want, c.chunks)
		}
		covered := make([]bool, l.Elements())
		for chunk := range l.Chunks() {
			for i := range l.chunkRows {
				for j := range l.chunkCols {
					at := l.offset(chunk) + i*l.cols + j
					if covered[at] {
						t.Fatalf("shape %v: element %d is in two chunks", c.shape, at)
					}
					covered[at] = true
				}
			}
		}
		if codec := l.Codec(1 << 20); codec.K != l.ChunkSize() || codec.Validate() != nil {
			t.Errorf("shape %v: codec layout %+v", c.shape, codec)
		}
	}
}

func TestRefusedShapes(t *testing.T) {
	for _, c := range []struct {
		shape []int64
		chunk int
	}{
		{[]int64{0}, 64},
		{[]int64{4, -1}, 64},
		{[]int64{1 << 40, 1 << 40}, 64},
		{[]int64{1 << 36}, 64},
		{[]int64{4}, 0},
		{[]int64{4}, MaxChunk + 1},
	} {
		if l, err := NewLayout(c.shape, c.chunk); !errors.Is(err, errShape) {
			t.Errorf("shape %v by %d: %+v, error %v", c.shape, c.chunk, l, err)
		}
	}
}
