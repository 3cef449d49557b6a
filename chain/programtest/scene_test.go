package programtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/sbpf"
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
)

// scene contains accounts of a chain, by their names in tests.
type scene struct {
	t        testing.TB
	elf      *sbpf.Program
	sysvars  runtime.Sysvars
	accounts map[string]*runtime.Account

	permissioned bool // the run "run" is
}

const sceneID = "scene"

// newScene returns a scene with these accounts: "run", a run that began paused, with the main
// authority "main"; "fresh", a run of the same main authority without a genesis; "empty", an
// account of zeros; "peer", an account of zeros at the address of the peer account of "member" for
// "run"; "grant", an account of zeros at the address of the grant of "main" to "member"; and signing
// keys.
func newScene(t testing.TB, elf *sbpf.Program) *scene {
	t.Helper()
	return newSceneOf(t, elf, false)
}

func newSceneOf(t testing.TB, elf *sbpf.Program, permissioned bool) *scene {
	t.Helper()
	s := &scene{t: t, elf: elf, accounts: map[string]*runtime.Account{}, permissioned: permissioned}
	s.sysvars.Clock = runtime.Clock{Slot: 1000, UnixTimestamp: 100}
	for i, name := range []string{"main", "member", "other", "spill"} {
		s.accounts[name] = &runtime.Account{Key: clientID(i), Lamports: 1_000_000, Signer: true, Writable: true}
	}
	main, member := s.accounts["main"].Key, s.accounts["member"].Key
	for name, seed := range map[string]string{"run": sceneID, "fresh": "fresh", "empty": "empty"} {
		s.accounts[name] = &runtime.Account{Key: addressWithSeed(main, seed), Owner: programID, Lamports: 5_000_000, Data: make([]byte, layout.AccountSize), Writable: true}
	}
	digest := sha256.Sum256(s.account("run").Key[:])
	peer := addressWithSeed(member, hex.EncodeToString(digest[:])[:32])
	s.accounts["peer"] = &runtime.Account{Key: peer, Owner: programID, Lamports: 3_000_000, Data: make([]byte, layout.PeerSize), Writable: true}
	s.accounts["grant"] = &runtime.Account{Key: grantAddress(main, member), Owner: programID, Lamports: 2_000_000, Data: make([]byte, layout.GrantSize(grantRoom)), Writable: true}
	s.must([]byte{transaction.RunInit}, "run", "main")
	s.must([]byte{transaction.RunInit}, "fresh", "main")
	s.begin()
	return s
}

func (s *scene) account(name string) *runtime.Account {
	s.t.Helper()
	a, ok := s.accounts[name]
	if !ok {
		s.t.Fatalf("no account %s", name)
	}
	return a
}

// genesis returns a genesis that the program accepts for "run".
func (s *scene) genesis() coordinator.Genesis {
	return coordinator.Genesis{
		RunID: sceneID, Host: s.account("run").Key, MainAuthority: s.account("main").Key, Config: crowdConfig, Model: crowdModel, Paused: true,
		Permissioned: s.permissioned,
	}
}

// begin stages the genesis in pieces that fit transactions.
func (s *scene) begin() {
	s.t.Helper()
	b := layout.AppendGenesis(nil, s.genesis())
	for at := 0; at < len(b); at += transaction.MaxRunWrite {
		s.must(append(le.AppendUint32([]byte{transaction.RunWrite}, uint32(at)), b[at:min(at+transaction.MaxRunWrite, len(b))]...), "run", "main")
	}
	s.must(append([]byte{transaction.RunGenesis}, named(b)...), "run", "main")
}

// named returns the reference to staged bytes in an instruction.
func named(b []byte) []byte {
	digest := sha256.Sum256(b)
	return append(le.AppendUint32(nil, uint32(len(b))), digest[:]...)
}

func write(at uint32, b []byte) []byte {
	return append(le.AppendUint32([]byte{transaction.RunWrite}, at), b...)
}

func act(nonce uint64, a coordinator.Action) []byte {
	return append(le.AppendUint64([]byte{transaction.RunAct}, nonce), encode(a)...)
}

// invoke executes an instruction. A refused instruction must not change or log anything.
func (s *scene) invoke(data []byte, names ...string) (runtime.Result, error) {
	s.t.Helper()
	var accounts []*runtime.Account
	for _, name := range names {
		accounts = append(accounts, s.account(name))
	}
	before := map[string]runtime.Account{}
	for name, a := range s.accounts {
		before[name] = *a
		x := before[name]
		x.Data = bytes.Clone(a.Data)
		before[name] = x
	}
	result, err := invoke(s.elf, &s.sysvars, accounts, data)
	if err == nil {
		return result, nil
	}
	for name, a := range s.accounts {
		if x := before[name]; x.Lamports != a.Lamports || x.Owner != a.Owner || !bytes.Equal(x.Data, a.Data) {
			s.t.Errorf("%v, and the account %s changed", err, name)
		}
	}
	if len(result.Data) > 0 {
		s.t.Errorf("%v, and it logs %x", err, result.Data)
	}
	return result, err
}

func (s *scene) must(data []byte, names ...string) runtime.Result {
	s.t.Helper()
	result, err := s.invoke(data, names...)
	if err != nil {
		s.t.Fatalf("%s: %v", instructionNames[data[0]], err)
	}
	return result
}

// refused checks for a refusal: a program.Builtin, a program.Code or a coordinator.Code.
func (s *scene) refused(want error, data []byte, names ...string) {
	s.t.Helper()
	_, err := s.invoke(data, names...)
	if err == nil {
		s.t.Errorf("accepted, want %v", want)
		return
	}
	e, ok := errors.AsType[runtime.Error](err)
	if !ok {
		s.t.Fatalf("%v, want %v", err, want)
	}
	var got error = e
	if e.Name == "Custom" {
		got = program.CustomError(e.Code)
	} else if b, ok := program.BuiltinError(e.Name); ok {
		got = b
	}
	if !errors.Is(got, want) {
		s.t.Errorf("%v, want %v", got, want)
	}
}

// read reads an account of a run.
func (s *scene) read(name string) layout.Account {
	s.t.Helper()
	x, err := layout.ReadAccount(s.account(name).Data)
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

// poke changes bytes of an account.
func (s *scene) poke(name string, at int, b ...byte) {
	a := s.account(name)
	a.Data = bytes.Clone(a.Data)
	copy(a.Data[at:], b)
}

func (s *scene) resize(name string, n int) {
	a := s.account(name)
	a.Data = append(bytes.Clone(a.Data[:min(n, len(a.Data))]), make([]byte, max(0, n-len(a.Data)))...)
}

func announcement(addrs ...string) []byte {
	return layout.AppendAddrs([]byte{transaction.RunAnnounce}, addrs)
}

// TestRunFromCreationToRefund tests a run from the creation of its account to the refund of its rent.
func TestRunFromCreationToRefund(t *testing.T) {
	s := newScene(t, loadProgram(t))
	if x := s.read("run"); x.Sequence != 1 || x.State.RunState != coordinator.Paused || x.State.Host != s.account("run").Key || len(x.Stage) > 0 {
		t.Errorf("begins as %+v", x.Summary)
	}
	if x := s.read("fresh"); x.Main != s.account("main").Key || x.State.RunState != coordinator.Uninitialized {
		t.Errorf("a new account reads as %+v", x)
	}
	update := encode(coordinator.UpdateConfig{Config: crowdConfig, Model: crowdModel})
	s.must(write(0, update[1:]), "run", "main")
	s.must(append(append(le.AppendUint64([]byte{transaction.RunAct}, 1), update[0]), named(update[1:])...), "run", "main")
	s.must(act(2, coordinator.SetPaused{}), "run", "main")
	s.must([]byte{transaction.RunTick, 1, 2, 3}, "run")
	s.must(act(1, coordinator.Join{}), "run", "member")
	s.must(announcement("/ip4/127.0.0.1/tcp/1", strings.Repeat("~", backend.MaxAddrLength)), "peer", "member", "run")
	peer, err := layout.ReadPeer(s.account("peer").Data)
	if err != nil || peer.Owner != s.account("member").Key || peer.Run != s.account("run").Key || peer.Slot != 1000 || len(peer.Addrs) != 2 {
		t.Errorf("announces %+v %v", peer, err)
	}
	s.must(announcement(), "peer", "member", "run")
	if peer, err = layout.ReadPeer(s.account("peer").Data); err != nil || len(peer.Addrs) != 0 {
		t.Errorf("announces %+v %v after announcing nothing", peer, err)
	}
	s.must(act(3, coordinator.SetPaused{Paused: true}), "run", "main")
	for range 3 { // starts the wait for the draw, and succeeds three slots later
		s.must([]byte{transaction.RunTick}, "run")
		pass(&s.sysvars, 3, func() bool { return false })
	}
	s.must(act(4, coordinator.Close{}), "run", "main")
	s.refused(coordinator.ErrWrongState, []byte{transaction.RunFree}, "run", "main", "spill")
	s.must([]byte{transaction.RunTick}, "run")
	x := s.read("run")
	if x.State.RunState != coordinator.Finished || !x.Closed || x.Sequence != 9 {
		t.Fatalf("ends as %+v", x.Summary)
	}
	before := s.account("spill").Lamports
	s.must([]byte{transaction.RunFree}, "run", "main", "spill")
	s.must([]byte{transaction.RunForget}, "peer", "member", "spill")
	if got := s.account("spill").Lamports - before; got != 8_000_000 || s.account("run").Lamports+s.account("peer").Lamports != 0 {
		t.Errorf("%d lamports come back, want 8000000", got)
	}
}
