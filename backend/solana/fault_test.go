package solana

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/solana/layout"
	"github.com/psyche-go/psyche/solana/localnet"
	"github.com/psyche-go/psyche/solana/transaction"
)

// report writes what a run cost.
func (p *party) report() Costs {
	p.t.Helper()
	all := p.sum()
	var fees uint64
	landed := 0
	for _, r := range p.chain.ledger.At(localnet.Processed, 0).Newest(p.run, 1_000_000, transaction.Signature{}, transaction.Signature{}) {
		if transaction.PublicKey(mainKey().ID()) != r.Message.Keys[0] {
			fees, landed = fees+r.Fee, landed+1
		}
	}
	if all.Landed > landed+p.undone || all.Landed < landed-3*len(p.players) { // some are on their way
		p.t.Errorf("the chain has %d transactions of the players, they count %d", landed, all.Landed)
	}
	p.t.Logf("the chain has %d of the players, which paid %d lamports", landed, fees)
	p.t.Logf("%d transactions sent, %d landed, %d lamports; %d of them only ticks, %d out of turn", all.Sent, all.Landed, all.Lamports, all.Ticks, all.OutOfTurn)
	for i, node := range p.chain.nodes {
		p.t.Logf("node %d was asked %d times for heads and accounts, %d for statuses, %d to send", i,
			node.Calls("getMultipleAccounts"), node.Calls("getSignatureStatuses"), node.Calls("sendTransaction"))
	}
	var received uint64
	for _, player := range p.players {
		for _, e := range player.pool.Endpoints() {
			_, n := e.Calls()
			received += n
		}
	}
	p.t.Logf("%d bytes of answers in all", received)
	return all
}

// atLength skips what takes many seconds, because a chain's clock counts whole ones.
func atLength(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
}

// TestTurns wants ticks to be paid by whose turn it is.
func TestTurns(t *testing.T) {
	atLength(t)
	p := newParty(t, newChain(t, 1, *slotTime, nil), 4, nil)
	p.awaitRounds(*rounds)
	all := p.report()
	if all.Ticks == 0 || all.OutOfTurn > 1+all.Ticks/20 {
		t.Errorf("%d of %d ticks were paid by others than the one in turn", all.OutOfTurn, all.Ticks)
	}
}

// TestEveryClientTicksAtOnce wants nothing but money to be lost when turns fail.
func TestEveryClientTicksAtOnce(t *testing.T) {
	atLength(t)
	t.Parallel()
	c := newChain(t, 1, *slotTime, nil)
	c.pace.Turn, c.pace.Late = 1, 1
	p := newParty(t, c, 4, nil)
	p.awaitRounds(*rounds)
	p.report()
}

// TestEndpointDies kills one of three in the middle, and has it come back.
func TestEndpointDies(t *testing.T) {
	atLength(t)
	t.Parallel()
	c := newChain(t, 3, *slotTime, nil)
	p := newParty(t, c, 3, nil)
	p.awaitRounds(1)
	c.nodes[0].SetFaults(localnet.Faults{Dead: true})
	p.awaitRounds(*rounds)
	c.nodes[0].SetFaults(localnet.Faults{})
	c.nodes[1].SetFaults(localnet.Faults{Throttled: true, Retry: time.Second})
	p.awaitRounds(2)
	p.report()
}

// TestLostTransactions loses every fifth one.
func TestLostTransactions(t *testing.T) {
	atLength(t)
	t.Parallel()
	c := newChain(t, 1, *slotTime, nil)
	p := newParty(t, c, 3, nil)
	p.awaitRounds(1)
	c.nodes[0].SetFaults(localnet.Faults{Lost: 0.2})
	p.awaitRounds(*rounds)
	p.report()
}

// TestRollback takes back three slots while witnesses are awaited.
func TestRollback(t *testing.T) {
	atLength(t)
	for name, again := range map[string]bool{"and they land again": true, "for good": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChain(t, 3, *slotTime, nil)
			p := newParty(t, c, 3, nil)
			for range 2 {
				p.awaitRounds(1)
				p.await("witnesses awaited", time.Minute, func(s *coordinator.State) bool { return s.RunState == coordinator.RoundWitness })
				p.undone += 3 * 4 * len(p.players) // more than what three slots hold
				if err := c.server.Rollback(3, again); err != nil {
					t.Fatal(err)
				}
			}
			p.awaitRounds(2)
			p.report()
		})
	}
}

// TestOneOfThreeIsLeft wants the run to go on for who can prove what the one shows.
func TestOneOfThreeIsLeft(t *testing.T) {
	atLength(t)
	t.Parallel()
	c := newChain(t, 3, *slotTime, nil)
	p := newParty(t, c, 2, nil)
	p.awaitRounds(1)
	c.nodes[0].SetFaults(localnet.Faults{Dead: true})
	c.nodes[2].SetFaults(localnet.Faults{Dead: true})
	p.awaitRounds(2)
	p.report()
}

// inventedSeed is in a state that a lying endpoint shows: it goes into the next round's seed.
var inventedSeed = [32]byte{0xbe, 0xef}

// TestLyingEndpoint has one of three endpoints lie in every way, and wants nobody to follow it,
// and everybody to say so.
func TestLyingEndpoint(t *testing.T) {
	atLength(t)
	var old atomic.Pointer[json.RawMessage]
	for _, test := range []struct {
		name   string
		reason fault
		lie    func(value []*json.RawMessage)
	}{
		{"an old state", outdated, func(value []*json.RawMessage) {
			if kept := old.Load(); kept == nil && strings.Contains(string(*value[0]), "zstd") {
				old.CompareAndSwap(nil, value[0])
			} else if kept != nil {
				value[0] = kept
			}
		}},
		{"an invented state", invented, func(value []*json.RawMessage) { value[0] = inventState(value[0], true) }},
		{"another state under the same head", invented, func(value []*json.RawMessage) { value[0] = inventState(value[0], false) }},
		{"no state", silent, func(value []*json.RawMessage) { value[0] = nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newChain(t, 3, *slotTime, nil)
			var believed atomic.Bool
			p := newParty(t, c, 3, func(u backend.Update) {
				if u.State.SeedChain == inventedSeed {
					believed.Store(true)
				}
			})
			p.awaitRounds(1)
			c.nodes[1].SetFaults(localnet.Faults{Lie: func(method string, result json.RawMessage) json.RawMessage {
				if method != "getMultipleAccounts" {
					return result
				}
				return lieAbout(result, test.lie)
			}})
			p.awaitRounds(*rounds)
			deadline := time.Now().Add(4 * c.pace.Patience)
			for _, player := range p.players {
				for player.Faults()[c.addresses[1].HTTP] != string(test.reason) {
					if time.Now().After(deadline) {
						t.Fatalf("the endpoint is not named for %q: %v", test.reason, player.Faults())
					}
					time.Sleep(c.pace.Poll)
				}
			}
			c.nodes[1].SetFaults(localnet.Faults{})
			p.awaitRounds(1)
			if believed.Load() {
				t.Error("the invented state was believed")
			}
			p.report()
		})
	}
}

// lieAbout changes the accounts of an answer.
func lieAbout(result json.RawMessage, lie func(value []*json.RawMessage)) json.RawMessage {
	var found struct {
		Context json.RawMessage    `json:"context"`
		Value   []*json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(result, &found); err != nil || len(found.Value) != 2 || found.Value[0] == nil {
		return result
	}
	lie(found.Value)
	changed, err := json.Marshal(found)
	if err != nil {
		return result
	}
	return changed
}

// inventState makes a run's account another, and one that is further than it is.
func inventState(raw *json.RawMessage, further bool) *json.RawMessage {
	var account map[string]any
	if err := json.Unmarshal(*raw, &account); err != nil {
		return raw
	}
	data := account["data"].([]any)
	content, err := base64.StdEncoding.DecodeString(data[0].(string))
	if err != nil {
		return raw
	}
	packed := data[1] == "base64+zstd"
	if packed {
		reader, _ := zstd.NewReader(nil)
		defer reader.Close()
		if content, err = reader.DecodeAll(content, nil); err != nil {
			return raw
		}
	}
	if summary, err := layout.ReadSummary(content); err != nil || summary.RunID != "party" {
		return raw
	}
	if further {
		content[64] ^= 1                   // the head
		content[layout.StateOffset+56+1]++ // the sequence, 256 more
	}
	copy(content[layout.StateOffset+120:], inventedSeed[:])
	if packed {
		writer, _ := zstd.NewWriter(nil)
		defer func() { _ = writer.Close() }()
		content = writer.EncodeAll(content, nil)
	}
	data[0] = base64.StdEncoding.EncodeToString(content)
	changed, err := json.Marshal(account)
	if err != nil {
		return raw
	}
	message := json.RawMessage(changed)
	return &message
}
