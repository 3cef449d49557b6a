package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/exhibit"
	"github.com/psyche-go/psyche/record/follow"
)

// TestRunExamine: an accusation is told with its jury, votes and verdict; what is no entry, or no exhibit, is
// refused.
func TestRunExamine(t *testing.T) {
	log := filepath.Join(t.TempDir(), "judged.journal")
	if err := dashtest.Write(log, dashtest.Options{RunID: "judged", Members: 12, Rounds: 40, RoundsPerEpoch: 20, Audits: 25, Cheat: 4, Slander: 7}); err != nil {
		t.Fatal(err)
	}
	examined := func(args ...string) (int, string) {
		var out, errs strings.Builder
		code := run(t.Context(), append([]string{"run", "examine", log}, args...), console{&out, &errs})
		return code, out.String() + errs.String()
	}
	cheat, slanderer := dashtest.Key(4).ID(), dashtest.Key(7).ID()
	accusations := map[string]int{} // entries of those that ended so
	votes := 0
	entry := 0
	_, _, err := server.Replay(log, func(r follow.Record, _ *coordinator.State) error {
		switch a := r.Action.Action.(type) {
		case coordinator.Accuse:
			accusations[map[bool]string{true: "guilty", false: "innocent"}[a.Client == coordinator.ClientID(cheat)]] = entry
		case coordinator.Vote:
			votes = entry
		}
		entry++
		return nil
	})
	if err != nil || len(accusations) != 2 {
		t.Fatalf("accusations %v, %v", accusations, err)
	}
	for verdict, want := range map[string]string{
		"guilty":   fmt.Sprintf("a jury found it guilty; %s is ejected until epoch", cheat),
		"innocent": fmt.Sprintf("; %s is ejected until epoch", slanderer),
	} {
		code, output := examined("--entry", fmt.Sprint(accusations[verdict]))
		if code != exitOK || !strings.Contains(output, want) || !strings.Contains(output, "  "+verdict+"\n") || !strings.Contains(output, "valid\naccused ") {
			t.Errorf("%s: exit code %d:\n%s", verdict, code, output)
		}
	}
	if code, output := examined("--entry", fmt.Sprint(votes)); code != exitOK || !strings.Contains(output, "vote            ") {
		t.Errorf("a vote: exit code %d:\n%s", code, output)
	}
	if code, output := examined("--entry", "0"); code != exitOK || !strings.Contains(output, "genesis by") || strings.Contains(output, "signature") {
		t.Errorf("the genesis: exit code %d:\n%s", code, output)
	}
	if code, output := examined("--entry", fmt.Sprint(entry)); code != exitUsage {
		t.Errorf("no entry: exit code %d:\n%s", code, output)
	} else {
		printed(t, code, "entry after the last", output)
	}
	if code, output := examined("--entry", "0", "--model", "x"); code != exitUsage {
		t.Errorf("a model alone: exit code %d:\n%s", code, output)
	} else {
		printed(t, code, "model alone", output)
	}
	file := filepath.Join(t.TempDir(), "exhibit.psye")
	if err := os.WriteFile(file, append(exhibit.Exhibit{}.Encode(), 0), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{accusations["guilty"], votes} {
		want := map[bool]int{true: exitUnverified, false: exitUsage}[at == accusations["guilty"]]
		if code, output := examined("--entry", fmt.Sprint(at), "--exhibit", file, "--model", "x"); code != want {
			t.Errorf("entry %d with no exhibit: exit code %d, want %d:\n%s", at, code, want, output)
		}
	}
}
