package audit_test

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/learn/distro"
)

// TestCut compares how a result is examined without the kernels with how they cut a model.
func TestCut(t *testing.T) {
	for _, shape := range [][]int64{{}, {1}, {7}, {64}, {97}, {128, 96}, {1000, 33}, {3, 50, 70}, {2, 3, 127, 129}, {4096, 1}} {
		for _, edge := range []int{1, 7, 64, 128} {
			for _, k := range []int{1, 8, 20000} {
				layout, err := distro.NewLayout(shape, edge)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := audit.Cut(shape, edge, k); err != nil || got != layout.Shape(k) {
					t.Errorf("%v in chunks of %d, %d of each: %+v, %v, want %+v", shape, edge, k, got, err, layout.Shape(k))
				}
			}
		}
	}
	for _, bad := range []struct {
		shape   []int64
		edge, k int
	}{{[]int64{0}, 64, 8}, {[]int64{4, -1}, 64, 8}, {[]int64{1 << 30, 1 << 30}, 64, 8}, {[]int64{4}, 0, 8}, {[]int64{4}, 129, 8}, {[]int64{4}, 64, 0}} {
		if s, err := audit.Cut(bad.shape, bad.edge, bad.k); !errors.Is(err, audit.ErrInvalid) {
			t.Errorf("%+v: %+v, %v", bad, s, err)
		}
	}
}
