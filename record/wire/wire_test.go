package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
)

// walk is the ID of the run in these tests.
var walk = HostedRun([]byte("walk"))

func testKey() identity.Key {
	return identity.FromSeed([identity.SeedSize]byte{1, 2, 3})
}

// allActions returns one action of each kind, without zero fields.
func allActions() map[string]coordinator.Action {
	filter := bloom.Filter{}
	filter.Add(7, []byte("item"))
	other := filter
	other.Add(7, []byte("other"))
	return map[string]coordinator.Action{
		"join":   coordinator.Join{Epoch: 3, Commitment: [32]byte{5}},
		"ready":  coordinator.Ready{Epoch: 4, Reveal: [32]byte{6}, Next: [32]byte{7}},
		"return": coordinator.Return{Epoch: 5},
		"witness": coordinator.WitnessRound{
			Step: 5, Participants: filter, Commitments: other, CommitmentsRoot: [32]byte{1}, Replica: [32]byte{2}, Reveal: [32]byte{3},
			Claim: coordinator.Claim{Loss: 0x0405, Speed: 0x06070809},
		},
		"health":       coordinator.HealthCheck{Step: 6, Clients: []coordinator.ClientID{{1}, {2}}},
		"report":       coordinator.ReportCheckpoint{Step: 7, Digest: [32]byte{3}},
		"report-claim": coordinator.ReportCheckpoint{Step: 7, Digest: [32]byte{3}, HeldOut: 0x0405},
		"rejoin":       coordinator.Join{Epoch: 3, Commitment: [32]byte{5}, Holds: [32]byte{4}},
		"join-named":   coordinator.Join{Epoch: 3, Commitment: [32]byte{5}, Name: "Ada"},
		"rejoin-named": coordinator.Join{Epoch: 3, Commitment: [32]byte{5}, Holds: [32]byte{4}, Name: strings.Repeat("n", coordinator.MaxMemberName)},
		"upload": coordinator.ReportUpload{
			Step: 7, Digest: [32]byte{3},
			Place: coordinator.Location{Kind: coordinator.CheckpointHub, Repo: "org/run", Revision: strings.Repeat("0123456789", 4)},
		},
		"withdraw":     coordinator.Withdraw{Client: coordinator.ClientID{9}},
		"pause":        coordinator.SetPaused{Paused: true},
		"resume":       coordinator.SetPaused{},
		"config":       testUpdate(),
		"grant":        coordinator.Authorize{Grantee: coordinator.ClientID{8}, Allowed: true},
		"delegate":     coordinator.SetDelegates{Number: 3, Delegates: []coordinator.ClientID{{4}, {5}}},
		"eject":        coordinator.Eject{Client: coordinator.ClientID{6}},
		"equivocation": testEquivocation(),
		"close":        coordinator.Close{},
		"accuse":       coordinator.Accuse{Step: 5, Client: coordinator.ClientID{6}, Fault: coordinator.FaultSilent},
		"offer":        coordinator.Offer{Step: 5, Level: 80},
		"vote":         coordinator.Vote{Step: 5, Client: coordinator.ClientID{6}, Guilty: true},
	}
}

func testUpdate() coordinator.UpdateConfig {
	return coordinator.UpdateConfig{
		Config: coordinator.Config{
			WarmupTime: 1, CooldownTime: 2, EpochTime: 300, MaxRoundTrainTime: 4, RoundWitnessTime: 5,
			WaitingForMembersExtraTime: 6, GlobalBatchSizeWarmupTokens: 7, GlobalBatchSizeStart: 8,
			GlobalBatchSizeEnd: 9, TotalSteps: 10, InitMinClients: 11, MinClients: 10, WitnessNodes: 9,
			VerificationPercent: 8, ProbationSteps: 13, EjectionEpochs: 14, SharesBySpeed: true,
		},
		Model: coordinator.Model{
			MaxSeqLen: 16, ColdStartWarmupSteps: 5,
			Checkpoint: coordinator.Checkpoint{
				Kind: coordinator.CheckpointP2P, Repo: "base", Revision: "main", Digest: [32]byte{7}, Step: 3,
				Origin: coordinator.CheckpointHub,
			},
			Definition: []byte("llama"),
		},
	}
}

func testAnnouncement() ResultAnnouncement {
	return ResultAnnouncement{
		Run: walk, Step: 9, Batch: assign.BatchID{Start: 16, End: 24},
		Blob: [32]byte{4}, Size: 1234, Replica: [32]byte{5},
		Start: Head{Index: 70, Step: 9, Hash: [32]byte{6}, Signature: [64]byte{7}},
	}
}

// keeps compares raw with a golden file that must never change, because old messages must remain
// readable.
func keeps(t *testing.T, name string, raw []byte) {
	t.Helper()
	golden.Compare(t, name+".golden", hex.EncodeToString(raw)+"\n")
}

func TestActionsKeepTheirBytes(t *testing.T) {
	for name, action := range allActions() {
		t.Run(name, func(t *testing.T) {
			raw := SignAction(testKey(), walk, 77, action)
			keeps(t, "action-v2-"+name, raw)
			opened, err := OpenAction(raw, walk)
			if err != nil {
				t.Fatal(err)
			}
			want := SignedAction{From: testKey().ID(), Nonce: 77, Action: action, Raw: raw}
			if diff := cmp.Diff(want, opened); diff != "" {
				t.Errorf("opened (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOnlyChainsAdmit checks that no server accepts an Admit, because no server can verify a grant.
func TestOnlyChainsAdmit(t *testing.T) {
	for _, action := range []coordinator.Action{
		coordinator.Admit{Grant: coordinator.ClientID{9}, Client: coordinator.ClientID(testKey().ID()), Allowed: true},
		coordinator.Admit{Grant: coordinator.ClientID{9}, Client: coordinator.ClientID{4}},
	} {
		raw := SignAction(testKey(), walk, 77, action)
		if opened, err := OpenAction(raw, walk); !errors.Is(err, ErrSignature) || opened.Action != nil {
			t.Errorf("%+v: opened %+v, error %v", action, opened, err)
		}
		if decoded, err := DecodeAction(AppendAction(nil, action)); err != nil || decoded != action {
			t.Errorf("%+v: decoded %+v, error %v", action, decoded, err)
		}
	}
}

func TestAnnouncementKeepsItsBytes(t *testing.T) {
	raw := SignAnnouncement(testKey(), testAnnouncement())
	keeps(t, "announcement-v2", raw)
	from, opened, err := OpenAnnouncement(raw, walk)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(testAnnouncement(), opened); diff != "" || from != testKey().ID() {
		t.Errorf("opened of %s (-want +got):\n%s", from, diff)
	}
}

func TestLargestMessagesFit(t *testing.T) {
	update := testUpdate()
	update.Model.Checkpoint.Repo = strings.Repeat("r", coordinator.MaxRepoLength-len(update.Model.Checkpoint.Revision))
	update.Model.Definition = make([]byte, coordinator.MaxDefinitionSize)
	if raw := SignAction(testKey(), walk, 1, update); len(raw) != MaxActionSize {
		t.Errorf("largest action has %d bytes, bound %d", len(raw), MaxActionSize)
	} else if _, err := OpenAction(raw, walk); err != nil {
		t.Error(err)
	}
	check := coordinator.HealthCheck{Clients: make([]coordinator.ClientID, coordinator.MaxClients)}
	if raw := SignAction(testKey(), walk, 1, check); len(raw) > MaxActionSize {
		t.Errorf("largest health check has %d bytes, bound %d", len(raw), MaxActionSize)
	} else if _, err := OpenAction(raw, walk); err != nil {
		t.Error(err)
	}
	a := testAnnouncement()
	if raw := SignAnnouncement(testKey(), a); len(raw) != MaxAnnouncementSize {
		t.Errorf("largest announcement has %d bytes, bound %d", len(raw), MaxAnnouncementSize)
	} else if _, _, err := OpenAnnouncement(raw, walk); err != nil {
		t.Error(err)
	}
}

func TestBadActionsAreRefused(t *testing.T) {
	good := SignAction(testKey(), walk, 77, coordinator.Join{Epoch: 3})
	alter := func(change func(raw []byte) []byte) []byte { return change(bytes.Clone(good)) }
	sign := func(body ...byte) []byte {
		return seal(testKey(), domainAction, append(le.AppendUint64(bytes.Clone(walk[:]), 77), body...))
	}
	valid, invalid := testUpdate(), testUpdate()
	invalid.Config.MinClients = 0
	tests := []struct {
		name string
		raw  []byte
		want error
	}{
		{"nothing", nil, errSize},
		{"only a prefix", good[:prefixSize], errSize},
		{"too large", make([]byte, MaxActionSize+1), errSize},
		{"other version", alter(func(b []byte) []byte { b[0] = 1; return b }), errVersion},
		{"other sender", alter(func(b []byte) []byte { b[1] ^= 1; return b }), ErrSignature},
		{"other signature", alter(func(b []byte) []byte { b[40] ^= 1; return b }), ErrSignature},
		{"other body", alter(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }), ErrSignature},
		{"cut", good[:len(good)-1], ErrSignature},
		{"longer", append(bytes.Clone(good), 0), ErrSignature},
		{"signed as an announcement", seal(testKey(), domainAnnouncement, good[prefixSize:]), ErrSignature},
		{"other run", SignAction(testKey(), HostedRun([]byte("other")), 77, coordinator.Join{}), ErrRun},
		{"no kind", sign(), errMalformed},
		{"unknown kind", sign(99), errMalformed},
		{"cut field", sign(kindJoin, 1, 2, 3), errMalformed},
		{"bytes after the end", sign(append([]byte{kindReady}, make([]byte, 69)...)...), errMalformed},
		{"join holding nothing", sign(append([]byte{kindJoin, 1, 0, 0, 0}, make([]byte, 64)...)...), errMalformed},
		{"join holding half", sign(append([]byte{kindJoin, 1, 0, 0, 0}, make([]byte, 48)...)...), errMalformed},
		{"join without a commitment", sign(kindJoin, 1, 0, 0, 0), errMalformed},
		{"join with an empty name", sign(append([]byte{kindJoin, 1, 0, 0, 0}, make([]byte, 65)...)...), errMalformed},
		{"join with a name that is too long", sign(append(append([]byte{kindJoin, 1, 0, 0, 0}, make([]byte, 64)...), append([]byte{33}, make([]byte, 33)...)...)...), errMalformed},
		{"join with a name that is cut", sign(append(append([]byte{kindJoin, 1, 0, 0, 0}, make([]byte, 64)...), 3, 'A', 'd')...), errMalformed},
		{"join with a name and more", sign(append(append([]byte{kindJoin, 1, 0, 0, 0}, make([]byte, 64)...), 1, 'A', 0)...), errMalformed},
		{"join with a name in place of the digest", sign(append(append([]byte{kindJoin, 1, 0, 0, 0}, make([]byte, 32)...), 3, 'A', 'd', 'a')...), errMalformed},
		{"ready without a commitment", sign(append([]byte{kindReady, 1, 0, 0, 0}, make([]byte, 32)...)...), errMalformed},
		{"report with an empty claim", sign(append([]byte{kindReportCheckpoint}, make([]byte, 38)...)...), errMalformed},
		{"report with a claim that is cut", sign(append([]byte{kindReportCheckpoint}, make([]byte, 37)...)...), errMalformed},
		{"report with a claim and more", sign(append(append([]byte{kindReportCheckpoint}, make([]byte, 36)...), 1, 0, 0)...), errMalformed},
		{"upload without a place", sign(append([]byte{kindReportUpload}, make([]byte, 36)...)...), errMalformed},
		{"upload to a name that is too long", sign(append(append([]byte{kindReportUpload}, make([]byte, 37)...), append([]byte{193}, make([]byte, 194)...)...)...), errMalformed},
		{"upload to a place that is cut", sign(append(append([]byte{kindReportUpload}, make([]byte, 37)...), 1, 'b', 2, 'r')...), errMalformed},
		{"no truth value", sign(kindSetPaused, 2), errMalformed},
		{"health check without a length", sign(kindHealthCheck, 0, 0, 0, 0, 1), errMalformed},
		{"health check with too few", sign(kindHealthCheck, 0, 0, 0, 0, 1, 0, 7), errMalformed},
		{"health check with too many", sign(append([]byte{kindHealthCheck, 0, 0, 0, 0, 1, 1}, make([]byte, 32*250)...)...), errMalformed},
		{"delegates: too many", sign(append([]byte{kindSetDelegates, 1, 0, 0, 0, 5, 0}, make([]byte, 32*5)...)...), errMalformed},
		{"grant cut", sign(append([]byte{kindAuthorize}, make([]byte, 32)...)...), errMalformed},
		{"close with a body", sign(kindClose, 0), errMalformed},
		{"no configuration", sign(kindUpdateConfig), errMalformed},
		{"invalid configuration", sign(append([]byte{kindUpdateConfig}, invalid.AppendTo(nil)...)...), coordinator.ErrInvalidConfig},
		{"configuration and more", sign(append(valid.AppendTo([]byte{kindUpdateConfig}), 0)...), errMalformed},
		{"run that is cut", seal(testKey(), domainAction, walk[:31]), errMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := OpenAction(test.raw, walk); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestBadAnnouncementsAreRefused(t *testing.T) {
	alter := func(change func(*ResultAnnouncement)) []byte {
		a := testAnnouncement()
		change(&a)
		return SignAnnouncement(testKey(), a)
	}
	whole, none := alter(func(*ResultAnnouncement) {}), alter(func(a *ResultAnnouncement) { a.Start = Head{} })
	tests := []struct {
		name string
		raw  []byte
		want error
	}{
		{"nothing", nil, errSize},
		{"too large", make([]byte, MaxAnnouncementSize+1), errSize},
		{"other run", alter(func(a *ResultAnnouncement) { a.Run = HostedRun([]byte("other")) }), ErrRun},
		{"empty batch", alter(func(a *ResultAnnouncement) { a.Batch.End = a.Batch.Start }), errMalformed},
		{"reversed batch", alter(func(a *ResultAnnouncement) { a.Batch.End = 1 }), errMalformed},
		{"empty result", alter(func(a *ResultAnnouncement) { a.Size = 0 }), errMalformed},
		{"head of no records", alter(func(a *ResultAnnouncement) { a.Start.Index = 0 }), errMalformed},
		{"head of no round", alter(func(a *ResultAnnouncement) { a.Step = 0 }), errMalformed},
		{"head that is cut", seal(testKey(), domainAnnouncement, whole[prefixSize:len(whole)-1]), errMalformed},
		{"neither a head nor none", seal(testKey(), domainAnnouncement, append(none[prefixSize:len(none)-1:len(none)-1], 2)), errMalformed},
		{"more than no head", seal(testKey(), domainAnnouncement, append(none[prefixSize:len(none):len(none)], 0)), errMalformed},
		{"an action", SignAction(testKey(), walk, 1, coordinator.Join{}), ErrSignature},
		{"short", seal(testKey(), domainAnnouncement, walk[:]), errMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, _, err := OpenAnnouncement(test.raw, walk); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestMistakesOfTheCallerPanic(t *testing.T) {
	tests := map[string]func(){
		"unknown action":        func() { SignAction(testKey(), walk, 1, nil) },
		"invalid configuration": func() { SignAction(testKey(), walk, 1, coordinator.UpdateConfig{}) },
		"many delegates": func() {
			SignAction(testKey(), walk, 1, coordinator.SetDelegates{Delegates: make([]coordinator.ClientID, 5)})
		},
		"long name": func() {
			SignAction(testKey(), walk, 1, coordinator.Join{Name: strings.Repeat("n", coordinator.MaxMemberName+1)})
		},
		"large check": func() {
			SignAction(testKey(), walk, 1, coordinator.HealthCheck{Clients: make([]coordinator.ClientID, 257)})
		},
	}
	for name, mistake := range tests {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			mistake()
		})
	}
}

// TestLongUploadIsLeftToTheRules encodes and decodes a report whose names are too long together. The
// coordinator refuses it, with the same error as the program on a chain.
func TestLongUploadIsLeftToTheRules(t *testing.T) {
	long := coordinator.ReportUpload{Place: coordinator.Location{Repo: strings.Repeat("r", coordinator.MaxRepoLength), Revision: "v"}}
	if got, err := DecodeAction(AppendAction(nil, long)); err != nil || got != coordinator.Action(long) {
		t.Errorf("got %v, %v; want nil error and coordinator.Action(long)", got, err)
	}
}

func TestAnnouncementRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Uint64Range(0, 1<<63).Draw(t, "start")
		a := ResultAnnouncement{
			Run:   [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "run")),
			Step:  rapid.Uint32().Draw(t, "step"),
			Batch: assign.BatchID{Start: start, End: start + rapid.Uint64Range(1, 1<<62).Draw(t, "length")},
			Blob:  [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "blob")),
			Size:  rapid.Uint32Range(1, 1<<32-1).Draw(t, "size"),
		}
		if rapid.Bool().Draw(t, "with a head") {
			a.Step = max(a.Step, 1)
			a.Start = Head{Index: rapid.Uint64Min(1).Draw(t, "index"), Step: a.Step, Hash: [32]byte{1}, Signature: [64]byte{2}}
		}
		_, got, err := OpenAnnouncement(SignAnnouncement(testKey(), a), a.Run)
		if err != nil || got != a {
			t.Fatalf("got %+v, %v; want nil error and %+v", got, err, a)
		}
	})
}

// FuzzActionBody signs arbitrary bodies. It checks that an accepted action has only one encoding.
func FuzzActionBody(f *testing.F) {
	for _, action := range allActions() {
		f.Add(SignAction(testKey(), walk, 77, action)[prefixSize:])
	}
	fuzztest.Run(f, func(t *testing.T, body []byte) {
		raw := seal(testKey(), domainAction, body)
		opened, err := OpenAction(raw, walk)
		if err != nil {
			return
		}
		if again := SignAction(testKey(), walk, opened.Nonce, opened.Action); !bytes.Equal(again, raw) {
			t.Fatal("a second encoding of the same action was accepted")
		}
	})
}

// FuzzOpen opens bytes without a valid signature.
func FuzzOpen(f *testing.F) {
	f.Add(SignAction(testKey(), walk, 77, coordinator.Join{}))
	f.Add(SignAnnouncement(testKey(), testAnnouncement()))
	fuzztest.Run(f, func(_ *testing.T, raw []byte) {
		_, _ = OpenAction(raw, walk)
		_, _, _ = OpenAnnouncement(raw, walk)
	})
}

func FuzzAnnouncementBody(f *testing.F) {
	f.Add(SignAnnouncement(testKey(), testAnnouncement())[prefixSize:])
	fuzztest.Run(f, func(t *testing.T, body []byte) {
		raw := seal(testKey(), domainAnnouncement, body)
		_, opened, err := OpenAnnouncement(raw, walk)
		if err != nil {
			return
		}
		if again := SignAnnouncement(testKey(), opened); !bytes.Equal(again, raw) {
			t.Fatal("a second encoding of the same announcement was accepted")
		}
	})
}
