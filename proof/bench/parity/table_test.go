package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/proof/bench/rawlog"
)

func writeLog(t *testing.T, folder, name, settings string, test float64) {
	t.Helper()
	text := fmt.Sprintf(`{"Name":%q,"Tokens":1000,"SeqLen":10,%s}
{"Step":5,"Tokens":500,"Loss":3,"Bytes":80}
{"Step":10,"Tokens":1000,"Loss":2,"Bytes":100,"Validation":9,"Test":%g}
`, name, settings, test)
	writeText(t, folder, name, text)
}

func writeText(t *testing.T, folder, name, text string) {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+rawlog.Suffix), packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRows compares two seeds of DisTrO with the better of two AdamW settings.
func TestRows(t *testing.T) {
	folder := t.TempDir()
	for seed, loss := range map[int]float64{1: 2, 2: 2.2} {
		writeLog(t, folder, fmt.Sprint("adamw-", seed), fmt.Sprintf(`"Optimizer":"adamw","LR":0.1,"Seed":%d`, seed), loss)
		writeLog(t, folder, fmt.Sprint("worse-", seed), fmt.Sprintf(`"Optimizer":"adamw","LR":0.2,"Seed":%d`, seed), loss+1)
		writeLog(t, folder, fmt.Sprint("distro-", seed), fmt.Sprintf(`"Optimizer":"distro","TopK":8,"OneBit":true,"Clients":3,"Seed":%d`, seed), loss*1.05)
	}
	writeLog(t, folder, "tune-x", `"Optimizer":"distro","TopK":8,"OneBit":true,"Clients":3,"Seed":3`, 1)
	groups, err := (&tableCommand{Logs: folder}).groups()
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) != 4 {
		t.Fatalf("%d groups, want 4", len(groups))
	}
	for _, g := range groups {
		row := g.row(groups)
		if strings.Contains(row, "distro-1") && !strings.Contains(row, "| 1, 2 | **2.2050** (2.1000, 2.3100) | +5.0 % | 90 |") {
			t.Error(row)
		}
		if strings.Contains(row, "tune-x") && !strings.Contains(row, "| 3 | 9.0000 |  | 90 |") {
			t.Error(row)
		}
	}
}

func TestPlanSkipsFinishedRows(t *testing.T) {
	folder := t.TempDir()
	plan := filepath.Join(folder, "plan.txt")
	if err := os.WriteFile(plan, []byte("# remark\na --lr 1e-3 # done\n\nb --lr 2e-3 --topk 4\nc --lr 3e-3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	writeLog(t, folder, "a", `"Seed":1`, 1)
	command := planCommand{File: plan, Logs: folder}
	run, err := command.next(nil)
	if err != nil || run == nil || run.Name != "b" || run.LR != 2e-3 || run.TopK != 4 || run.Logs != folder {
		t.Fatalf("next is %+v, error %v", run, err)
	}
	if run, err = command.next(map[string]bool{"b": true}); err != nil || run == nil || run.Name != "c" {
		t.Errorf("next is %+v, error %v", run, err)
	}
}

func TestThePlanParses(t *testing.T) {
	folder := t.TempDir()
	done := map[string]bool{}
	for {
		run, err := (&planCommand{File: "plan.txt", Logs: folder}).next(done)
		if err != nil {
			t.Fatal(err)
		}
		if run == nil {
			break
		}
		done[run.Name] = true
	}
	if len(done) < 10 {
		t.Errorf("%d runs", len(done))
	}
}

// TestAttackedRows compares runs under attack with runs of the honest members alone, seed by seed.
func TestAttackedRows(t *testing.T) {
	folder := t.TempDir()
	const shared = `"Optimizer":"distro","OneBit":true,"OneReplica":true,"TopK":8,`
	for seed, loss := range map[int]float64{1: 2, 2: 3} {
		writeLog(t, folder, fmt.Sprint("eleven-", seed), fmt.Sprintf(shared+`"Clients":11,"Seed":%d`, seed), loss)
		writeLog(t, folder, fmt.Sprint("sixteen-", seed), fmt.Sprintf(shared+`"Clients":16,"Seed":%d`, seed), loss*0.99)
		writeLog(t, folder, fmt.Sprint("flip-", seed), fmt.Sprintf(shared+`"Clients":16,"Attackers":5,"Attack":"sign-flip","Seed":%d`, seed), loss*1.5)
	}
	audited := fmt.Sprintf(`{"Name":"audited","Tokens":1000,"SeqLen":10,%s"Clients":16,"Attackers":5,"Attack":"sign-flip","Verification":10,"Seed":1,"TopK":11}
{"Step":5,"Ejected":[{"Member":1,"First":1,"Audited":2,"Gone":5}]}
{"Step":10,"Tokens":1000,"Test":2.02,"Ejected":[{"Member":0,"First":1,"Audited":5,"Gone":8},{"Member":3,"First":1,"Audited":6,"Gone":9}]}
`, shared)
	writeText(t, folder, "audited", audited)
	groups, err := (&tableCommand{Logs: folder}).groups()
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, g := range groups {
		rows = append(rows, g.attackedRow(groups))
	}
	for _, want := range []string{
		"| 11 | none | none | 1, 2 | **2.500** (2.000, 3.000) | – | – |",
		"| 16 | none | none | 1, 2 | **2.475** (1.980, 2.970) | **-1.0 %** (-1.0, -1.0) | – |",
		"| 16 | 5 × sign-flip | none | 1, 2 | **3.750** (3.000, 4.500) | **+50.0 %** (50.0, 50.0) | – |",
		"| 16 | 5 × sign-flip | 10 %, k = 11 | 1 | **2.020** (2.020) | **+1.0 %** (1.0) | 3 of 5: 7, 8 |",
	} {
		if !slices.Contains(rows, want) {
			t.Errorf("no row %q in:\n%s", want, strings.Join(rows, "\n"))
		}
	}
}
