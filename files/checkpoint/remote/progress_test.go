package remote

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestInPartsIsBounded checks that progress is reported at most 51 times, whatever moves and
// however often the progress goes back. The reports are in order, include the end, and never exceed
// the total.
func TestInPartsIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.Int64Range(1, 4<<40).Draw(t, "all")
		var got []int64
		progress := InParts(func(done, of int64) {
			if of != all {
				t.Fatalf("%d of %d, want of %d", done, of, all)
			}
			got = append(got, done)
		})
		for _, done := range rapid.SliceOfN(rapid.Int64Range(0, all+1), 0, 300).Draw(t, "moves") {
			progress(done, all)
		}
		progress(all, all)
		if len(got) > 51 || !slices.IsSorted(got) || got[len(got)-1] != all {
			t.Fatalf("progress %v of %d", got, all)
		}
	})
	InParts(func(done, all int64) { t.Errorf("progress %d of %d", done, all) })(0, 0)
}
