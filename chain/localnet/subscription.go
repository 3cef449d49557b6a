package localnet

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/psyche-go/psyche/chain/transaction"
)

// subscription is a client's subscription.
type subscription struct {
	id         uint64
	method     string // of its notifications
	commitment Commitment
	next       func(View) []any // results of a newer view since the last call
	once       bool             // ends with its first notification
	answered   bool             // the client knows the id
}

// notification is a message for one subscription.
type notification struct {
	Version    string             `json:"jsonrpc"`
	Method     string             `json:"method"`
	Parameters notificationResult `json:"params"`
}

type notificationResult struct {
	Result       any    `json:"result"`
	Subscription uint64 `json:"subscription"`
}

// subscribers are the methods that start a subscription, unsubscribers the methods that end it.
var (
	subscribers = map[string]func(*Endpoint, parameters) *subscription{
		"accountSubscribe":   (*Endpoint).accountSubscribe,
		"programSubscribe":   (*Endpoint).programSubscribe,
		"logsSubscribe":      (*Endpoint).logsSubscribe,
		"signatureSubscribe": (*Endpoint).signatureSubscribe,
		"slotSubscribe":      (*Endpoint).slotSubscribe,
		"rootSubscribe":      (*Endpoint).rootSubscribe,
	}
	unsubscribers = map[string]bool{
		"accountUnsubscribe": true, "programUnsubscribe": true, "logsUnsubscribe": true, "signatureUnsubscribe": true, "slotUnsubscribe": true, "rootUnsubscribe": true,
	}
)

// publish sends new notifications to all subscribers. The caller holds Server.mu.
func (e *Endpoint) publish() {
	faults := e.faulty()
	e.mu.Lock()
	sockets := slices.Collect(maps.Keys(e.sockets))
	e.mu.Unlock()
	for _, s := range sockets {
		for _, id := range slices.Sorted(maps.Keys(s.subscriptions)) {
			sub := s.subscriptions[id]
			if !sub.answered {
				continue
			}
			results := sub.next(e.view(sub.commitment))
			if sub.once && len(results) > 0 {
				delete(s.subscriptions, id)
			}
			for _, result := range results {
				if !faults.Mute {
					s.send(notification{"2.0", sub.method, notificationResult{faults.falsified(sub.method, result), id}})
				}
			}
		}
	}
}

func (e *Endpoint) accountSubscribe(p parameters) *subscription {
	key, s := p.key(0), p.settings(1)
	must(encodeData(nil, s.Encoding))
	_, written := e.view(s.Commitment).account(key)
	sent := e.view(s.Commitment).Account(key)
	next := func(v View) []any {
		account, slot := v.account(key)
		if slot == written && account == sent {
			return nil
		}
		written, sent = slot, account
		if account == nil {
			account = &Account{}
		}
		encoded, err := encodeAccount(account, s.Encoding, nil) // nodes ignore dataSlice here
		if err != nil {
			return nil // too long for the encoding: nodes send nothing useful either
		}
		return []any{v.with(encoded)}
	}
	return &subscription{method: "accountNotification", commitment: s.Commitment, next: next}
}

func (e *Endpoint) programSubscribe(p parameters) *subscription {
	program, s := p.key(0), p.settings(1)
	prepare(s.Filters)
	sent := e.view(s.Commitment).Owned(program)
	next := func(v View) []any {
		owned := v.Owned(program)
		var results []any
		for _, key := range sortedKeys(owned) {
			if owned[key] == sent[key] || !passes(s.Filters, owned[key]) {
				continue
			}
			if encoded, err := encodeAccount(owned[key], s.Encoding, nil); err == nil {
				results = append(results, v.with(keyedJSON{key.String(), encoded}))
			}
		}
		sent = owned
		return results
	}
	return &subscription{method: "programNotification", commitment: s.Commitment, next: next}
}

func (e *Endpoint) logsSubscribe(p parameters) *subscription {
	mentions := mentioned(p)
	s := p.settings(1)
	_, at := e.view(s.Commitment).since(cursor{})
	next := func(v View) []any {
		var records []*Record
		var results []any
		records, at = v.since(at)
		for _, r := range records {
			if mentions != nil && !r.mentions(*mentions) {
				continue
			}
			value := map[string]any{"signature": r.Name.String(), "err": errOrNil(r), "logs": linesOf(r.Logs)}
			results = append(results, contextual{slotContext{Slot: r.Slot}, value})
		}
		return results
	}
	return &subscription{method: "logsNotification", commitment: s.Commitment, next: next}
}

// mentioned reads the account whose transactions a client subscribes to; nil means all
// transactions.
func mentioned(p parameters) *transaction.PublicKey {
	var all string
	if !p.missing(0) && json.Unmarshal(p[0], &all) == nil {
		if all != "all" && all != "allWithVotes" {
			refuse(invalid("filter %q, want all, allWithVotes or mentions", all))
		}
		return nil
	}
	var filter struct {
		Mentions []string `json:"mentions"`
	}
	p.read(0, "filter", &filter)
	if len(filter.Mentions) != 1 {
		refuse(invalid("Only 1 address supported"))
	}
	key := parsed(filter.Mentions[0], transaction.ParsePublicKey)
	return &key
}

func (e *Endpoint) signatureSubscribe(p parameters) *subscription {
	name, s := p.signature(0), p.settings(1)
	next := func(v View) []any {
		r := v.record(name)
		if r == nil {
			return nil
		}
		return []any{v.with(map[string]any{"err": errOrNil(r)})}
	}
	return &subscription{method: "signatureNotification", commitment: s.Commitment, next: next, once: true}
}

func (e *Endpoint) slotSubscribe(parameters) *subscription {
	sent := e.view(Processed).Slot
	next := func(v View) []any {
		if v.Slot == sent {
			return nil
		}
		sent = v.Slot
		return []any{map[string]uint64{"parent": v.parent(), "root": e.view(Finalized).Slot, "slot": v.Slot}}
	}
	return &subscription{method: "slotNotification", commitment: Processed, next: next}
}

func (e *Endpoint) rootSubscribe(parameters) *subscription {
	sent := e.view(Finalized).Slot
	next := func(v View) []any {
		if v.Slot == sent {
			return nil
		}
		sent = v.Slot
		return []any{v.Slot}
	}
	return &subscription{method: "rootNotification", commitment: Finalized, next: next}
}
