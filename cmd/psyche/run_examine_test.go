package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/evidence"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// TestRunExamine checks that an accusation is shown with its jury, votes and verdict. A number that
// is not an entry, and a file that is not evidence, are refused.
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
	accusations := map[string]int{} // entries of the accusations with this outcome
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
	if err := os.WriteFile(file, append(evidence.File{}.Encode(), 0), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{accusations["guilty"], votes} {
		want := map[bool]int{true: exitUnverified, false: exitUsage}[at == accusations["guilty"]]
		if code, output := examined("--entry", fmt.Sprint(at), "--exhibit", file, "--model", "x"); code != want {
			t.Errorf("entry %d with no exhibit: exit code %d, want %d:\n%s", at, code, want, output)
		}
	}
}

// TestExamineHost checks a client's evidence against a server: two contradicting heads are proof, one
// head is not.
func TestExamineHost(t *testing.T) {
	settings, err := config.LoadState("../../configs/smoke/state.toml")
	if err != nil {
		t.Fatal(err)
	}
	host := identity.FromSeed([32]byte{1})
	state, err := settings.CoordinatorState(coordinator.ClientID(host.ID()))
	if err != nil {
		t.Fatal(err)
	}
	state.DrawCommitment = [32]byte{4}
	genesis, err := follow.NewGenesis(host, [32]byte{3}, &state)
	if err != nil {
		t.Fatal(err)
	}
	a := wire.Head{Index: 9, Step: 3, Hash: [32]byte{1}}.Sign(host, genesis.Run())
	b := wire.Head{Index: 9, Step: 3, Hash: [32]byte{2}}.Sign(host, genesis.Run())
	path := filepath.Join(t.TempDir(), "evidence-1.json")
	for _, test := range []struct {
		heads []wire.Head
		args  []string
		code  int
		want  string
	}{
		{[]wire.Head{a, b}, nil, exitOK, "proven          the server signed two logs"},
		{[]wire.Head{a}, nil, exitUnverified, "no two signed heads contradict each other"},
		{[]wire.Head{a, b}, []string{"--entry", "1"}, exitUsage, "need a log"},
		{nil, nil, exitUnverified, "not the genesis of a run"},
	} {
		fault := follow.HostFault{Reason: "two heads", Evidence: follow.Evidence{Genesis: genesis.Raw, Heads: test.heads}}
		if test.heads == nil {
			fault.Evidence.Genesis = nil
		}
		if err := os.WriteFile(path, fault.JSON(), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if code := run(t.Context(), append([]string{"run", "examine", path}, test.args...), console{&out, &out}); code != test.code || !strings.Contains(out.String(), test.want) {
			t.Errorf("%d heads, %v: exit code %d, want %d:\n%s", len(test.heads), test.args, code, test.code, out.String())
		}
	}
}
