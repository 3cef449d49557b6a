package main

import (
	"reflect"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/proof/matrix/cover"
)

// TestRowsOfASeed checks that all levels of every two features are together in a row that runs,
// unless the combination is refused, and that each refusal has a row. The same seed must give the
// same rows.
func TestRowsOfASeed(t *testing.T) {
	for seed := range uint64(3) {
		rows, err := rowsOf(seed)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := rowsOf(seed); err != nil || !reflect.DeepEqual(rows, again) {
			t.Fatalf("seed %d gave two plans, %v", seed, err)
		}
		if len(rows) > 44 {
			t.Errorf("seed %d has %d rows", seed, len(rows))
		}
		refused := 0
		for _, r := range rows {
			if r.refused != "" {
				refused++
			}
		}
		if refused != len(refusals) {
			t.Errorf("seed %d has %d rows that are refused, want %d", seed, refused, len(refusals))
		}
		for i, a := range features {
			for _, b := range features[i+1:] {
				checkPairs(t, rows, a, b)
			}
		}
	}
}

// checkPairs checks that all levels of two features meet.
func checkPairs(t *testing.T, rows []row, a, b cover.Feature) {
	t.Helper()
	for _, one := range a.Levels {
		for _, other := range b.Levels {
			meet := slices.ContainsFunc(rows, func(r row) bool {
				return r.refused == "" && r.has(a.Name, one) && r.has(b.Name, other)
			})
			never := slices.ContainsFunc(refusals, func(f refusal) bool {
				return len(f.levels) == 2 && f.levels[a.Name] == one && f.levels[b.Name] == other
			})
			if meet == never {
				t.Errorf("%s=%s and %s=%s meet in a row that runs: %v", a.Name, one, b.Name, other, meet)
			}
		}
	}
}

// TestRowAgain parses the printed description of a row.
func TestRowAgain(t *testing.T) {
	rows, err := rowsOf(7)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		again, err := parseRow(r.String())
		if err != nil || !reflect.DeepEqual(again.levels, r.levels) || again.refused != r.refused {
			t.Errorf("row %d was parsed as %v, %v", r.number, again, err)
		}
	}
	for _, text := range []string{"lags=2", "lag=3", ""} {
		_, err := parseRow(text)
		golden.Message(t, text, err)
	}
}
