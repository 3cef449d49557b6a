package experts

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRouterChoosesTheBest compares with sorting, the slow and obvious method.
func TestRouterChoosesTheBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, groups := rapid.IntRange(2, 5).Draw(t, "size"), rapid.IntRange(1, 5).Draw(t, "groups")
		top := rapid.IntRange(1, groups).Draw(t, "top groups")
		r := Router{size * groups, groups, top, rapid.IntRange(1, top*size).Draw(t, "chosen"), rapid.Bool().Draw(t, "pairs")}
		// Few different values, because ties are the difficult case.
		scores := rapid.SliceOfN(rapid.Map(rapid.IntRange(-3, 3), func(v int) float32 { return float32(v) }), r.Experts, r.Experts).Draw(t, "scores")
		got := make([]int64, r.Chosen)
		r.Choose(scores, nil, got)

		best := func(score func(i int) float32, n, count int) []int {
			order := make([]int, n)
			for i := range order {
				order[i] = i
			}
			slices.SortStableFunc(order, func(a, b int) int {
				switch {
				case score(a) > score(b):
					return -1
				case score(a) < score(b):
					return 1
				}
				return 0
			})
			return order[:count]
		}
		allowed := best(func(g int) float32 {
			group := slices.Sorted(slices.Values(scores[g*size : (g+1)*size]))
			if r.Pairs {
				return group[size-1] + group[size-2]
			}
			return group[size-1]
		}, groups, top)
		want := best(func(i int) float32 {
			if !slices.Contains(allowed, i/size) {
				return float32(math.Inf(-1))
			}
			return scores[i]
		}, r.Experts, r.Chosen)
		for i := range want {
			if got[i] != int64(want[i]) {
				t.Fatalf("%+v of %v chose %v, want %v", r, scores, got, want)
			}
		}
	})
}

// TestRouterWithoutNumbers checks that scores that are not numbers cause no crash and select no
// expert twice. The model is useless, though.
func TestRouterWithoutNumbers(t *testing.T) {
	nan := float32(math.NaN())
	for _, pairs := range []bool{false, true} {
		r := Router{Experts: 6, Groups: 3, TopGroups: 2, Chosen: 4, Pairs: pairs}
		got := make([]int64, 8)
		r.Choose([]float32{nan, nan, nan, nan, nan, nan, nan, 1, nan, 2, nan, nan}, nil, got)
		for _, choice := range [][]int64{got[:4], got[4:]} {
			if sorted := slices.Sorted(slices.Values(choice)); len(slices.Compact(sorted)) != 4 || sorted[0] < 0 || sorted[3] > 5 {
				t.Errorf("chose %v", choice)
			}
		}
		if got[4] != 3 || got[5] != 1 {
			t.Errorf("chose %v before numbers", got[4:])
		}
	}
}

func TestCorrectionCountsForTheChoiceOnly(t *testing.T) {
	r := Router{Experts: 3, Groups: 1, TopGroups: 1, Chosen: 1}
	scores, got := []float32{0.5, 0.4, 0.1}, make([]int64, 1)
	r.Choose(scores, []float32{0, 0, 1}, got)
	if got[0] != 2 || scores[2] != 0.1 {
		t.Errorf("chose %d, scores are %v", got[0], scores)
	}
}

func TestDispatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		experts, chosen := rapid.IntRange(1, 6).Draw(t, "experts"), rapid.IntRange(1, 3).Draw(t, "chosen")
		tokens := rapid.IntRange(1, 8).Draw(t, "tokens")
		choices := rapid.SliceOfN(rapid.Int64Range(0, int64(experts-1)), tokens*chosen, tokens*chosen).Draw(t, "choices")
		d := newDispatch(choices, chosen, experts)
		var owner []int64 // expert of each place
		for expert, count := range d.counts {
			owner = append(owner, slices.Repeat([]int64{int64(expert)}, int(count))...)
		}
		for i, choice := range choices {
			if owner[d.back[i]] != choice || d.rows[d.back[i]] != int64(i/chosen) {
				t.Fatalf("choice %d of %v does not match %+v", i, choices, d)
			}
		}
		sum := float32(0)
		for _, load := range Loads(choices, 1, experts) {
			sum += load
		}
		if math.Abs(float64(sum)-float64(experts)) > 1e-4 {
			t.Fatalf("loads add up to %v", sum)
		}
	})
}
