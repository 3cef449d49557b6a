package programtest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
)

func TestRefusalsOfPeers(t *testing.T) {
	on := []string{"peer", "member", "run"}
	long := strings.Repeat("a", backend.MaxAddrLength)
	announced := func(s *scene) { s.must(announcement("a"), on...) }
	raw := func(b ...byte) []byte { return append([]byte{transaction.RunAnnounce}, b...) }
	testRefusals(t, []refusal{
		{"nothing", program.ErrInvalidInstructionData, nil, raw(), on},
		{"nine", program.ErrInvalidInstructionData, nil, announcement("a", "b", "c", "d", "e", "f", "g", "h", "i"), on},
		{"of no bytes", program.ErrInvalidInstructionData, nil, announcement(""), on},
		{"too long", program.ErrInvalidInstructionData, nil, announcement(long + "a"), on},
		{"too much", program.ErrInvalidInstructionData, nil, announcement(long, long, long, long, "a"), on},
		{"with a blank", program.ErrInvalidInstructionData, nil, announcement("a b"), on},
		{"with a delete", program.ErrInvalidInstructionData, nil, announcement("a\x7f"), on},
		{"an address is missing", program.ErrInvalidInstructionData, nil, raw(1), on},
		{"half a length", program.ErrInvalidInstructionData, nil, raw(1, 1), on},
		{"an address is cut", program.ErrInvalidInstructionData, nil, raw(1, 2, 0, 'a'), on},
		{"bytes after the end", program.ErrInvalidInstructionData, nil, raw(1, 1, 0, 'a', 'b'), on},
		{"of another owner", program.ErrInvalidSeeds, nil, announcement("a"), []string{"peer", "other", "run"}},
		{"for another run", program.ErrInvalidSeeds, nil, announcement("a"), []string{"peer", "member", "fresh"}},
		{"for no run", program.ErrInvalidArgument, nil, announcement("a"), []string{"peer", "member", "empty"}},
		{"for a key", program.ErrInvalidArgument, nil, announcement("a"), []string{"peer", "member", "other"}},
		{"for another program's", program.ErrInvalidArgument, func(s *scene) { s.account("run").Owner = clientID(9) }, announcement("a"), on},
		{"for a cut run", program.ErrInvalidArgument, func(s *scene) { s.resize("run", layout.AccountSize-1) }, announcement("a"), on},
		{"for a freed run", program.ErrInvalidArgument, func(s *scene) { s.poke("run", 0, []byte(layout.FreedMagic)...) }, announcement("a"), on},
		{"for a newer run", program.ErrInvalidArgument, func(s *scene) { s.poke("run", 8, 2) }, announcement("a"), on},
		{"too small", program.ErrInvalidAccountData, func(s *scene) { s.resize("peer", layout.PeerSize-1) }, announcement("a"), on},
		{"too large", program.ErrInvalidAccountData, func(s *scene) { s.resize("peer", layout.PeerSize+1) }, announcement("a"), on},
		{"newer", program.ErrOtherVersion, func(s *scene) { announced(s); s.poke("peer", 8, 2) }, announcement("a"), on},
		{"forgets nothing", program.ErrUninitializedAccount, nil, []byte{transaction.RunForget}, []string{"peer", "member", "spill"}},
		{"forgets another's", program.ErrIncorrectAuthority, announced, []byte{transaction.RunForget}, []string{"peer", "other", "spill"}},
		{"forgets with data", program.ErrInvalidInstructionData, announced, []byte{transaction.RunForget, 1}, []string{"peer", "member", "spill"}},
		{"forgets a run", program.ErrInvalidAccountData, nil, []byte{transaction.RunForget}, []string{"run", "main", "spill"}},
		{"forgets what is tiny", program.ErrInvalidAccountData, func(s *scene) { s.resize("peer", 79) }, []byte{transaction.RunForget}, []string{"peer", "member", "spill"}},
	})
	s := newScene(t, loadProgram(t))
	s.must(announcement(long, long, long, long), on...)
	s.must(announcement("a", "b", "c", "d", "e", "f", "g", "!~"), on...)
	s.poke("peer", 8, 2)
	s.resize("peer", 80) // the account has a different version; its owner gets the rent back
	s.must([]byte{transaction.RunForget}, "peer", "member", "member")
}

// TestRevived funds accounts again in the transaction that freed them. Only their owners can use
// them, and can free them again.
func TestRevived(t *testing.T) {
	s := newScene(t, loadProgram(t))
	s.must(announcement("a"), "peer", "member", "run")
	s.must([]byte{transaction.RunFree}, "fresh", "main", "main")
	s.must([]byte{transaction.RunForget}, "peer", "member", "member")
	s.account("fresh").Lamports, s.account("peer").Lamports = 100, 100
	for name, owner := range map[string]int{"fresh": 16, "peer": 48} {
		left := bytes.Clone(s.account(name).Data)
		clear(left[:8])
		clear(left[owner : owner+32])
		if !bytes.Equal(left, make([]byte, len(left))) {
			t.Errorf("the account %s still has data", name)
		}
	}
	for _, x := range instructions {
		for _, revived := range []string{"fresh", "peer"} {
			accounts := append([]string{revived}, x.accounts[1:]...)
			want := error(program.ErrInvalidAccountData)
			switch {
			case x.data[0] == transaction.RunInit && revived == "fresh", x.data[0] == transaction.RunGrant && revived == "peer":
				want = program.ErrAccountAlreadyInitialized
			case x.data[0] == transaction.RunMigrate && revived == "fresh":
				want = coordinator.ErrWrongState
			case x.data[0] == transaction.RunMigrate, x.data[0] == transaction.RunFree && revived == "peer", x.data[0] == transaction.RunForget && revived == "fresh":
				want = program.ErrIncorrectAuthority
			case x.data[0] == transaction.RunFree || x.data[0] == transaction.RunForget:
				continue
			}
			t.Run(instructionNames[x.data[0]]+" "+revived, func(t *testing.T) {
				s.t = t
				s.refused(want, x.data, accounts...)
			})
		}
	}
	s.t = t
	s.refused(program.ErrIncorrectAuthority, []byte{transaction.RunFree}, "fresh", "other", "spill")
	s.refused(program.ErrIncorrectAuthority, []byte{transaction.RunForget}, "peer", "other", "spill")
	before := s.account("spill").Lamports
	s.must([]byte{transaction.RunFree}, "fresh", "main", "spill")
	s.must([]byte{transaction.RunForget}, "peer", "member", "spill")
	if got := s.account("spill").Lamports - before; got != 200 {
		t.Errorf("%d lamports come back, want 200", got)
	}
}

// TestFreeOfAnotherVersion checks that the owner of an account that the program cannot read gets
// its rent back.
func TestFreeOfAnotherVersion(t *testing.T) {
	for _, size := range []int{48, 104, 1000, layout.AccountSize + 10_000} {
		s := newScene(t, loadProgram(t))
		s.poke("run", 8, 2)
		s.poke("run", 12, byte(coordinator.Finished), 1)
		s.resize("run", size)
		s.must([]byte{transaction.RunFree}, "run", "main", "main")
		if data := s.account("run").Data; !bytes.Equal(data[48:], make([]byte, size-48)) || s.account("run").Lamports != 0 {
			t.Errorf("an account of %d bytes keeps data or lamports", size)
		}
	}
}

// TestDraws checks each slot in which a tick that needs a draw can be sent.
func TestDraws(t *testing.T) {
	arm := func() *scene { // a run that a tick would pause
		s := newScene(t, loadProgram(t))
		s.must(act(1, coordinator.SetPaused{}), "run", "main")
		s.must([]byte{transaction.RunTick}, "run")
		s.must(act(2, coordinator.SetPaused{Paused: true}), "run", "main")
		s.must([]byte{transaction.RunTick}, "run")
		if x := s.read("run"); x.Armed != 1000 || x.State.RunState != coordinator.WaitingForMembers || x.Sequence != 4 {
			t.Fatalf("the first tick: %+v", x.Summary)
		}
		return s
	}
	for _, test := range []struct {
		slots  uint64
		passes bool
		armed  uint64
	}{
		{0, false, 1000}, {1, false, 1000}, {2, false, 1000}, {3, true, 0}, {4, true, 0}, {399, true, 0}, {400, true, 0}, {401, false, 1401}, {5000, false, 6000},
	} {
		s := arm()
		pass(&s.sysvars, test.slots, func() bool { return false })
		result := s.must([]byte{transaction.RunTick}, "run")
		x := s.read("run")
		if passed := x.State.RunState == coordinator.Paused; passed != test.passes || passed != (len(result.Data) > 0) || x.Armed != test.armed {
			t.Errorf("a tick %d slots later: %+v", test.slots, x.Summary)
		}
		if !test.passes {
			continue
		}
		e, err := event.Decode(result.Data[0])
		if want := event.Draw(s.account("run").Key, 1002, hashOf(1002).Hash); err != nil || e.Draw != want {
			t.Errorf("a tick %d slots later draws %x, want %x (%v)", test.slots, e.Draw, want, err)
		}
	}
	s := arm() // an action that ends the phase makes the next tick that needs a draw start over
	s.poke("run", 12, byte(coordinator.Paused))
	s.must(act(3, coordinator.SetPaused{}), "run", "main")
	if x := s.read("run"); x.Armed != 0 {
		t.Errorf("waits since %d after a change of phase", x.Armed)
	}
	s = arm() // a pause that is withdrawn must not leave a draw that is known before it is due
	s.must(act(3, coordinator.SetPaused{}), "run", "main")
	if x := s.read("run"); x.Armed != 0 {
		t.Errorf("waits since %d for what is not due", x.Armed)
	}
}
