package solana

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
)

// inventedSeed is part of a Byzantine endpoint's false state. A client that believed it would use it
// in the next round's seed.
var inventedSeed = [32]byte{0xbe, 0xef}

// TestTrainedBesideFalseEndpoint has one of three endpoints send each kind of false state while
// complete clients train. No client must believe it, all must report it, and the run must end
// normally.
func TestTrainedBesideFalseEndpoint(t *testing.T) {
	var old atomic.Pointer[json.RawMessage]
	for _, test := range []struct {
		name   string
		reason fault
		change func(value []*json.RawMessage)
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
			w := newCrew(t, c, func(u backend.Update) {
				if u.State.SeedChain == inventedSeed {
					believed.Store(true)
				}
			})
			w.inPhase(coordinator.RoundTrain, 0)
			w.fault(1, localnet.Faults{Falsify: func(method string, result json.RawMessage) json.RawMessage {
				if method != "getMultipleAccounts" {
					return result
				}
				return falsify(result, test.change)
			}})
			w.awaitFault(1, test.reason)
			paid := w.finish()
			paid.within(w)
			if believed.Load() {
				t.Error("the invented state was believed")
			}
		})
	}
}

// awaitFault waits until all clients report the given fault of an endpoint, and no fault of other
// endpoints.
func (w *crew) awaitFault(endpoint int, reason fault) {
	w.t.Helper()
	deadline := time.Now().Add(5 * w.chain.pace.Grace)
	for _, h := range w.hands {
		for h.faults()[w.chain.addresses[endpoint].HTTP] != string(reason) {
			if time.Now().After(deadline) {
				w.t.Fatalf("no report of a fault %q of the endpoint: %v", reason, h.faults())
			}
			time.Sleep(10 * time.Millisecond)
		}
		if found := h.faults(); len(found) != 1 {
			w.t.Errorf("other endpoints are also reported: %v", found)
		}
	}
}

// faults returns the endpoints that the client currently ignores, each with its fault.
func (c *Client) faults() map[string]string {
	c.accounting.Lock()
	defer c.accounting.Unlock()
	found := make(map[string]string)
	for e, f := range c.faulty {
		found[e.Name()] = string(f)
	}
	return found
}

// falsify changes the accounts of an answer.
func falsify(result json.RawMessage, change func(value []*json.RawMessage)) json.RawMessage {
	var found struct {
		Context json.RawMessage    `json:"context"`
		Value   []*json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(result, &found); err != nil || len(found.Value) != 2 || found.Value[0] == nil {
		return result
	}
	change(found.Value)
	changed, err := json.Marshal(found)
	if err != nil {
		return result
	}
	return changed
}

// inventState changes the state in a run's account, and its head and sequence if further is set.
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
	if summary, err := layout.ReadSummary(content); err != nil || summary.RunID != "crew" {
		return raw
	}
	if further {
		content[64] ^= 1                   // the head
		content[layout.StateOffset+56+1]++ // the sequence, increased by 256
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
