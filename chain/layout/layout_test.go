package layout

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
)

const second = 1000

// testState returns a state with entries in every list and values in every field.
func testState(t testing.TB) coordinator.State {
	t.Helper()
	id := func(i int) (id coordinator.ClientID) {
		for j := range id {
			id[j] = byte(16*i + j%16)
		}
		return id
	}
	genesis := coordinator.Genesis{
		RunID: "layout", Host: id(1), MainAuthority: id(2), JoinAuthority: id(3), Permissioned: true,
		Config: coordinator.Config{
			WarmupTime: 30 * second, CooldownTime: 20 * second, EpochTime: 400 * second, MaxRoundTrainTime: 50 * second, RoundWitnessTime: 5 * second,
			WaitingForMembersExtraTime: 3 * second, GlobalBatchSizeWarmupTokens: 1 << 40, GlobalBatchSizeStart: 3, GlobalBatchSizeEnd: 1000,
			TotalSteps: 1000, InitMinClients: 4, MinClients: 3, WitnessNodes: 2, VerificationPercent: 20, ProbationSteps: 8, EjectionEpochs: 3,
		},
		Model: coordinator.Model{MaxSeqLen: 16, ColdStartWarmupSteps: 2, Definition: []byte("definition"), Checkpoint: coordinator.Checkpoint{
			Kind: coordinator.CheckpointGcs, Repo: "bucket", Revision: "prefix",
		}},
		Progress: coordinator.Progress{Epoch: 5, Step: 40, DataIndex: 1 << 33},
	}
	s, err := genesis.State()
	if err != nil {
		t.Fatal(err)
	}
	nonce := uint64(1)
	apply := func(from coordinator.ClientID, a coordinator.Action) {
		t.Helper()
		nonce++
		if err := s.Apply(from, nonce, a); err != nil {
			t.Fatalf("%T: %v", a, err)
		}
	}
	apply(id(3), coordinator.Authorize{Grantee: id(4), Allowed: true})
	apply(id(3), coordinator.Authorize{Grantee: id(5), Allowed: true})
	apply(id(4), coordinator.SetDelegates{Number: 1, Delegates: []coordinator.ClientID{id(6), id(7), id(8), id(9)}})
	secret := id(20)
	committed := sha256.Sum256(secret[:])
	for i := 4; i <= 9; i++ {
		apply(id(i), coordinator.Join{Epoch: 5, Commitment: committed})
	}
	apply(id(9), coordinator.Withdraw{Client: id(9)})
	s.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointP2PGcs, Origin: coordinator.CheckpointGcs, Repo: "bucket", Revision: "prefix", Digest: id(10), Step: 38}
	s.Earlier = []coordinator.Recorded{{Step: 10, Digest: id(11)}, {Step: 20, Digest: id(12)}}
	s.Uploads = []coordinator.Upload{{Reporter: id(4), Step: 20, Digest: id(12), Tries: 2, Since: 33, Place: coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "other", Revision: "v"}}}
	s.RollbackGaps = []coordinator.RollbackGap{{First: 3, Last: 5}, {First: 11, Last: 20}}
	s.OriginStep = 1
	now := uint64(100 * second)
	for ; s.RunState != coordinator.RoundTrain; now += 2 * second {
		s.Tick(now, [32]byte{byte(now)})
		for i := 4; i <= 7 && s.RunState == coordinator.Warmup; i++ {
			_ = s.Apply(id(i), nonce+uint64(i), coordinator.Ready{Epoch: 5, Reveal: id(20), Next: id(21)}) // the second time it is refused
		}
	}
	nonce += 100
	for step := uint32(40); step <= 42; step++ {
		for ; s.Progress.Step < step || s.RunState != coordinator.RoundTrain; now += 2 * second {
			s.Tick(now, [32]byte{byte(now)})
		}
		round := s.CurrentRound()
		for _, member := range round.ElectedWitnesses(s.Config) {
			w := coordinator.WitnessRound{Step: step, CommitmentsRoot: id(13), Replica: id(14), Claim: coordinator.Claim{Loss: 0x0102, Speed: 0x03040506}}
			w.Participants.Add(round.Seed, round.Members[0][:])
			apply(round.Members[member], w)
		}
	}
	round := s.CurrentRound()
	round.Challenge = id(16)
	s.Trials = []coordinator.Trial{
		{Slot: 3, Accused: id(4), Accuser: id(5), Step: 40, Since: 41, SinceTime: 70 * second, Fault: coordinator.FaultSilent, Jurors: 4, Guilty: 1, Innocent: 2},
		{Slot: 1, Accused: id(7), Accuser: id(8), Step: 41, Since: 42, SinceTime: 71 * second, Fault: coordinator.FaultResult},
	}
	apply(id(2), coordinator.Eject{Client: id(8)})
	apply(id(3), coordinator.Authorize{Grantee: id(5), Allowed: false})
	apply(id(2), coordinator.SetPaused{Paused: true})
	s.Epoch.Exited = []coordinator.Client{{ID: id(15), State: coordinator.Dropped, Nonce: 9, ExitedHeight: 3, OptimizerSince: 7, HoldsModel: true, ProbationUntil: 41}}
	s.Pending = append(s.Pending, coordinator.Client{ID: id(6), ProbationUntil: 42, Waited: true})
	s.Epoch.Clients = slices.DeleteFunc(s.Epoch.Clients, func(c coordinator.Client) bool { return c.ID == id(6) })
	s.Epoch.Commit = coordinator.Recorded{Step: 41, Digest: id(10)}
	s.Epoch.Clients[0].HoldsEarlier, s.Epoch.Clients[0].Report = 41, s.Epoch.Commit
	s.Epoch.Exited[0].Report = coordinator.Recorded{Step: 40, Digest: id(17)}
	s.Epoch.Clients[0].Complaints, s.Epoch.Clients[0].HeldOut, s.Epoch.Clients[0].Juror, s.Epoch.Clients[0].Voted = 2, 0x0506, 8, 8
	s.Epoch.Exited[0].Juror, s.Authority.Ejections[0].Reason = 8, coordinator.AccusedWrongly
	round.Warming[0] = 5
	s.Config.RetryLost = true
	round.Retries = []coordinator.Stretch{{Start: 0, End: 1, Tries: 7}}
	s.Progress.DataIndex--
	s.Lost = []coordinator.Stretch{{Start: 2, End: 5, Tries: 1}, {Start: 1, End: 2}}
	s.Marks = []coordinator.Mark{{Step: 0, Data: 0}, {Step: 41, Data: 3}}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestGolden checks that the bytes of a state do not change, because accounts on the chain have
// this layout. The golden file contains the position and value of every nonzero byte.
func TestGolden(t *testing.T) {
	s := testState(t)
	golden.Compare(t, "account.txt", dump(Append(nil, &s)))
}

// dump writes 16 bytes per line, without lines of zeros.
func dump(account []byte) string {
	var out bytes.Buffer
	at := 0
	for line := range slices.Chunk(account, 16) {
		if !bytes.Equal(line, make([]byte, len(line))) {
			fmt.Fprintf(&out, "%6d %x\n", at, line)
		}
		at += len(line)
	}
	return out.String()
}

func TestDecodeReadsWhatAppendWrites(t *testing.T) {
	s := testState(t)
	before := s.AppendTo(nil)
	account := Append([]byte("before"), &s)
	if !bytes.Equal(before, s.AppendTo(nil)) {
		t.Error("Append changes the state")
	}
	read, err := decode(account[len("before"):])
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, read.AppendTo(nil)) {
		t.Errorf("read %s, wrote %s", read.String(), s.String())
	}
	if Version != before[0] {
		t.Errorf("the account has the fields of version %d, but a state has version %d: update state.h and this package", Version, before[0])
	}
}

func TestDecodeRefuses(t *testing.T) {
	s := testState(t)
	good := Append(nil, &s)
	if _, err := decode(good[:Size-1]); err == nil {
		t.Error("a short account is accepted")
	}
	if _, err := decode(make([]byte, Size)); err == nil {
		t.Error("an account of zeros is accepted")
	}
	for name, at := range map[string]int{
		"magic": 0, "version": 8, "run state": 12, "pending pause": 13, "run id": 17, "progress": 152 + 3, "earlier": 172, "uploads": 176, "rollback gaps": 180,
		"verification": 184 + 84, "rounds": 5752 + 24, "ready": 5752 + 29, "trials": 1776, "slot": 1784 + 80, "members": 5752 + 73,
		"lost stretches": 2496 + 1, "marks": 2500 + 1, "retries": 5752 + 77912 + 44 + 1, "retry lost": 184 + 86,
	} {
		bad := slices.Clone(good)
		bad[at] = 0xff
		if _, err := decode(bad); err == nil {
			t.Errorf("%s of 255 is accepted", name)
		}
	}
}

// FuzzDecode checks that an accepted account has a valid state.
func FuzzDecode(f *testing.F) {
	f.Add(uint32(0), []byte{1})
	f.Add(uint32(1784), bytes.Repeat([]byte{0xff}, 40))
	var base []byte
	fuzztest.Run(f, func(t *testing.T, at uint32, changed []byte) {
		if base == nil {
			s := testState(t)
			base = Append(nil, &s)
		}
		account := slices.Clone(base)
		copy(account[at%Size:], changed)
		s, err := decode(account)
		if err != nil {
			return
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	})
}
