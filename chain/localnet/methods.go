package localnet

import (
	"runtime/debug"

	"github.com/psyche-go/psyche/chain/transaction"
)

// methods are the methods of the JSON-RPC interface.
var methods map[string]func(*Endpoint, parameters) any

func init() { // not in the declaration, because getHealth is one of the methods and counts them
	methods = map[string]func(*Endpoint, parameters) any{
		"getHealth":                         (*Endpoint).getHealth,
		"getVersion":                        (*Endpoint).getVersion,
		"getGenesisHash":                    (*Endpoint).getGenesisHash,
		"getSlot":                           (*Endpoint).getSlot,
		"getBlockHeight":                    (*Endpoint).getBlockHeight,
		"getBlockTime":                      (*Endpoint).getBlockTime,
		"getTransactionCount":               (*Endpoint).getTransactionCount,
		"getFirstAvailableBlock":            (*Endpoint).getFirstAvailableBlock,
		"getEpochInfo":                      (*Endpoint).getEpochInfo,
		"getLatestBlockhash":                (*Endpoint).getLatestBlockhash,
		"isBlockhashValid":                  (*Endpoint).isBlockhashValid,
		"getFeeForMessage":                  (*Endpoint).getFeeForMessage,
		"getRecentPrioritizationFees":       (*Endpoint).getRecentPrioritizationFees,
		"getBalance":                        (*Endpoint).getBalance,
		"getMinimumBalanceForRentExemption": (*Endpoint).getMinimumBalance,
		"getAccountInfo":                    (*Endpoint).getAccountInfo,
		"getMultipleAccounts":               (*Endpoint).getMultipleAccounts,
		"getProgramAccounts":                (*Endpoint).getProgramAccounts,
		"requestAirdrop":                    (*Endpoint).requestAirdrop,
		"sendTransaction":                   (*Endpoint).sendTransaction,
		"simulateTransaction":               (*Endpoint).simulateTransaction,
		"getSignatureStatuses":              (*Endpoint).getSignatureStatuses,
		"getSignaturesForAddress":           (*Endpoint).getSignaturesForAddress,
		"getTransaction":                    (*Endpoint).getTransaction,
	}
}

// contextual is a result with its slot.
type contextual struct {
	Context slotContext `json:"context"`
	Value   any         `json:"value"`
}

type slotContext struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Slot       uint64 `json:"slot"`
}

// apiVersion is the version of the nodes with this interface.
const apiVersion = "4.2.2"

func (v View) with(value any) contextual { return contextual{slotContext{apiVersion, v.Slot}, value} }

// viewFor returns the chain at the commitment of a call.
func (e *Endpoint) viewFor(s settings) View {
	v := e.view(s.Commitment)
	if v.Slot < s.MinContextSlot {
		refuse(&rpcError{codeMinContext, "Minimum context slot has not been reached", map[string]uint64{"contextSlot": v.Slot}})
	}
	return v
}

// at reads settings from the i-th argument, and returns the view for them.
func (e *Endpoint) at(p parameters, i int) (View, settings) {
	s := p.settings(i)
	return e.viewFor(s), s
}

func (e *Endpoint) getHealth(parameters) any {
	if f := e.faulty(); f.Unhealthy {
		refuse(unhealthy(f.Lag))
	}
	return "ok"
}

func unhealthy(lag int) error {
	return &rpcError{codeUnhealthy, "Node is unhealthy", map[string]any{"numSlotsBehind": lag}}
}

func (e *Endpoint) getVersion(parameters) any {
	v := map[string]any{"solana-core": apiVersion, "feature-set": 0}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["psyche"] = info.Main.Version
	}
	return v
}

func (e *Endpoint) getGenesisHash(parameters) any {
	return e.server.ledger.Genesis().String()
}

func (e *Endpoint) getSlot(p parameters) any {
	v, _ := e.at(p, 0)
	return v.Slot
}

func (e *Endpoint) getBlockHeight(p parameters) any {
	v, _ := e.at(p, 0)
	return v.height()
}

func (e *Endpoint) getBlockTime(p parameters) any {
	var number uint64
	p.read(0, "slot", &number)
	v := e.view(Confirmed)
	v.Slot = min(v.Slot, number)
	at, known := v.time()
	if !known || v.Slot != number {
		refuse(&rpcError{Code: -32004, Message: "Block not available for slot"})
	}
	return at
}

func (e *Endpoint) getTransactionCount(p parameters) any {
	v, _ := e.at(p, 0)
	return v.count()
}

func (e *Endpoint) getFirstAvailableBlock(parameters) any {
	l := e.server.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.slots[0].number
}

func (e *Endpoint) getEpochInfo(p parameters) any {
	v, _ := e.at(p, 0)
	const never = 432_000
	return map[string]any{
		"absoluteSlot": v.Slot, "blockHeight": v.height(), "epoch": 0, "slotIndex": v.Slot, "slotsInEpoch": max(never, v.Slot+1), "transactionCount": v.count(),
	}
}

func (e *Endpoint) getLatestBlockhash(p parameters) any {
	v, _ := e.at(p, 0)
	hash, last := v.blockhash()
	return v.with(map[string]any{"blockhash": hash.String(), "lastValidBlockHeight": last})
}

func (e *Endpoint) isBlockhashValid(p parameters) any {
	hash := parsed(p.text(0, "blockhash"), transaction.ParseHash)
	v, _ := e.at(p, 1)
	return v.with(v.isValid(hash))
}

func (e *Endpoint) getFeeForMessage(p parameters) any {
	text := p.text(0, "message")
	v, _ := e.at(p, 1)
	raw := must(decodeTransaction(text, "base64"))
	m := must(messageOf(raw))
	fee, err := e.server.ledger.fee(&m)
	if err != nil || !v.isValid(m.Blockhash) {
		return v.with(nil)
	}
	return v.with(fee)
}

// messageOf parses a message without signatures. It adds the required number of empty signatures
// first.
func messageOf(raw []byte) (transaction.Message, error) {
	if len(raw) == 0 || raw[0] > 127 {
		return transaction.Message{}, invalid("the message is empty or versioned, want the legacy format")
	}
	unsigned := append([]byte{raw[0]}, make([]byte, int(raw[0])*len(transaction.Signature{}))...)
	t, err := transaction.Unmarshal(append(unsigned, raw...))
	return t.Message, err
}

func (e *Endpoint) getRecentPrioritizationFees(p parameters) any {
	var texts []string
	p.optional(0, "addresses", &texts)
	if len(texts) > maxFeeAddresses {
		refuse(invalid("%d addresses, at most %d", len(texts), maxFeeAddresses))
	}
	keys := parseKeys(texts)
	numbers, prices := e.view(Confirmed).fees(keys, maxFeeSlots)
	fees := []map[string]uint64{}
	for i, number := range numbers {
		fees = append(fees, map[string]uint64{"slot": number, "prioritizationFee": prices[i]})
	}
	return fees
}
