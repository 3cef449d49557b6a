package audit_test

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
)

// TestCut checks that vectors are cut into chunks with an edge of at most 64, and tensors of more
// dimensions by their last two dimensions.
func TestCut(t *testing.T) {
	for n, want := range map[int64]int{
		1: 1, 48: 48, 64: 64, 67: 1, 100: 50, 256: 64, 768: 64, 2048: 64, 2816: 64, 5632: 64, 7168: 64, 11008: 64, 18432: 64,
		32000: 64, 50257: 29, 128256: 64, 129280: 64, 151936: 64,
	} {
		if s, err := audit.Cut([]int64{n}, 64, 8); err != nil || s != (audit.Shape{Chunks: int(n) / want, Rows: 1, Cols: want, K: min(8, want)}) {
			t.Errorf("%d: %+v, %v, want an edge of %d", n, s, err, want)
		}
	}
	for _, c := range []struct {
		shape   []int64
		edge, k int
		want    audit.Shape
	}{
		{nil, 64, 8, audit.Shape{Chunks: 1, Rows: 1, Cols: 1, K: 1}},
		{[]int64{128, 96}, 64, 8, audit.Shape{Chunks: 4, Rows: 64, Cols: 48, K: 8}},
		{[]int64{3, 50, 70}, 64, 20000, audit.Shape{Chunks: 6, Rows: 50, Cols: 35, K: 1750}},
		{[]int64{2, 3, 127, 129}, 128, 1, audit.Shape{Chunks: 18, Rows: 127, Cols: 43, K: 1}},
	} {
		if s, err := audit.Cut(c.shape, c.edge, c.k); err != nil || s != c.want {
			t.Errorf("%v by %d, %d of each: %+v, %v, want %+v", c.shape, c.edge, c.k, s, err, c.want)
		}
	}
	for _, bad := range []struct {
		shape   []int64
		edge, k int
	}{{[]int64{0}, 64, 8}, {[]int64{4, -1}, 64, 8}, {[]int64{1 << 30, 1 << 30}, 64, 8}, {[]int64{4}, 0, 8}, {[]int64{4}, 129, 8}, {[]int64{4}, 64, 0}} {
		if s, err := audit.Cut(bad.shape, bad.edge, bad.k); !errors.Is(err, audit.ErrInvalid) {
			t.Errorf("%+v: got %+v, %v; want error audit.ErrInvalid", bad, s, err)
		}
	}
}
