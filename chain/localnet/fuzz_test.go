package localnet

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/transaction"
)

// FuzzMessage signs messages of random bytes and submits them. It checks that no transaction
// creates lamports or causes a panic.
func FuzzMessage(f *testing.F) {
	c := newChain(f, Config{})
	for _, s := range scenario(c) {
		if s.slots > 0 {
			continue
		}
		t, err := transaction.Unmarshal(c.sign(s.keys, s.instructions...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(t.Message.AppendTo(nil))
	}
	key := c.payer.Private()
	fuzztest.Run(f, func(t *testing.T, message []byte) {
		if len(message) == 0 {
			return
		}
		k := newChain(t, Config{})
		program := public(keyOf("program"))
		if err := k.SetProgram(program, probe(t)); err != nil {
			t.Fatal(err)
		}
		k.SetAccount(public(keyOf("data")), &Account{Owner: program, Lamports: sol, Data: make([]byte, 64)})
		raw := append([]byte{1}, ed25519.Sign(key, message)...)
		before := total(k)
		r, err := k.submit(append(raw, message...))
		after := total(k)
		switch {
		case err != nil && after != before:
			t.Errorf("the transaction was refused, but %d lamports became %d", before, after)
		case err == nil && after != before-r.Fee:
			t.Errorf("after a fee of %d, %d lamports became %d", r.Fee, before, after)
		}
	})
}

// total returns the sum of all lamports.
func total(c *chain) uint64 {
	var sum uint64
	for key := range c.state {
		sum += c.lamports(key)
	}
	return sum
}

// FuzzRPC checks that every body gets an answer in JSON.
func FuzzRPC(f *testing.F) {
	n := newNode(f, Config{})
	raw := n.sign([]identity.Key{n.payer}, transaction.Transfer(public(n.payer), public(keyOf("receiver")), sol))
	key := public(n.payer).String()
	for method := range methods {
		f.Add(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":["` + key + `",{"encoding":"base64","commitment":"processed"}]}`)
		f.Add(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":["` + base64Of(raw) + `",{"encoding":"base64"}]}`)
		f.Add(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":[["` + key + `"]]}`)
	}
	f.Add(`[{},7]`)
	fuzztest.Run(f, func(t *testing.T, body string) {
		if len(body) > maxRequest {
			return
		}
		code, text := n.post(body)
		if code != 200 || text != "" && !json.Valid([]byte(text)) {
			t.Errorf("%d %s", code, text)
		}
		if strings.Contains(text, `"result":null,"error"`) {
			t.Errorf("both a result and an error: %s", text)
		}
	})
}

// FuzzSubscribe checks that subscriptions with random parameters are refused or work.
func FuzzSubscribe(f *testing.F) {
	n := newNode(f, Config{})
	key := public(n.payer).String()
	for method := range subscribers {
		f.Add(method, `["`+key+`",{"encoding":"base64","commitment":"processed"}]`)
		f.Add(method, `[{"mentions":["`+key+`"]}]`)
	}
	fuzztest.Run(f, func(t *testing.T, method, params string) {
		subscribe, found := subscribers[method]
		if !found || !json.Valid([]byte(params)) {
			return
		}
		q := request{Method: method, Parameters: json.RawMessage(params)}
		p, err := q.parameters()
		if err != nil {
			return
		}
		if s, err := attempt(func() *subscription { return subscribe(n.endpoint, p) }); err == nil {
			s.next(n.endpoint.view(s.commitment))
		} else if toRPC(err).Code == codeInternal {
			t.Errorf("%s %s: got %v; want toRPC(err).Code != codeInternal", method, params, err)
		}
	})
}
