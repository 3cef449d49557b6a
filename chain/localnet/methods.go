package localnet

import (
	"runtime/debug"

	"github.com/psyche-go/psyche/chain/transaction"
)

// methods are the methods of the JSON-RPC interface.
var methods map[string]func(*Endpoint, *parameters) (any, error)

func init() { // not in the declaration, because getHealth is one of the methods and counts them
	methods = map[string]func(*Endpoint, *parameters) (any, error){
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
func (e *Endpoint) viewFor(s settings) (View, error) {
	v := e.view(s.Commitment)
	if v.Slot < s.MinContextSlot {
		return v, &rpcError{codeMinContext, "Minimum context slot has not been reached", map[string]uint64{"contextSlot": v.Slot}}
	}
	return v, nil
}

// at reads settings from the i-th argument, and returns the view for them.
func (e *Endpoint) at(p *parameters, i int) (View, settings) {
	s := p.settings(i)
	if p.err != nil {
		return View{}, s
	}
	v, err := e.viewFor(s)
	p.fail(err)
	return v, s
}

func (e *Endpoint) getHealth(*parameters) (any, error) {
	if f := e.faulty(); f.Unhealthy {
		return nil, unhealthy(f.Lag)
	}
	return "ok", nil
}

func unhealthy(lag int) error {
	return &rpcError{codeUnhealthy, "Node is unhealthy", map[string]any{"numSlotsBehind": lag}}
}

func (e *Endpoint) getVersion(*parameters) (any, error) {
	v := map[string]any{"solana-core": apiVersion, "feature-set": 0}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["psyche"] = info.Main.Version
	}
	return v, nil
}

func (e *Endpoint) getGenesisHash(*parameters) (any, error) {
	return e.server.ledger.Genesis().String(), nil
}

func (e *Endpoint) getSlot(p *parameters) (any, error) {
	v, _ := e.at(p, 0)
	return v.Slot, p.err
}

func (e *Endpoint) getBlockHeight(p *parameters) (any, error) {
	v, _ := e.at(p, 0)
	if p.err != nil {
		return nil, p.err
	}
	return v.height(), nil
}

func (e *Endpoint) getBlockTime(p *parameters) (any, error) {
	var number uint64
	if p.read(0, "slot", &number); p.err != nil {
		return nil, p.err
	}
	v := e.view(Confirmed)
	v.Slot = min(v.Slot, number)
	if at, known := v.time(); known && v.Slot == number {
		return at, nil
	}
	return nil, &rpcError{Code: -32004, Message: "Block not available for slot"}
}

func (e *Endpoint) getTransactionCount(p *parameters) (any, error) {
	v, _ := e.at(p, 0)
	if p.err != nil {
		return nil, p.err
	}
	return v.count(), nil
}

func (e *Endpoint) getFirstAvailableBlock(*parameters) (any, error) {
	l := e.server.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.slots[0].number, nil
}

func (e *Endpoint) getEpochInfo(p *parameters) (any, error) {
	v, _ := e.at(p, 0)
	if p.err != nil {
		return nil, p.err
	}
	const never = 432_000
	return map[string]any{
		"absoluteSlot": v.Slot, "blockHeight": v.height(), "epoch": 0, "slotIndex": v.Slot, "slotsInEpoch": max(never, v.Slot+1), "transactionCount": v.count(),
	}, nil
}

func (e *Endpoint) getLatestBlockhash(p *parameters) (any, error) {
	v, _ := e.at(p, 0)
	if p.err != nil {
		return nil, p.err
	}
	hash, last := v.blockhash()
	return v.with(map[string]any{"blockhash": hash.String(), "lastValidBlockHeight": last}), nil
}

func (e *Endpoint) isBlockhashValid(p *parameters) (any, error) {
	hash := parsed(p, 0, "blockhash", transaction.ParseHash)
	v, _ := e.at(p, 1)
	if p.err != nil {
		return nil, p.err
	}
	return v.with(v.isValid(hash)), nil
}

func (e *Endpoint) getFeeForMessage(p *parameters) (any, error) {
	text := p.text(0, "message")
	v, _ := e.at(p, 1)
	if p.err != nil {
		return nil, p.err
	}
	raw, err := decodeTransaction(text, "base64")
	if err != nil {
		return nil, err
	}
	m, err := messageOf(raw)
	if err != nil {
		return nil, err
	}
	fee, err := e.server.ledger.fee(&m)
	if err != nil || !v.isValid(m.Blockhash) {
		return v.with(nil), nil
	}
	return v.with(fee), nil
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

func (e *Endpoint) getRecentPrioritizationFees(p *parameters) (any, error) {
	var texts []string
	if p.optional(0, "addresses", &texts); p.err != nil {
		return nil, p.err
	}
	if len(texts) > maxFeeAddresses {
		return nil, invalid("%d addresses, at most %d", len(texts), maxFeeAddresses)
	}
	keys, err := parseKeys(texts)
	if err != nil {
		return nil, err
	}
	numbers, prices := e.view(Confirmed).fees(keys, maxFeeSlots)
	fees := []map[string]uint64{}
	for i, number := range numbers {
		fees = append(fees, map[string]uint64{"slot": number, "prioritizationFee": prices[i]})
	}
	return fees, nil
}
