package exchange

import (
	"slices"
	"testing"
)

// TestNeededBlobsStay checks that a blob is kept as long as any owner needs it, even if other
// owners drop it.
func TestNeededBlobsStay(t *testing.T) {
	a, b, c := [32]byte{1}, [32]byte{2}, [32]byte{3}
	var dropped [][32]byte
	models, rounds := [][32]byte{a}, [][32]byte{b, a}
	needs := func(hashes *[][32]byte) func(need func(hash [32]byte)) {
		return func(need func(hash [32]byte)) {
			for _, hash := range *hashes {
				need(hash)
			}
		}
	}
	blobs := NewBlobs(func(hash [32]byte) { dropped = append(dropped, hash) })
	blobs.NeededBy(needs(&models))
	blobs.NeededBy(needs(&rounds))
	for i, test := range []struct {
		change func()
		drop   [][32]byte
		want   [][32]byte
	}{
		{func() {}, nil, nil},
		{func() {}, [][32]byte{a, c, b}, [][32]byte{c}},
		{func() { models = nil }, [][32]byte{a}, nil},
		{func() { rounds = rounds[:1] }, [][32]byte{b, a}, [][32]byte{a}},
		{func() { rounds = nil }, [][32]byte{b, a}, [][32]byte{b, a}},
	} {
		test.change()
		dropped = nil
		if blobs.Drop(test.drop...); !slices.Equal(dropped, test.want) {
			t.Errorf("%d: dropped %x, want %x", i, dropped, test.want)
		}
	}
}
