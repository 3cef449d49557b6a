package localnet

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/transaction"
)

// node is a served chain with one endpoint. Its time advances only when the test advances it.
type node struct {
	*chain
	server   *Server
	endpoint *Endpoint
}

func newNode(t testing.TB, c Config) *node {
	k := newChain(t, c)
	s := NewServer(k.Ledger, Options{Seed: 1})
	return &node{k, s, s.Endpoint()}
}

// next ends slots.
func (n *node) nextSlots(count int) {
	for range count {
		n.server.change(n.next)
	}
}

// post sends a body and returns the answer's status and body.
func (n *node) post(body string) (int, string) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	n.endpoint.ServeHTTP(w, r)
	answer, _ := io.ReadAll(w.Result().Body)
	return w.Code, strings.TrimSpace(string(answer))
}

// call makes a call and decodes its result.
func (n *node) call(to any, method string, params ...any) *rpcError {
	n.Helper()
	if params == nil {
		params = []any{}
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		n.Fatal(err)
	}
	_, text := n.post(string(body))
	var a struct {
		Result json.RawMessage
		Error  *rpcError
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		n.Fatalf("%s: %v", text, err)
	}
	if a.Error == nil && to != nil {
		if err := json.Unmarshal(a.Result, to); err != nil {
			n.Fatalf("%s: %v", a.Result, err)
		}
	}
	return a.Error
}

// mustCall is like call, but fails the test on an error.
func (n *node) mustCall(to any, method string, params ...any) {
	n.Helper()
	if err := n.call(to, method, params...); err != nil {
		n.Fatalf("%s: %v", method, err)
	}
}

type object = map[string]any

func base64Of(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }

// sendRaw sends a transaction without preflight.
func (n *node) sendRaw(raw []byte) string {
	n.Helper()
	var name string
	n.mustCall(&name, "sendTransaction", base64Of(raw), object{"encoding": "base64", "skipPreflight": true})
	return name
}

// transfer returns a signed transfer by the payer, with a different amount each time.
func (n *node) transfer(lamports uint64) []byte {
	n.Helper()
	return n.sign([]identity.Key{n.payer}, transaction.Transfer(public(n.payer), public(keyOf("receiver")), lamports))
}

// status returns the status that getSignatureStatuses reports, or nil.
func (n *node) status(name string) object {
	n.Helper()
	var answer struct{ Value []object }
	n.mustCall(&answer, "getSignatureStatuses", []string{name})
	return answer.Value[0]
}

func TestAnswers(t *testing.T) {
	n := newNode(t, Config{})
	key := public(n.payer).String()
	large := transaction.PublicKey{9}
	n.SetAccount(large, &Account{Owner: transaction.PublicKey{1}, Lamports: 7, Data: bytes.Repeat([]byte{1, 2}, 100)})
	n.nextSlots(40)
	for _, test := range []struct{ method, params, want string }{
		{"getHealth", `[]`, `"result":"ok"`},
		{"getSlot", `[]`, `"result":9`},
		{"getSlot", `[{"commitment":"confirmed"}]`, `"result":40`},
		{"getSlot", `[{"commitment":"processed"}]`, `"result":41`},
		{"getSlot", `[{"commitment":"sure"}]`, `"code":-32602`},
		{"getSlot", `[{"commitment":"processed","minContextSlot":42}]`, `"error":{"code":-32016,"message":"Minimum context slot has not been reached","data":{"contextSlot":41}}`},
		{"getSlot", `{}`, `"code":-32602`},
		{"getBlockHeight", `[{"commitment":"processed"}]`, `"result":41`},
		{"getBlockTime", `[3]`, `"result":1800000002`},
		{"getBlockTime", `[300]`, `"code":-32004`},
		{"getFirstAvailableBlock", `[]`, `"result":0`},
		{"getTransactionCount", `[{"commitment":"processed"}]`, `"result":1`},
		{"getEpochInfo", `[]`, `"absoluteSlot":9`},
		{"getVersion", `[]`, `"solana-core":"4.2.2"`},
		{"getBalance", `["` + key + `"]`, `"value":1000000000000`},
		{"getBalance", `["11111111111111111111111111111112"]`, `"value":0`},
		{"getBalance", `["nonsense"]`, `"code":-32602`},
		{"getBalance", `[]`, `"code":-32602`},
		{"getBalance", `[7]`, `"code":-32602`},
		{"getMinimumBalanceForRentExemption", `[0]`, `"result":890880`},
		{"getMinimumBalanceForRentExemption", `[280984]`, `"result":1956539520`},
		{"getMinimumBalanceForRentExemption", `[-1]`, `"code":-32602`},
		{"getAccountInfo", `["` + key + `"]`, `"value":{"data":"","executable":false,"lamports":1000000000000,"owner":"11111111111111111111111111111111","rentEpoch":18446744073709551615,"space":0}`},
		{"getAccountInfo", `["11111111111111111111111111111112"]`, `"value":null`},
		{"getAccountInfo", `["` + large.String() + `"]`, `"code":-32600`},
		{"getAccountInfo", `["` + large.String() + `",{"encoding":"base58","dataSlice":{"offset":1,"length":3}}]`, `"data":["g3K","base58"]`},
		{"getAccountInfo", `["` + large.String() + `",{"encoding":"base64","dataSlice":{"offset":199,"length":9}}]`, `"data":["Ag==","base64"]`},
		{"getAccountInfo", `["` + large.String() + `",{"encoding":"base64","dataSlice":{"offset":999,"length":18446744073709551615}}]`, `"data":["","base64"]`},
		{"getAccountInfo", `["` + large.String() + `",{"encoding":"base64+zstd"}]`, `"base64+zstd"]`},
		{"getAccountInfo", `["` + large.String() + `",{"encoding":"utf8"}]`, `"code":-32602`},
		{"getAccountInfo", `["SysvarC1ock11111111111111111111111111111111",{"encoding":"base64"}]`, `"owner":"Sysvar1111111111111111111111111111111111111"`},
		{"getAccountInfo", `["11111111111111111111111111111111",{"encoding":"base64"}]`, `"executable":true`},
		{"getMultipleAccounts", `[["` + key + `","11111111111111111111111111111112"]]`, `,null]`},
		{"getMultipleAccounts", `[[` + strings.Repeat(`"`+key+`",`, 100) + `"` + key + `"]]`, `"code":-32602`},
		{"getProgramAccounts", `["` + (transaction.PublicKey{1}).String() + `",{"encoding":"base64","filters":[{"dataSize":200},{"memcmp":{"offset":1,"bytes":"3"}}],"dataSlice":{"offset":0,"length":2}}]`, `"pubkey":"` + large.String() + `"`},
		{"getProgramAccounts", `["` + (transaction.PublicKey{1}).String() + `",{"encoding":"base64","filters":[{"memcmp":{"offset":0,"bytes":"3"}}]}]`, `"result":[]`},
		{"getProgramAccounts", `["` + (transaction.PublicKey{1}).String() + `",{"filters":[{}]}]`, `"code":-32602`},
		{"getSignatureStatuses", `[["x"]]`, `"code":-32602`},
		{"getSignatureStatuses", `[["` + strings.Repeat("1", 64) + `"]]`, `"value":[null]`},
		{"getTransaction", `["` + strings.Repeat("1", 64) + `","json"]`, `"result":null`},
		{"getTransaction", `["` + strings.Repeat("1", 64) + `",{"commitment":"processed"}]`, `"code":-32602`},
		{"getSignaturesForAddress", `["` + key + `",{"limit":1001}]`, `"code":-32602`},
		{"requestAirdrop", `["` + key + `",0]`, `"code":-32603`},
		{"sendTransaction", `["AAAA",{"encoding":"base64"}]`, `"code":-32602`},
		{"sendTransaction", `["AAAA",{"encoding":"base32"}]`, `"code":-32602`},
		{"sendTransaction", `["` + strings.Repeat("A", 1648) + `",{"encoding":"base64"}]`, `"code":-32602`},
		{"sendTransaction", `["` + strings.Repeat("A", 1644) + `",{"encoding":"base64"}]`, `"code":-32602`},
		{"getNonsense", `[]`, `"error":{"code":-32601,"message":"Method not found"}`},
		{"accountSubscribe", `[]`, `"code":-32601`},
	} {
		_, got := n.post(`{"jsonrpc":"2.0","id":12345678901234567890,"method":"` + test.method + `","params":` + test.params + `}`)
		if !strings.Contains(got, test.want) || !strings.Contains(got, `"id":12345678901234567890`) {
			t.Errorf("%s %.200s: %.300s, want %s", test.method, test.params, got, test.want)
		}
	}
}

func TestRequests(t *testing.T) {
	n := newNode(t, Config{})
	slot := `{"jsonrpc":"2.0","id":"a","method":"getSlot"}`
	for name, test := range map[string]struct{ body, want string }{
		"no JSON":      {`{`, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null}`},
		"nothing":      {``, `"code":-32700`},
		"a number":     {`7`, `"code":-32600`},
		"no version":   {`{"id":1,"method":"getSlot"}`, `"code":-32600`},
		"strange id":   {`{"jsonrpc":"2.0","id":{},"method":"getSlot"}`, `"code":-32600`},
		"text as id":   {slot, `{"jsonrpc":"2.0","result":0,"id":"a"}`},
		"no id":        {`{"jsonrpc":"2.0","method":"getSlot"}`, ``},
		"batch":        {`[` + slot + `,{"jsonrpc":"2.0","method":"getSlot"},{}]`, `[{"jsonrpc":"2.0","result":0,"id":"a"},{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid request"},"id":null}]`},
		"empty batch":  {`[]`, `"code":-32600`},
		"broken batch": {`[`, `"code":-32700`},
		"large batch":  {`[` + strings.Repeat(slot+",", 100) + slot + `]`, `"code":-32600`},
	} {
		if _, got := n.post(test.body); !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	if code, _ := n.post(strings.Repeat(" ", maxRequest+1)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large request: %d", code)
	}
	for want, change := range map[int]func(*http.Request){
		http.StatusMethodNotAllowed:     func(r *http.Request) { r.Method = http.MethodGet },
		http.StatusUnsupportedMediaType: func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		http.StatusOK:                   func(r *http.Request) { r.Method, r.URL.Path = http.MethodGet, "/health" },
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(slot))
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		change(r)
		w := httptest.NewRecorder()
		if n.endpoint.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%d, want %d", w.Code, want)
		}
	}
}

// TestPreflight checks that a transaction that the node refuses at once is reported with its logs.
func TestPreflight(t *testing.T) {
	n := newNode(t, Config{})
	poor := n.sign([]identity.Key{n.payer}, transaction.Transfer(public(n.payer), public(keyOf("receiver")), 5000*sol))
	forged := bytes.Clone(n.transfer(sol))
	forged[10] ^= 1
	for name, test := range map[string]struct {
		raw        []byte
		commitment Commitment
		code       int
		err        string
	}{
		"good":                   {n.transfer(sol), Processed, 0, ""},
		"again":                  {n.transfer(2 * sol), Processed, codePreflight, `"AlreadyProcessed"`},
		"fails":                  {poor, Processed, codePreflight, `{"InstructionError":[0,{"Custom":1}]}`},
		"hash newer than view":   {n.transfer(3 * sol), Finalized, codePreflight, `"AccountNotFound"`},
		"signature of something": {forged, Processed, codeSignature, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "again" {
				n.sendRaw(test.raw)
			}
			before := n.lamports(public(n.payer))
			err := n.call(nil, "sendTransaction", base64Of(test.raw), object{"encoding": "base64", "preflightCommitment": test.commitment})
			if test.code == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || err.Code != test.code || n.lamports(public(n.payer)) != before {
				t.Fatalf("%+v, want %d", err, test.code)
			}
			if test.err == "" {
				return
			}
			data, ok := err.Data.(object)
			got, _ := json.Marshal(data["err"])
			if _, lines := data["logs"].([]any); !ok || !lines || string(got) != test.err {
				t.Errorf("%s, want %s", got, test.err)
			}
		})
	}
}

// TestLandedTransaction follows a transaction until it is finalized.
func TestLandedTransaction(t *testing.T) {
	n := newNode(t, Config{Finalized: 4})
	name := n.sendRaw(n.transfer(sol))
	bad := n.sendRaw(n.transfer(5000 * sol))
	for slots, want := range map[int]string{0: "processed"} {
		if got := n.status(name); got["confirmationStatus"] != want || slots != 0 {
			t.Errorf("got %v; want got[\"confirmationStatus\"] == want and 0", got)
		}
	}
	for i, want := range []string{"confirmed", "confirmed", "confirmed", "finalized"} {
		n.nextSlots(1)
		if got := n.status(name); got["confirmationStatus"] != want || got["err"] != nil {
			t.Errorf("after %d slots: %v, want %s", i+1, got, want)
		}
	}
	if got := fmt.Sprint(n.status(bad)["err"]); got != "map[InstructionError:[0 map[Custom:1]]]" {
		t.Error(got)
	}
	var found struct {
		Slot        uint64
		Transaction [2]string
		Meta        struct {
			Fee                       uint64
			PreBalances, PostBalances []uint64
			LogMessages               []string
		}
	}
	n.mustCall(&found, "getTransaction", name, object{"encoding": "base64"})
	raw, err := base64.StdEncoding.DecodeString(found.Transaction[0])
	if tx, bad := transaction.Unmarshal(raw); err != nil || bad != nil || tx.Name().String() != name {
		t.Error(found)
	}
	if m := found.Meta; m.Fee != 5000 || m.PreBalances[0]-m.PostBalances[0] != sol+5000 || m.PostBalances[1]-m.PreBalances[1] != sol || len(m.LogMessages) != 2 {
		t.Errorf("%+v", m)
	}
	var all []struct{ Signature string }
	n.mustCall(&all, "getSignaturesForAddress", public(n.payer).String())
	if len(all) != 3 || all[0].Signature != bad || all[1].Signature != name { // and the airdrop
		t.Errorf("got %v; want len(all) == 3 and all[0].Signature == bad and all[1].Signature == name", all)
	}
	n.mustCall(&all, "getSignaturesForAddress", public(n.payer).String(), object{"before": bad, "limit": 1})
	if len(all) != 1 || all[0].Signature != name {
		t.Errorf("got %v; want len(all) == 1 and all[0].Signature == name", all)
	}
	n.mustCall(&all, "getSignaturesForAddress", public(n.payer).String(), object{"until": name})
	if len(all) != 1 || all[0].Signature != bad {
		t.Errorf("got %v; want len(all) == 1 and all[0].Signature == bad", all)
	}
}

func TestSimulate(t *testing.T) {
	n := newNode(t, Config{})
	receiver := public(keyOf("receiver")).String()
	var got struct {
		Value struct {
			Err           any
			UnitsConsumed uint64
			Accounts      []struct{ Lamports uint64 }
			Fee           uint64
		}
	}
	raw := n.transfer(sol)
	n.mustCall(&got, "simulateTransaction", base64Of(raw), object{"encoding": "base64", "commitment": "processed", "accounts": object{"addresses": []string{receiver}}})
	if v := got.Value; v.Err != nil || v.UnitsConsumed != 150 || v.Accounts[0].Lamports != sol || v.Fee != 5000 {
		t.Errorf("got %+v; want v.Err == nil and v.UnitsConsumed == 150 and v.Accounts[0].Lamports == sol and v.Fee == 5000", v)
	}
	if n.lamports(public(keyOf("receiver"))) != 0 {
		t.Error("a simulation changed something")
	}
	n.skip(200, 0)
	for want, options := range map[string]object{
		"BlockhashNotFound": {"encoding": "base64", "commitment": "processed"},
		"<nil>":             {"encoding": "base64", "commitment": "processed", "replaceRecentBlockhash": true},
	} {
		n.mustCall(&got, "simulateTransaction", base64Of(raw), options)
		if fmt.Sprint(got.Value.Err) != want {
			t.Errorf("%v, want %s", got.Value.Err, want)
		}
	}
	if err := n.call(nil, "simulateTransaction", base64Of(raw), object{"encoding": "base64", "sigVerify": true, "replaceRecentBlockhash": true}); err == nil || err.Code != codeParameters {
		t.Error(err)
	}
}
