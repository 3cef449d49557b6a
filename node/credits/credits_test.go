package credits

import (
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/wire"
)

// state returns the state of a run with data locations.
func state(t *testing.T, locations ...config.DataLocation) *coordinator.State {
	t.Helper()
	run, err := config.LoadState("../../configs/slow-links/state.toml")
	if err != nil {
		t.Fatal(err)
	}
	m := run.Model
	m.Name = "Tiny"
	if len(locations) > 0 {
		m.DataLocations = locations
	}
	definition, err := config.EncodeModel(m)
	if err != nil {
		t.Fatal(err)
	}
	return &coordinator.State{OriginStep: 1, Model: coordinator.Model{Definition: definition, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Repo: "owner/first", Origin: coordinator.CheckpointHub}}}
}

// member returns the entry of a key in a card.
func member(c checkpoint.Card, id coordinator.ClientID) (m checkpoint.CardMember) {
	for _, m := range c.Members {
		if m.ID == identity.ID(id).String() {
			return m
		}
	}
	return m
}

func TestLedger(t *testing.T) {
	ada, bob := coordinator.ClientID{1}, coordinator.ClientID{2}
	var l Ledger
	names := map[identity.ID]string{identity.ID(ada): "Ada", identity.ID(bob): "bad\nname"}
	for step := uint32(1); step <= 3; step++ {
		l.Round(Round{Step: step, Results: []Result{{ada, 2}, {ada, 1}, {bob, 4}}, Names: names})
	}
	l.Round(Round{Step: 3, Results: []Result{{bob, 100}}}) // repeated
	l.Round(Round{Step: 4, Results: []Result{{ada, 1}}, Losses: coordinator.Claims{Count: 1, Median: 2500}, Start: wire.Head{Index: 8, Hash: [32]byte{0xab}}})
	url := "https://user:secret@huggingface.co/datasets/owner/texts/resolve/main/a.bin?token=secret"
	s := state(t,
		config.DataLocation{HTTP: &config.HTTPData{Location: config.HTTPLocation{SingleURL: &url}, TokenSize: 2}},
		config.DataLocation{Local: &config.LocalData{Path: "/home/ada/secret", TokenSize: 2}},
		config.DataLocation{Server: &config.ServerData{Addr: "secret:1"}},
	)
	c := l.Card(s, [32]byte{7}, 4)
	if m := member(c, ada); m.Name != "Ada" || m.Rounds != 4 || m.Sequences != 10 {
		t.Errorf("got %+v; want m.Name == \"Ada\" and m.Rounds == 4 and m.Sequences == 10", m)
	}
	if m := member(c, bob); m.Name != "" || m.Rounds != 3 || m.Sequences != 12 {
		t.Errorf("got %+v; want m.Name == \"\" and m.Rounds == 3 and m.Sequences == 12", m)
	}
	if c.Counted != (checkpoint.CardRounds{First: 1, Last: 4, Rounds: 4, Complete: true}) || c.Loss != 2.5 || c.LogEntry != 7 || !strings.HasPrefix(c.LogHash, "ab") {
		t.Errorf("%+v", c)
	}
	if c.Title != "Tiny" || c.BaseModel != "owner/first" || c.Optimizer != "12 local steps of adamw per round" || len(c.Datasets) != 1 || c.Datasets[0] != "owner/texts" || len(c.Data) != 3 {
		t.Errorf("%+v", c)
	}
	for _, source := range c.Data {
		if strings.Contains(source.What+source.Where, "secret") {
			t.Errorf("a card would show %+v", source)
		}
	}
	if late := (&Ledger{first: 3, last: 4, rounds: 2}).Card(s, [32]byte{}, 4); late.Counted.Complete {
		t.Error("a late member claims to have seen all rounds")
	}
	if earlier := l.Card(s, [32]byte{}, 3); earlier.Loss != 0 || earlier.LogHash != "" {
		t.Errorf("a card of step 3 has data of step 4: %+v", earlier)
	}
}

// TestLedgerIsBounded checks that a run with many keys does not fill the memory.
func TestLedgerIsBounded(t *testing.T) {
	var l Ledger
	for step := uint32(1); step <= maxMembers+50; step++ {
		l.Round(Round{Step: step, Results: []Result{{coordinator.ClientID{byte(step), byte(step >> 8), 1}, 1}}})
	}
	if len(l.members) != maxMembers+1 || member(l.Card(state(t), [32]byte{}, 1), coordinator.ClientID{}).Rounds != 50 {
		t.Errorf("%d members", len(l.members))
	}
}
