package programtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mr-tron/base58"

	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/sbpf"
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
)

// recording records all executions of programs by tests, if it is not nil.
var recording *recorder

// invoke is runtime.Invoke with the maximum cost of a transaction.
func invoke(elf *sbpf.Program, sysvars *runtime.Sysvars, accounts []*runtime.Account, data []byte) (runtime.Result, error) {
	if recording == nil {
		return runtime.Invoke(elf, sysvars, programID, accounts, data, unitsOfTransaction)
	}
	s := recording.before(sysvars, accounts, data)
	result, err := runtime.Invoke(elf, sysvars, programID, accounts, data, unitsOfTransaction)
	recording.after(s, accounts, result, err)
	return result, err
}

// recorder writes steps for litesvm.js.
type recorder struct {
	out   *json.Encoder
	steps int
	known map[[32]byte][]byte // data of accounts in litesvm
	slots []runtime.SlotHash  // slot hashes in litesvm
	check runtime.Instruction // executed before the next step's instruction, if it has a program
}

type step struct {
	Slot     uint64        `json:"slot"`
	Time     int64         `json:"time,string"` // larger than a JavaScript number can represent
	Hashes   []stepHash    `json:"hashes"`
	Set      []stepSet     `json:"set"`
	Accounts []stepAccount `json:"accounts"`
	Data     string        `json:"data"`
	Check    *stepCheck    `json:"check,omitempty"`
	Want     stepResult    `json:"want"`
}

type stepHash struct {
	Slot uint64 `json:"slot"`
	Hash string `json:"hash"`
}

// stepSet is an account that the test itself created or changed: its nonzero bytes.
type stepSet struct {
	Key   string `json:"key"`
	Owner string `json:"owner"`
	Size  int    `json:"size"`
	Parts []any  `json:"parts"` // from, bytes, from, bytes, …
}

type stepAccount struct {
	Key      string `json:"key"`
	Signer   bool   `json:"signer"`
	Writable bool   `json:"writable"`
	SHA256   string `json:"sha256"` // hash of its data afterwards
}

// stepCheck is the instruction before a step's own instruction, which the chain itself executes.
type stepCheck struct {
	Program string `json:"program"`
	Data    string `json:"data"`
}

type stepResult struct {
	Error  string   `json:"error"`
	Code   uint32   `json:"code"`
	Units  uint64   `json:"units"`
	Logged []string `json:"logged"`
}

func (r *recorder) before(sysvars *runtime.Sysvars, accounts []*runtime.Account, data []byte) *step {
	s := &step{Accounts: []stepAccount{}, Slot: sysvars.Clock.Slot, Time: sysvars.Clock.UnixTimestamp, Data: hex.EncodeToString(data)}
	if !slices.Equal(r.slots, sysvars.SlotHashes) {
		r.slots, s.Hashes = slices.Clone(sysvars.SlotHashes), []stepHash{}
		for _, h := range sysvars.SlotHashes {
			s.Hashes = append(s.Hashes, stepHash{h.Slot, base58.Encode(h.Hash[:])})
		}
	}
	if r.check.Program != ([32]byte{}) {
		s.Check = &stepCheck{hex.EncodeToString(r.check.Program[:]), hex.EncodeToString(r.check.Data)}
		r.check = runtime.Instruction{}
	}
	for _, a := range accounts {
		if a.Key == runtime.InstructionsAddress { // the chain creates it
			continue
		}
		if known, ok := r.known[a.Key]; a.Data != nil && (!ok || !bytes.Equal(known, a.Data) || a.Owner != programID) {
			s.Set = append(s.Set, stepSet{hex.EncodeToString(a.Key[:]), hex.EncodeToString(a.Owner[:]), len(a.Data), partsOf(a.Data)})
		}
	}
	return s
}

func partsOf(data []byte) []any {
	parts := []any{}
	const size = 64
	for at := 0; at < len(data); at += size {
		if b := data[at:min(at+size, len(data))]; !bytes.Equal(b, make([]byte, len(b))) {
			parts = append(parts, at, hex.EncodeToString(b))
		}
	}
	return parts
}

func (r *recorder) after(s *step, accounts []*runtime.Account, result runtime.Result, err error) {
	for _, a := range accounts {
		digest := sha256.Sum256(a.Data)
		s.Accounts = append(s.Accounts, stepAccount{hex.EncodeToString(a.Key[:]), a.Signer, a.Writable, hex.EncodeToString(digest[:])})
		if a.Key == runtime.InstructionsAddress {
			s.Accounts[len(s.Accounts)-1].SHA256 = ""
			continue
		}
		if a.Data != nil {
			r.known[a.Key] = bytes.Clone(a.Data) // tests modify their accounts directly
		}
		if a.Owner != programID || a.Lamports == 0 { // created again before it is next used
			delete(r.known, a.Key)
		}
	}
	s.Want.Units = result.Units
	if e, ok := errors.AsType[runtime.Error](err); ok {
		s.Want.Error, s.Want.Code = e.Name, e.Code
	}
	for _, b := range result.Data {
		s.Want.Logged = append(s.Want.Logged, hex.EncodeToString(b))
	}
	r.steps++
	_ = r.out.Encode(s)
}

var liteSVMRuns = flag.Uint64("litesvm-runs", 6, "how many random runs TestLiteSVM compares")

// TestLiteSVM repeats the executions of other tests with litesvm, the chain's own runtime as a
// library. It compares the accounts, errors, logs and compute units.
func TestLiteSVM(t *testing.T) {
	modules := os.Getenv("LITESVM")
	if modules == "" {
		t.Skip("npm install litesvm@1.5.0 in some folder, and name its node_modules in LITESVM")
	}
	folder := t.TempDir()
	elf, steps := filepath.Join(folder, "psyche.so"), filepath.Join(folder, "steps")
	if err := os.WriteFile(elf, program.ELF, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(steps)
	if err != nil {
		t.Fatal(err)
	}
	recording = &recorder{out: json.NewEncoder(file), known: map[[32]byte][]byte{}}
	count := func() int { return recording.steps }
	defer func() { recording = nil }()
	for seed := range *liteSVMRuns {
		recorded(t, seed)
	}
	costs(t, 256, true)
	provenByTheChain(t)
	for _, test := range []func(*testing.T){
		TestRunFromCreationToRefund, TestRefusalsOfInit, TestRefusalsOfWrite, TestRefusalsOfGenesis, TestRefusalsOfActAndTick, TestRefusalsOfFreeAndMigrate,
		TestRefusalsOfPeers, TestGrant, TestRefusalsOfGrants, TestForgedGrants, TestRevokedDuringJoin, TestFullOfAdmissions,
		TestRevived, TestDraws, TestNoInstruction, TestAccountsOfRuns, TestAccountsOfInstructions,
	} {
		test(t)
	}
	if err := errors.Join(file.Close()); err != nil || t.Failed() {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "node", "testdata/litesvm.js", modules, elf, hex.EncodeToString(programID[:]), steps).CombinedOutput()
	t.Logf("%d steps: %s", count(), out)
	if err != nil {
		t.Error(err)
	}
}
