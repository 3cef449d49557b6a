package main

import (
	"math"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
)

// TestUpperBound compares with the closed form for no events, and with a value from the literature.
func TestUpperBound(t *testing.T) {
	for _, n := range []int{10, 2000} {
		if got, want := upper(0, n), 1-math.Pow(0.05, 1/float64(n)); math.Abs(got-want) > 1e-9 {
			t.Errorf("none of %d: %v, want %v", n, got, want)
		}
	}
	if got := upper(1, 20); math.Abs(got-0.2161) > 1e-3 {
		t.Errorf("1 of 20: %v, want 0.216", got)
	}
}

// TestRowsAreJudgedLikeReports checks that a row, which has only the logged part of a report, gets
// the same verdict as the report.
func TestRowsAreJudgedLikeReports(t *testing.T) {
	l := audit.Limits{Error: 0.1, Chunk: 0.2, Stray: 1, Worst: 0.5}
	for _, c := range []struct {
		errors []float64
		all    float64
		fault  audit.Fault
		want   bool
	}{
		{[]float64{0.1, 0.1}, 0.1, 0, true},
		{[]float64{0.1, 0.1}, 0.11, 0, false},
		{[]float64{0.5, 0.2}, 0.1, 0, true},
		{[]float64{0.51, 0.2}, 0.1, 0, false},
		{[]float64{0.3, 0.3}, 0.1, 0, false},
		{[]float64{0.1}, 0.1, audit.FaultPath, false},
	} {
		report := audit.Report{Fault: c.fault, Error: c.all}
		for _, e := range c.errors {
			report.Chunks = append(report.Chunks, audit.ChunkReport{Error: e})
		}
		r := row{Error: c.all, Top: c.errors, Fault: int(c.fault)}
		if got, judged := r.passes(l), report.Judge(l) == audit.Passed; got != c.want || judged != c.want {
			t.Errorf("%+v: row %v, report %v", c, got, judged)
		}
	}
}

// TestTablesOfTheLogs checks that the tables of the logs can be printed, and that they confirm the
// documentation: no honest trainer was stopped, and every attack on all chunks was always detected.
func TestTablesOfTheLogs(t *testing.T) {
	rows, err := readRows("logs")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	printTables(&out, rows)
	if !strings.Contains(out.String(), "sign-flip") {
		t.Error("no attack in the tables")
	}
	for _, r := range rows {
		switch r.Kind {
		case "honest":
			if l, ok := r.limits(); ok && !r.passes(l) {
				t.Errorf("an honest trainer was stopped: %+v", r)
			}
		case "sign-flip", "noise of the same size", "twice the gradient", "old gradient", "half the batch", "another batch",
			"no gradient", "copy", "negated copy", "momentum turned round, once":
			if l, ok := r.limits(); ok && r.passes(l) {
				t.Errorf("an attack was not detected: %+v", r)
			}
		}
	}
}

func TestNoLogs(t *testing.T) {
	if _, err := readRows(t.TempDir()); err == nil {
		t.Error("no error")
	}
}
