package programtest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

// instructions contains every kind of instruction with its accounts. Each is accepted in a scene, or
// would be accepted in another state of the run.
var instructions = []struct {
	data     []byte
	accounts []string
}{
	{[]byte{transaction.RunInit}, []string{"empty", "main"}},
	{write(0, []byte{1}), []string{"run", "main"}},
	{append([]byte{transaction.RunGenesis}, named(nil)...), []string{"fresh", "main"}},
	{act(9, coordinator.Join{}), []string{"run", "member"}},
	{[]byte{transaction.RunTick}, []string{"run"}},
	{[]byte{transaction.RunFree}, []string{"fresh", "main", "spill"}},
	{announcement("a"), []string{"peer", "member", "run"}},
	{[]byte{transaction.RunForget}, []string{"peer", "member", "spill"}},
	{[]byte{transaction.RunMigrate, 2, 0, 0, 0}, []string{"run", "main"}},
	{grantTo(clientID(1)), []string{"grant", "main"}},
	{delegate(false, clientID(2)), []string{"grant", "member"}},
	{act(9, coordinator.Admit{}), []string{"run", "member", "grant"}},
}

// TestAccountsOfInstructions checks that every instruction refuses wrong accounts.
func TestAccountsOfInstructions(t *testing.T) {
	elf := loadProgram(t)
	for _, x := range instructions {
		t.Run(instructionNames[x.data[0]], func(t *testing.T) {
			s := newScene(t, elf)
			s.refused(program.ErrNotEnoughAccountKeys, x.data)
			s.refused(program.ErrNotEnoughAccountKeys, x.data, x.accounts[:len(x.accounts)-1]...)
			s.refused(program.ErrInvalidArgument, x.data, append(slices.Clone(x.accounts), "other")...)
			s.refused(program.ErrInvalidArgument, x.data, append(slices.Clone(x.accounts), "other", "empty", "fresh")...)
			for i := range x.accounts {
				for j := range i {
					twice := slices.Clone(x.accounts)
					twice[i] = twice[j]
					if toSigner := i == 2 && j == 1 && slices.Contains(x.accounts, "spill"); !toSigner {
						s.refused(program.ErrInvalidArgument, x.data, twice...)
					}
				}
			}
			target := s.account(x.accounts[0])
			target.Writable = false
			s.refused(program.ErrImmutable, x.data, x.accounts...)
			target.Writable = true
			if len(x.accounts) > 1 {
				s.account(x.accounts[1]).Signer = false
				s.refused(program.ErrMissingRequiredSignature, x.data, x.accounts...)
				s.account(x.accounts[1]).Signer = true
			}
			if slices.Contains(x.accounts, "spill") {
				s.account("spill").Writable = false
				s.refused(program.ErrImmutable, x.data, x.accounts...)
				s.account("spill").Writable = true
			}
			target.Owner = clientID(77)
			s.refused(program.ErrInvalidAccountOwner, x.data, x.accounts...)
		})
	}
}

// TestAccountsOfRuns checks that every instruction of a run refuses an account that is not a run of
// this version.
func TestAccountsOfRuns(t *testing.T) {
	elf := loadProgram(t)
	for _, x := range instructions[1:5] {
		accounts := append([]string{"run"}, x.accounts[1:]...)
		for name, test := range map[string]struct {
			want   error
			change func(*scene)
		}{
			"new":                {program.ErrUninitializedAccount, func(s *scene) { clear(s.account("run").Data) }},
			"tiny":               {program.ErrInvalidAccountData, func(s *scene) { s.resize("run", 47) }},
			"a byte less":        {program.ErrInvalidAccountData, func(s *scene) { s.resize("run", layout.AccountSize-1) }},
			"a byte more":        {program.ErrInvalidAccountData, func(s *scene) { s.resize("run", layout.AccountSize+1) }},
			"a peer":             {program.ErrInvalidAccountData, func(s *scene) { s.poke("run", 0, []byte(layout.PeerMagic)...) }},
			"freed":              {program.ErrInvalidAccountData, func(s *scene) { s.poke("run", 0, []byte(layout.FreedMagic)...) }},
			"an older version":   {program.ErrOtherVersion, func(s *scene) { s.poke("run", 8, 0) }},
			"a newer version":    {program.ErrOtherVersion, func(s *scene) { s.poke("run", 8, 2) }},
			"a newer, larger":    {program.ErrOtherVersion, func(s *scene) { s.poke("run", 8, 2); s.resize("run", layout.AccountSize+8) }},
			"of another state's": {program.ErrOtherVersion, func(s *scene) { s.poke("run", layout.StateOffset+8, layout.Version+1) }},
		} {
			if name == "of another state's" && (x.data[0] == transaction.RunWrite || x.data[0] == transaction.RunGenesis) {
				continue // these do not read the state
			}
			t.Run(instructionNames[x.data[0]]+" "+name, func(t *testing.T) {
				s := newScene(t, elf)
				test.change(s)
				s.refused(test.want, x.data, accounts...)
			})
		}
	}
}

// refusal is an instruction that is refused in a scene.
type refusal struct {
	name     string
	want     error
	change   func(*scene)
	data     []byte
	accounts []string
}

func testRefusals(t *testing.T, tests []refusal) {
	t.Helper()
	elf := loadProgram(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newScene(t, elf)
			if test.change != nil {
				test.change(s)
			}
			s.refused(test.want, test.data, test.accounts...)
		})
	}
}

func TestNoInstruction(t *testing.T) {
	testRefusals(t, []refusal{
		{"nothing", program.ErrInvalidInstructionData, nil, nil, []string{"run", "main"}},
		{"0", program.ErrInvalidInstructionData, nil, []byte{0}, []string{"run", "main"}},
		{"12", program.ErrInvalidInstructionData, nil, []byte{12}, []string{"run", "main"}},
		{"255", program.ErrInvalidInstructionData, nil, []byte{255}, []string{"run"}},
	})
}

func TestRefusalsOfInit(t *testing.T) {
	on := []string{"empty", "main"}
	testRefusals(t, []refusal{
		{"with data", program.ErrInvalidInstructionData, nil, []byte{transaction.RunInit, 0}, on},
		{"too small", program.ErrInvalidAccountData, func(s *scene) { s.resize("empty", layout.AccountSize-1) }, []byte{transaction.RunInit}, on},
		{"too large", program.ErrInvalidAccountData, func(s *scene) { s.resize("empty", layout.AccountSize+8) }, []byte{transaction.RunInit}, on},
		{"twice", program.ErrAccountAlreadyInitialized, nil, []byte{transaction.RunInit}, []string{"fresh", "main"}},
		{"a run", program.ErrAccountAlreadyInitialized, nil, []byte{transaction.RunInit}, []string{"run", "main"}},
		{"the same everywhere", program.ErrAccountAlreadyInitialized, func(s *scene) { s.poke("empty", 0, bytes.Repeat([]byte{1}, layout.AccountSize)...) }, []byte{transaction.RunInit}, on},
		{"first byte", program.ErrAccountAlreadyInitialized, func(s *scene) { s.poke("empty", 0, 1) }, []byte{transaction.RunInit}, on},
		{"a byte of state", program.ErrAccountAlreadyInitialized, func(s *scene) { s.poke("empty", 100_000, 1) }, []byte{transaction.RunInit}, on},
		{"last byte", program.ErrAccountAlreadyInitialized, func(s *scene) { s.poke("empty", layout.AccountSize-1, 1) }, []byte{transaction.RunInit}, on},
		{"freed", program.ErrAccountAlreadyInitialized, func(s *scene) { s.poke("empty", 0, []byte(layout.FreedMagic)...) }, []byte{transaction.RunInit}, on},
	})
}

func TestRefusalsOfWrite(t *testing.T) {
	on, size := []string{"run", "main"}, uint32(layout.StageSize)
	testRefusals(t, []refusal{
		{"by another", program.ErrIncorrectAuthority, nil, write(0, []byte{1}), []string{"run", "other"}},
		{"without offset", program.ErrInvalidInstructionData, nil, []byte{transaction.RunWrite, 0, 0, 0}, on},
		{"without bytes", program.ErrInvalidInstructionData, nil, write(0, nil), on},
		{"beyond the end", program.ErrInvalidInstructionData, nil, write(size-1, []byte{1, 2}), on},
		{"at the end", program.ErrInvalidInstructionData, nil, write(size, []byte{1}), on},
		{"far beyond", program.ErrInvalidInstructionData, nil, write(1<<32-1, []byte{1}), on},
		{"too much", program.ErrInvalidInstructionData, nil, write(0, make([]byte, size+1)), on},
	})
	s := newScene(t, loadProgram(t))
	s.must(write(size-2, []byte{1, 2}), on...)
	s.must(write(0, bytes.Repeat([]byte{3}, int(size))), on...)
	s.must(write(1, []byte{4}), on...)
	if x := s.read("run"); len(x.Stage) != int(size) || x.Stage[1] != 4 || x.Stage[size-1] != 3 || x.Sequence != 1 {
		t.Errorf("staged %d bytes, the last %d", len(x.Stage), x.Stage[len(x.Stage)-1])
	}
}

// staging returns a scene with a staged genesis in the account "fresh".
func staging(change func(*scene, *coordinator.Genesis)) (func(*scene), []byte) {
	data := []byte{transaction.RunGenesis}
	model := newSceneGenesis(change)
	return func(s *scene) { s.must(write(0, model(s)), "fresh", "main") }, append(data, named(model(nil))...)
}

// newSceneGenesis returns the genesis of "fresh". All scenes have the same keys.
func newSceneGenesis(change func(*scene, *coordinator.Genesis)) func(*scene) []byte {
	return func(s *scene) []byte {
		main := clientID(0)
		g := coordinator.Genesis{RunID: "fresh", Host: addressWithSeed(main, "fresh"), MainAuthority: main, Config: crowdConfig, Model: crowdModel}
		change(s, &g)
		return layout.AppendGenesis(nil, g)
	}
}

func TestRefusalsOfGenesis(t *testing.T) {
	on := []string{"fresh", "main"}
	good, data := staging(func(*scene, *coordinator.Genesis) {})
	otherHost, otherHostData := staging(func(_ *scene, g *coordinator.Genesis) { g.Host = clientID(5) })
	otherMain, otherMainData := staging(func(_ *scene, g *coordinator.Genesis) { g.MainAuthority = clientID(5) })
	hostMain, hostMainData := staging(func(_ *scene, g *coordinator.Genesis) { g.MainAuthority = coordinator.ClientID{} })
	otherID, otherIDData := staging(func(_ *scene, g *coordinator.Genesis) { g.RunID = "other" })
	noID, noIDData := staging(func(_ *scene, g *coordinator.Genesis) { g.RunID = "" })
	noBatch, noBatchData := staging(func(_ *scene, g *coordinator.Genesis) { g.Config.GlobalBatchSizeStart = 0 })
	wrongHash := slices.Clone(data)
	wrongHash[36] ^= 1
	testRefusals(t, []refusal{
		{"by another", program.ErrIncorrectAuthority, good, data, []string{"fresh", "other"}},
		{"twice", program.ErrAccountAlreadyInitialized, nil, data, []string{"run", "main"}},
		{"nothing staged", program.ErrInvalidInstructionData, nil, data, on},
		{"another hash", program.ErrInvalidInstructionData, good, wrongHash, on},
		{"longer than staged", program.ErrInvalidInstructionData, good, append([]byte{transaction.RunGenesis, 255, 255, 255, 255}, data[5:]...), on},
		{"short", program.ErrInvalidInstructionData, good, data[:len(data)-1], on},
		{"long", program.ErrInvalidInstructionData, good, append(slices.Clone(data), 0), on},
		{"no genesis", coordinator.ErrMalformed, func(s *scene) { s.must(write(0, []byte{1}), on...) }, append([]byte{transaction.RunGenesis}, named([]byte{1})...), on},
		{"nothing", coordinator.ErrMalformed, nil, append([]byte{transaction.RunGenesis}, named(nil)...), on},
		{"another host", coordinator.ErrInvalidConfig, otherHost, otherHostData, on},
		{"another main authority", coordinator.ErrInvalidConfig, otherMain, otherMainData, on},
		{"the host as main authority", coordinator.ErrInvalidConfig, hostMain, hostMainData, on},
		{"another run id", program.ErrInvalidSeeds, otherID, otherIDData, on},
		{"no run id", coordinator.ErrInvalidConfig, noID, noIDData, on},
		{"no batch", coordinator.ErrInvalidConfig, noBatch, noBatchData, on},
	})
	s := newScene(t, loadProgram(t))
	good(s)
	s.must(data, on...)
}

func TestRefusalsOfActAndTick(t *testing.T) {
	update := encode(coordinator.UpdateConfig{Config: crowdConfig, Model: crowdModel})
	staged := append(append(le.AppendUint64([]byte{transaction.RunAct}, 1), update[0]), named(update[1:])...)
	stage := func(s *scene) { s.must(write(0, update[1:]), "run", "main") }
	on := []string{"run", "main"}
	testRefusals(t, []refusal{
		{"before genesis", program.ErrUninitializedAccount, nil, act(1, coordinator.Join{}), []string{"fresh", "member"}},
		{"without nonce", program.ErrInvalidInstructionData, nil, []byte{transaction.RunAct, 1, 2, 3, 4, 5, 6, 7}, on},
		{"without action", coordinator.ErrMalformed, nil, []byte{transaction.RunAct, 1, 2, 3, 4, 5, 6, 7, 8}, on},
		{"kind 15", coordinator.ErrMalformed, nil, append(le.AppendUint64([]byte{transaction.RunAct}, 1), 15), on},
		{"nonce 0", coordinator.ErrStaleNonce, nil, act(0, coordinator.SetPaused{}), on},
		{"by another", coordinator.ErrNotAuthorised, nil, act(1, coordinator.SetPaused{}), []string{"run", "other"}},
		{"not now", coordinator.ErrHalted, nil, act(1, coordinator.Ready{}), []string{"run", "member"}},
		{"update of nothing", program.ErrInvalidInstructionData, nil, staged, on},
		{"update by another", coordinator.ErrNotAuthorised, stage, staged, []string{"run", "other"}},
		{"update in full", program.ErrInvalidInstructionData, stage, append(le.AppendUint64([]byte{transaction.RunAct}, 1), update...), on},
		{"update without hash", program.ErrInvalidInstructionData, stage, staged[:10], on},
		{"update of no bytes", coordinator.ErrMalformed, nil, append(le.AppendUint64([]byte{transaction.RunAct}, 1), append([]byte{8}, named(nil)...)...), on},
		{"tick before genesis", program.ErrUninitializedAccount, nil, []byte{transaction.RunTick}, []string{"fresh"}},
		{"tick with much salt", program.ErrInvalidInstructionData, nil, append([]byte{transaction.RunTick}, make([]byte, maxSalt+1)...), []string{"run"}},
	})
	s := newScene(t, loadProgram(t))
	before := bytes.Clone(s.account("run").Data)
	if result := s.must(append([]byte{transaction.RunTick}, make([]byte, maxSalt)...), "run"); len(result.Data) > 0 || !bytes.Equal(before, s.account("run").Data) {
		t.Error("a tick of a run in which nothing is due changes it")
	}
}

func TestRefusalsOfFreeAndMigrate(t *testing.T) {
	on := []string{"run", "main", "spill"}
	finish := func(closed byte) func(*scene) {
		return func(s *scene) { s.poke("run", 12, byte(coordinator.Finished), closed) }
	}
	newer := func(s *scene) { s.poke("run", 8, 2); s.resize("run", 500); finish(0)(s) }
	migrate := []byte{transaction.RunMigrate, 2, 0, 0, 0}
	testRefusals(t, []refusal{
		{"paused", coordinator.ErrWrongState, nil, []byte{transaction.RunFree}, on},
		{"finished and not closed", coordinator.ErrWrongState, finish(0), []byte{transaction.RunFree}, on},
		{"a newer version, not closed", coordinator.ErrWrongState, newer, []byte{transaction.RunFree}, on},
		{"by another", program.ErrIncorrectAuthority, finish(1), []byte{transaction.RunFree}, []string{"run", "other", "spill"}},
		{"with data", program.ErrInvalidInstructionData, finish(1), []byte{transaction.RunFree, 0}, on},
		{"new", program.ErrUninitializedAccount, nil, []byte{transaction.RunFree}, []string{"empty", "main", "spill"}},
		{"tiny", program.ErrInvalidAccountData, func(s *scene) { s.resize("run", 47) }, []byte{transaction.RunFree}, on},
		{"a peer", program.ErrInvalidAccountData, func(s *scene) { s.must(announcement("a"), "peer", "member", "run") }, []byte{transaction.RunFree}, []string{"peer", "member", "spill"}},
		{"no migration", program.ErrNoMigration, nil, migrate, on[:2]},
		{"migration of a newer one", program.ErrNoMigration, func(s *scene) { s.poke("run", 8, 2); s.resize("run", 500) }, migrate, on[:2]},
		{"migration without genesis", coordinator.ErrWrongState, nil, migrate, []string{"fresh", "main"}},
		{"migration while it runs", coordinator.ErrWrongState, func(s *scene) { s.poke("run", 12, byte(coordinator.RoundTrain)) }, migrate, on[:2]},
		{"migration by another", program.ErrIncorrectAuthority, nil, migrate, []string{"run", "other"}},
		{"migration to nothing", program.ErrInvalidInstructionData, nil, migrate[:4], on[:2]},
		{"migration with more", program.ErrInvalidInstructionData, nil, append(slices.Clone(migrate), 0), on[:2]},
	})
}
