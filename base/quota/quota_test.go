package quota

import (
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"pgregory.net/rapid"
)

// TestBounds makes random calls and compares the counts with a list of all taken sizes.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		each, all := rapid.Int64Range(0, 100).Draw(t, "each"), rapid.Int64Range(0, 300).Draw(t, "all")
		q := New(each, all)
		type part struct {
			member identity.ID
			size   int
		}
		var taken []part
		for range rapid.IntRange(0, 60).Draw(t, "calls") {
			if len(taken) > 0 && rapid.Bool().Draw(t, "free") {
				i := rapid.IntRange(0, len(taken)-1).Draw(t, "which")
				q.Free(taken[i].member, taken[i].size)
				taken = append(taken[:i], taken[i+1:]...)
				continue
			}
			p := part{identity.ID{byte(rapid.IntRange(0, 4).Draw(t, "member"))}, rapid.IntRange(-1, 60).Draw(t, "size")}
			own, total := int64(p.size), int64(p.size)
			for _, other := range taken {
				total += int64(other.size)
				if other.member == p.member {
					own += int64(other.size)
				}
			}
			fits := p.size >= 0 && own <= each && total <= all
			if got := q.Take(p.member, p.size); got != fits {
				t.Fatalf("Take of %d is %t; the member would have %d of %d bytes, all %d of %d", p.size, got, own, each, total, all)
			}
			if fits {
				taken = append(taken, p)
			}
		}
		for _, p := range taken {
			q.Free(p.member, p.size)
		}
		if q.Used() != 0 || len(q.of) != 0 {
			t.Errorf("%d bytes of %d members are left", q.Used(), len(q.of))
		}
	})
}
