package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeLog(t *testing.T, folder, name, settings string, test float64) {
	t.Helper()
	text := fmt.Sprintf(`{"Name":%q,"Tokens":1000,"SeqLen":10,%s}
{"Step":5,"Tokens":500,"Loss":3,"Bytes":80}
{"Step":10,"Tokens":1000,"Loss":2,"Bytes":100,"Validation":9,"Test":%g}
`, name, settings, test)
	if err := os.WriteFile(filepath.Join(folder, name+logSuffix), []byte(text), 0o600); err != nil {
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

func TestPlanSkipsWhatIsDone(t *testing.T) {
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
