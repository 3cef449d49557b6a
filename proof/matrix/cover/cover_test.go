package cover

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/golden"
)

// plan has so many levels in each feature.
func plan(levels ...int) (p Plan) {
	for i, n := range levels {
		f := Feature{Name: fmt.Sprint(i)}
		for l := range n {
			f.Levels = append(f.Levels, fmt.Sprint(l))
		}
		p.Features = append(p.Features, f)
	}
	return p
}

// possible reports by trying all rows whether some row without a forbidden combination has a pair.
func possible(p Plan, want pair) bool {
	levels := make([]int, len(p.Features))
	var try func(feature int) bool
	try = func(feature int) bool {
		if feature == len(levels) {
			for i := range p.Forbidden {
				if p.has(levels, i) {
					return false
				}
			}
			return levels[want[0].Feature] == want[0].Level && levels[want[1].Feature] == want[1].Level
		}
		for level := range p.Features[feature].Levels {
			levels[feature] = level
			if try(feature + 1) {
				return true
			}
		}
		return false
	}
	return try(0)
}

// TestRows draws small plans: every pair that can be is in a row, no row has a forbidden combination
// but its own, each of those has its row, and the same seed gives the same rows.
func TestRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := plan(rapid.SliceOfN(rapid.IntRange(1, 4), 2, 5).Draw(t, "levels")...)
		for range rapid.IntRange(0, 3).Draw(t, "forbidden") {
			a := rapid.IntRange(0, len(p.Features)-2).Draw(t, "a")
			b := rapid.IntRange(a+1, len(p.Features)-1).Draw(t, "b")
			p.Forbidden = append(p.Forbidden, Combination{
				{a, rapid.IntRange(0, len(p.Features[a].Levels)-1).Draw(t, "i")},
				{b, rapid.IntRange(0, len(p.Features[b].Levels)-1).Draw(t, "j")},
			})
		}
		seed := rapid.Uint64().Draw(t, "seed")
		rows, err := p.Rows(seed)
		if err != nil {
			t.Skip(err)
		}
		again, err := p.Rows(seed)
		if err != nil || !reflect.DeepEqual(rows, again) {
			t.Fatalf("the same seed gave %v and %v, %v", rows, again, err)
		}
		met, refused := map[pair]bool{}, map[int]int{}
		for _, r := range rows {
			for i := range p.Forbidden {
				if p.has(r.Levels, i) != (i == r.Forbidden) {
					t.Fatalf("row %v and forbidden combination %v", r, p.Forbidden[i])
				}
			}
			if r.Forbidden >= 0 {
				refused[r.Forbidden]++
				continue
			}
			for pair := range pairs(r.Levels) {
				met[pair] = true
			}
		}
		for a := range p.Features {
			for b := a + 1; b < len(p.Features); b++ {
				for i := range p.Features[a].Levels {
					for j := range p.Features[b].Levels {
						if want := (pair{{a, i}, {b, j}}); met[want] != possible(p, want) {
							t.Fatalf("pair %v is in a row: %v", want, met[want])
						}
					}
				}
			}
		}
		for i := range p.Forbidden {
			if refused[i] != 1 {
				t.Fatalf("%d rows of forbidden combination %d", refused[i], i)
			}
		}
	})
}

// TestFewRows bounds the rows of a plan of known size: its two largest features need 16.
func TestFewRows(t *testing.T) {
	rows, err := plan(2, 4, 4, 3, 2, 3, 2, 3, 2, 2, 3, 2, 3, 3, 3, 2, 2, 2, 2, 2).Rows(1)
	if err != nil || len(rows) < 16 || len(rows) > 24 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

func TestOtherSeedsOtherRows(t *testing.T) {
	p := plan(3, 3, 3, 3)
	first, _ := p.Rows(1)
	second, _ := p.Rows(2)
	if reflect.DeepEqual(first, second) {
		t.Error("two seeds gave the same rows")
	}
}

func TestPlansThatCannotBe(t *testing.T) {
	two := plan(2, 2)
	cases := map[string]Plan{
		"one feature":            plan(2),
		"no levels":              plan(2, 0),
		"one choice":             {two.Features, []Combination{{{0, 1}}}},
		"unknown feature":        {two.Features, []Combination{{{0, 1}, {1, 2}}}},
		"two equal combinations": {two.Features, []Combination{{{0, 1}, {1, 0}}, {{0, 1}, {1, 0}}}},
	}
	for name, p := range cases {
		_, err := p.Rows(1)
		golden.Message(t, name, err)
	}
}
