package main

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/proof/bench/momenta"
	"github.com/psyche-go/psyche/record/config"
)

// TestVote checks that eleven twentieths of all members except the two parties eject the accused,
// two steps after the audit. Attackers vote for acquittal.
func TestVote(t *testing.T) {
	for _, test := range []struct {
		honest, attackers int
		ejects            bool
	}{{11, 5, true}, {9, 7, true}, {8, 8, false}, {3, 1, true}, {1, 1, false}, {32, 14, true}} {
		m := &members{command: &runCommand{}}
		for i := range test.honest + test.attackers {
			one := &member{number: i}
			if i < test.attackers {
				one.honest = &momenta.State{}
			}
			m.members = append(m.members, one)
		}
		accused := m.members[0]
		m.trials = []trial{{step: 7, audited: 6, accused: accused, accuser: m.members[test.attackers]}}
		if gone := m.vote(8); gone != nil || len(m.trials) != 1 {
			t.Errorf("%+v: %v before the jury has voted", test, gone)
		}
		gone := m.vote(9)
		if ejects := len(gone) == 1 && gone[0].Member == 0 && gone[0].Audited == 6 && gone[0].Gone == 9; ejects != test.ejects || len(m.trials) != 0 {
			t.Errorf("%+v: ejected %v, trials %v", test, gone, m.trials)
		}
		if left := len(m.members); left != test.honest+test.attackers-len(gone) {
			t.Errorf("%+v: %d members are left", test, left)
		}
	}
}

// TestMembersAreAudited trains members with two attackers, with each attack and in both modes. It
// checks that no member is ejected without audits, and that only attackers are ejected with audits.
func TestMembersAreAudited(t *testing.T) {
	if err := torch.Load(torch.Options{Threads: 1}); errors.Is(err, torch.ErrNoLibrary) && os.Getenv("PSYCHE_REQUIRE_TORCH") == "" {
		t.Skip(err)
	}
	text := randomText(t)
	for attack, attackers := range map[string]int{"sign-flip": 2, "noise": 2, "negated-copy": 2, "injection": 1} { // injection: only one is found in these few steps
		for _, percent := range []int{0, 50} {
			c := &runCommand{
				Seed: 2, Model: "model-small.json", Clients: 8, Attackers: 2, Attack: attack, Verification: percent,
				Clip: 1, Momentum: 0.99, TopK: 8, Chunk: 64, OneBit: attack != "noise", ApplyLag: 1, OneReplica: true,
			}
			l, err := newMembers(t.Context(), c, optionsOf(t, c), text)
			if err != nil {
				t.Fatal(err)
			}
			found := map[int]bool{}
			for step := uint32(1); step <= 22 && (percent == 0 || len(found) < attackers) && (percent > 0 || step <= 3); step++ {
				s, err := l.step(t.Context(), step, assign.BatchID{Start: uint64(step) * 8, End: uint64(step+1) * 8})
				if err != nil {
					t.Fatalf("%s, step %d: %v", attack, step, err)
				}
				for _, e := range s.ejected {
					if found[e.Member] = true; e.Member >= 2 || e.First > e.Audited || e.Gone < e.Audited+3 || e.Gone > e.Audited+3+auditRounds {
						t.Errorf("%s: ejected %+v", attack, e)
					}
				}
			}
			if want := min(percent, attackers); len(found) != want {
				t.Errorf("%s, %d %% verify: %d of the attackers are ejected, want %d", attack, percent, len(found), want)
			}
			if err := errors.Join(l.finish(t.Context()), l.close()); err != nil {
				t.Errorf("%s: %v", attack, err)
			}
		}
	}
}

// TestStuffedSums checks that members of local steps that share a replica train, and that a member
// that falsifies its residual is detected in the same round.
func TestStuffedSums(t *testing.T) {
	if err := torch.Load(torch.Options{Threads: 1}); errors.Is(err, torch.ErrNoLibrary) && os.Getenv("PSYCHE_REQUIRE_TORCH") == "" {
		t.Skip(err)
	}
	c := &runCommand{
		Seed: 2, Model: "model-small.json", Clients: 8, Attackers: 2, Attack: "stuffed", Verification: 50, Optimizer: "local",
		InnerSteps: 2, Clip: 1, TopK: 25, Chunk: 32, ValueBits: 2, OuterLR: 1, ErrorDecay: 0.95, Beta1: 0.9, Beta2: 0.99, ApplyLag: 1, OneReplica: true,
	}
	l, err := newMembers(t.Context(), c, optionsOf(t, c), randomText(t))
	if err != nil {
		t.Fatal(err)
	}
	m := l.(*members)
	for step := uint32(1); step <= 11; step++ {
		if _, err := l.step(t.Context(), step, assign.BatchID{Start: uint64(step) * 8, End: uint64(step+1) * 8}); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		for _, one := range m.court.rounds[len(m.court.rounds)-1] {
			if cheats := step == 10 && one.target.honest != nil; one.guilty != cheats {
				t.Errorf("step %d, member %d: guilty %v, want %v", step, one.target.number, one.guilty, cheats)
			}
		}
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}

// optionsOf returns the options for the trainer of a run.
func optionsOf(t *testing.T, c *runCommand) train.Options {
	t.Helper()
	configuration, err := os.ReadFile(c.Model)
	if err != nil {
		t.Fatal(err)
	}
	o := train.Options{
		Model:      checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: configuration}}},
		LRSchedule: config.LRSchedule{Constant: &config.ConstantLR{BaseLR: 1e-3}},
		MicroBatch: 8, Threads: 1, RunID: "test",
	}
	if o.Model.Tensors, err = model.Init(configuration, 1); err != nil {
		t.Fatal(err)
	}
	return o
}

// randomText returns 300 random sequences of 16 bytes.
func randomText(t *testing.T) *local.Folder {
	t.Helper()
	random, tokens, folder := rand.New(rand.NewPCG(1, 1)), []byte(nil), t.TempDir()
	for range 300 * 17 {
		tokens = binary.LittleEndian.AppendUint16(tokens, uint16(random.IntN(256)))
	}
	if err := os.WriteFile(filepath.Join(folder, "text.bin"), tokens, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := local.Open(folder, local.Options{SeqLen: 16, TokenSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = text.Close() })
	return text
}
