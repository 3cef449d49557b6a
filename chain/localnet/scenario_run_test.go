package localnet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/chain/transaction"
)

// The input and output of testdata/litesvm/vectors.js.
type (
	scenarioFile struct {
		Start    int64             `json:"start"`
		Airdrops []scenarioAirdrop `json:"airdrops"`
		Steps    []scenarioStep    `json:"steps"`
	}
	scenarioAirdrop struct {
		Key      string `json:"key"`
		Lamports uint64 `json:"lamports"`
	}
	scenarioStep struct {
		Name string        `json:"name"`
		Slot *scenarioSlot `json:"slot,omitempty"` // the slot that begins
		Raw  []byte        `json:"raw,omitempty"`
		Keys []string      `json:"keys,omitempty"`
	}
	scenarioSlot struct {
		Slot   uint64         `json:"slot"`
		Time   int64          `json:"time"`
		Hashes []scenarioHash `json:"hashes"`
	}
	scenarioHash struct {
		Slot uint64 `json:"slot"`
		Hash string `json:"hash"`
	}
	vector struct {
		Name     string                    `json:"name"`
		Err      any                       `json:"err"`
		Units    uint64                    `json:"units"`
		Logs     []string                  `json:"logs"`
		Return   string                    `json:"return"`
		Accounts map[string]*vectorAccount `json:"accounts"`
	}
	vectorAccount struct {
		Lamports   uint64 `json:"lamports"`
		Owner      string `json:"owner"`
		Executable bool   `json:"executable"`
		Size       int    `json:"size"`
		SHA256     string `json:"sha256"`
	}
)

// slotNow returns the open slot in the format for litesvm.
func (c *chain) slotNow() *scenarioSlot {
	v := c.At(Processed, 0)
	s := c.sysvars(v.Slot)
	slot := &scenarioSlot{Slot: v.Slot, Time: s.Clock.UnixTimestamp}
	for _, h := range s.SlotHashes {
		slot.Hashes = append(slot.Hashes, scenarioHash{h.Slot, transaction.Hash(h.Hash).String()})
	}
	return slot
}

// runSteps runs steps. It returns them in the format for litesvm, with the results.
func runSteps(c *chain, steps []step) (scenarioFile, []vector) {
	file := scenarioFile{Start: began.Unix(), Airdrops: []scenarioAirdrop{{hexOf(public(c.payer)), 1000 * sol}}}
	file.Steps = append(file.Steps, scenarioStep{Slot: c.slotNow()})
	var vectors []vector
	for _, s := range steps {
		if s.slots > 0 {
			for range s.slots {
				c.next()
			}
			file.Steps = append(file.Steps, scenarioStep{Slot: c.slotNow()})
			continue
		}
		raw := c.sign(s.keys, s.instructions...)
		r, err := c.submit(raw)
		got := failure(c.TB, r, err)
		if got != s.want && s.want != anyEnd {
			c.Errorf("%s: %s, want %s", s.name, got, s.want)
		}
		keys := c.namedBy(raw)
		file.Steps = append(file.Steps, scenarioStep{Name: s.name, Raw: raw, Keys: keys})
		vectors = append(vectors, c.vectorFor(s.name, got, r, keys))
	}
	return file, vectors
}

// anyEnd is a step's expected end that every end satisfies.
const anyEnd = "any"

// namedBy returns the accounts of a transaction, without the chain's own accounts.
func (c *chain) namedBy(raw []byte) (keys []string) {
	t, err := transaction.Unmarshal(raw)
	if err != nil {
		c.Fatal(err)
	}
	for _, key := range t.Message.Keys {
		if _, native := natives[key]; !native && !isSysvar(key) {
			keys = append(keys, hexOf(key))
		}
	}
	return keys
}

// vectorFor returns the effects of a transaction.
func (c *chain) vectorFor(name, failure string, r *Record, keys []string) vector {
	v := vector{Name: name, Accounts: map[string]*vectorAccount{}}
	if failure != "" {
		if err := json.Unmarshal([]byte(failure), &v.Err); err != nil {
			c.Fatal(err)
		}
	}
	if r != nil {
		v.Units, v.Logs = r.Units, r.Logs
		if r.Return != nil {
			v.Return = hex.EncodeToString(r.Return.Data)
		}
	}
	for _, key := range keys {
		raw, err := hex.DecodeString(key)
		if err != nil {
			c.Fatal(err)
		}
		v.Accounts[key] = c.vectorOf(transaction.PublicKey(raw))
	}
	return v
}

func (c *chain) vectorOf(key transaction.PublicKey) *vectorAccount {
	a := c.At(Processed, 0).Account(key)
	if a == nil {
		return nil
	}
	sum := sha256.Sum256(a.Data)
	return &vectorAccount{a.Lamports, hexOf(a.Owner), a.Executable, len(a.Data), hex.EncodeToString(sum[:])}
}

func hexOf(key transaction.PublicKey) string { return hex.EncodeToString(key[:]) }

// TestScenario checks that each transaction ends as its step expects, with the same effects as in
// litesvm, an independent implementation on top of the public chains' code.
func TestScenario(t *testing.T) {
	c := newChain(t, Config{})
	file, got := runSteps(c, scenario(c))
	const scenarioName, vectorsName = "testdata/litesvm/scenario.json", "testdata/litesvm/vectors.json"
	if golden.Update() {
		b, err := json.MarshalIndent(file, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(scenarioName, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var kept scenarioFile
	var want []vector
	readJSON(t, scenarioName, &kept)
	readJSON(t, vectorsName, &want)
	if !cmp.Equal(file, kept) || len(got) != len(want) {
		t.Fatal("the scenario differs from that of the vectors: go test -run Scenario -update, then vectors.js")
	}
	compare(t, want, got)
}

// compare compares the results of this chain and of litesvm for a scenario.
func compare(t *testing.T, want, got []vector) {
	t.Helper()
	for i, w := range want {
		w.Logs, got[i].Logs = normal(w.Logs), normal(got[i].Logs)
		if diff := cmp.Diff(w, got[i], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%d, %s: litesvm (-) and this chain (+)\n%s", i, w.Name, diff)
		}
	}
}

// normal removes differences in the wording of logs: addresses of instructions and of memory.
func normal(logs []string) []string {
	var cut []string
	for _, line := range logs {
		if i := strings.Index(line, "Access violation"); i >= 0 {
			line = line[:i+len("Access violation")]
		}
		cut = append(cut, line)
	}
	return cut
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, to); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
