package cover

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Feature is a feature of rows, with its levels.
type Feature struct {
	Name   string
	Levels []string
}

// Choice is a level of a feature, both as indices.
type Choice struct{ Feature, Level int }

// Combination is a forbidden combination of at least two levels of different features.
type Combination []Choice

// Plan is the input of Rows.
type Plan struct {
	Features  []Feature
	Forbidden []Combination
}

// Row selects one level of each feature. Levels has the index of the level for each feature.
type Row struct {
	Levels    []int
	Forbidden int // index of its forbidden combination; -1: none
}

// open stands for a level that is not chosen yet.
const open = -1

// candidates is the number of rows made for each row that is kept: the one with the most new pairs.
const candidates = 40

// pair is two choices of different features, the lower feature first.
type pair [2]Choice

// maker makes the rows of a plan.
type maker struct {
	Plan
	random *rand.Rand
	wanted map[pair]bool
	order  []pair // of wanted, so that the result does not depend on the order of a map
}

// Rows returns the rows that cover a plan: first the rows without a forbidden combination, then one
// row for each forbidden combination. It returns an error if a combination cannot be the only one
// in a row.
func (p Plan) Rows(seed uint64) ([]Row, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	m := &maker{Plan: p, random: rand.New(rand.NewPCG(seed, 1)), wanted: map[pair]bool{}}
	m.want()
	var rows []Row
	for len(m.wanted) > 0 {
		best, maximum := []int(nil), 0
		for range candidates {
			levels := m.row()
			if n := m.gain(levels); n > maximum {
				best, maximum = levels, n
			}
		}
		for pair := range pairs(best) {
			delete(m.wanted, pair)
		}
		m.order = slices.DeleteFunc(m.order, func(p pair) bool { return !m.wanted[p] })
		rows = append(rows, Row{Levels: best, Forbidden: -1})
	}
	for i, combination := range p.Forbidden {
		levels := m.empty()
		for _, c := range combination {
			levels[c.Feature] = c.Level
		}
		if !m.complete(levels, i) {
			return nil, fmt.Errorf("forbidden combination %d implies a second combination", i+1)
		}
		rows = append(rows, Row{Levels: levels, Forbidden: i})
	}
	return rows, nil
}

// check returns an error if a plan is invalid.
func (p Plan) check() error {
	if len(p.Features) < 2 {
		return fmt.Errorf("%d features, want at least 2", len(p.Features))
	}
	for _, f := range p.Features {
		if len(f.Levels) == 0 {
			return fmt.Errorf("feature %s has no levels", f.Name)
		}
	}
	for i, combination := range p.Forbidden {
		if len(combination) < 2 {
			return fmt.Errorf("forbidden combination %d has %d choices, want at least 2", i+1, len(combination))
		}
		for _, c := range combination {
			if c.Feature < 0 || c.Feature >= len(p.Features) || c.Level < 0 || c.Level >= len(p.Features[c.Feature].Levels) {
				return fmt.Errorf("forbidden combination %d names an unknown feature or level, %v", i+1, c)
			}
		}
	}
	return nil
}

// want registers every pair that a row can have.
func (m *maker) want() {
	for a, first := range m.Features {
		for b := a + 1; b < len(m.Features); b++ {
			for i := range first.Levels {
				for j := range m.Features[b].Levels {
					levels := m.empty()
					levels[a], levels[b] = i, j
					if m.complete(levels, -1) {
						p := pair{{a, i}, {b, j}}
						m.wanted[p], m.order = true, append(m.order, p)
					}
				}
			}
		}
	}
}

func (m *maker) empty() []int {
	levels := make([]int, len(m.Features))
	for i := range levels {
		levels[i] = open
	}
	return levels
}

// row makes a row around a wanted pair. The other features, in any order, get the level that covers
// the most wanted pairs.
func (m *maker) row() []int {
	levels := m.empty()
	begin := m.order[m.random.IntN(len(m.order))]
	for _, c := range begin {
		levels[c.Feature] = c.Level
	}
	for _, feature := range m.random.Perm(len(levels)) {
		if levels[feature] != open {
			continue
		}
		best, maximum := open, -1
		for _, level := range m.random.Perm(len(m.Features[feature].Levels)) {
			levels[feature] = level
			if !m.complete(slices.Clone(levels), -1) {
				continue
			}
			if n := m.gain(levels); n > maximum {
				best, maximum = level, n
			}
		}
		levels[feature] = best
	}
	return levels
}

// gain returns the number of wanted pairs in a row, which may have open levels.
func (m *maker) gain(levels []int) (n int) {
	for p := range pairs(levels) {
		if m.wanted[p] {
			n++
		}
	}
	return n
}

// pairs iterates over the pairs of a row.
func pairs(levels []int) func(yield func(pair) bool) {
	return func(yield func(pair) bool) {
		for a, i := range levels {
			for b := a + 1; b < len(levels); b++ {
				if i != open && levels[b] != open && !yield(pair{{a, i}, {b, levels[b]}}) {
					return
				}
			}
		}
	}
}

// complete chooses the open levels, so that the row contains no forbidden combination, except
// possibly the one with index allowed. It reports whether this is possible.
func (m *maker) complete(levels []int, allowed int) bool {
	for i := range m.Forbidden {
		if i != allowed && m.has(levels, i) {
			return false
		}
	}
	feature := slices.Index(levels, open)
	if feature < 0 {
		return true
	}
	for _, level := range m.random.Perm(len(m.Features[feature].Levels)) {
		levels[feature] = level
		if m.complete(levels, allowed) {
			return true
		}
	}
	levels[feature] = open
	return false
}

// has reports whether a row has a forbidden combination.
func (p Plan) has(levels []int, combination int) bool {
	return !slices.ContainsFunc(p.Forbidden[combination], func(c Choice) bool { return levels[c.Feature] != c.Level })
}
