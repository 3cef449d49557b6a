package localnet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/solana/transaction"
)

var update = flag.Bool("update", false, "write testdata/litesvm/scenario.json anew")

// What testdata/litesvm/vectors.js reads and writes.
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
		Slot *scenarioSlot `json:"slot,omitempty"` // that begins
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

// slotNow is the open slot as litesvm is told of it.
func (c *chain) slotNow() *scenarioSlot {
	v := c.At(Processed, 0)
	s := c.sysvars(v.Slot)
	slot := &scenarioSlot{Slot: v.Slot, Time: s.Clock.UnixTimestamp}
	for _, h := range s.SlotHashes {
		slot.Hashes = append(slot.Hashes, scenarioHash{h.Slot, transaction.Hash(h.Hash).String()})
	}
	return slot
}

// runScenario runs the scenario and returns what it was, and what became of it.
func runScenario(c *chain) (scenarioFile, []vector) {
	file := scenarioFile{Start: began.Unix(), Airdrops: []scenarioAirdrop{{hexOf(public(c.payer)), 1000 * sol}}}
	file.Steps = append(file.Steps, scenarioStep{Slot: c.slotNow()})
	var vectors []vector
	for _, s := range scenario(c) {
		if s.slots > 0 {
			for range s.slots {
				c.next()
			}
			file.Steps = append(file.Steps, scenarioStep{Slot: c.slotNow()})
			continue
		}
		raw := c.sign(s.keys, s.instructions...)
		r, err := c.Submit(raw)
		if got := failure(c.TB, r, err); got != s.want {
			c.Errorf("%s: %s, want %s", s.name, got, s.want)
		}
		t, parseErr := transaction.Unmarshal(raw)
		if parseErr != nil {
			c.Fatal(parseErr)
		}
		step := scenarioStep{Name: s.name, Raw: raw}
		v := vector{Name: s.name, Accounts: map[string]*vectorAccount{}}
		if s.want != "" {
			if err := json.Unmarshal([]byte(s.want), &v.Err); err != nil {
				c.Fatal(err)
			}
		}
		if r != nil {
			v.Units, v.Logs = r.Units, r.Logs
			if r.Return != nil {
				v.Return = hex.EncodeToString(r.Return.Data)
			}
		}
		for _, key := range t.Message.Keys {
			if _, native := natives[key]; native || isSysvar(key) {
				continue
			}
			step.Keys = append(step.Keys, hexOf(key))
			v.Accounts[hexOf(key)] = c.vectorOf(key)
		}
		file.Steps, vectors = append(file.Steps, step), append(vectors, v)
	}
	return file, vectors
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

// TestScenario wants each transaction to end as its step says, and everything that it leaves
// behind to be as litesvm has it, an implementation by others on top of the public chains' code.
func TestScenario(t *testing.T) {
	c := newChain(t, Config{})
	file, got := runScenario(c)
	const scenarioName, vectorsName = "testdata/litesvm/scenario.json", "testdata/litesvm/vectors.json"
	if *update {
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
		t.Fatal("the scenario is another than that of the vectors: go test -run Scenario -update, then vectors.js")
	}
	for i, w := range want {
		w.Logs, got[i].Logs = normal(w.Logs), normal(got[i].Logs)
		if diff := cmp.Diff(w, got[i]); diff != "" {
			t.Errorf("%s: litesvm (-) and this chain (+)\n%s", w.Name, diff)
		}
	}
}

// normal cuts what logs may say in other words: the addresses of instructions and of memory.
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
