package localnet

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/transaction"
)

// listener is a client with a WebSocket.
type listener struct {
	*testing.T
	*websocket.Conn
}

func listen(t *testing.T, e *Endpoint) *listener {
	t.Helper()
	s := httptest.NewServer(e)
	c, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(s.URL, "http"), nil) //nolint:bodyclose // the dialer keeps none open
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		s.Close()
	})
	return &listener{t, c}
}

// message is an answer or a notification.
type message struct {
	ID     *uint64
	Method string
	Error  *rpcError
	Result json.RawMessage
	Params struct {
		Subscription uint64
		Result       json.RawMessage
	}
}

func (l *listener) read() message {
	l.Helper()
	if err := l.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		l.Fatal(err)
	}
	var m message
	if err := l.ReadJSON(&m); err != nil {
		l.Fatal(err)
	}
	return m
}

// ask calls a method and returns its answer.
func (l *listener) ask(method string, params string) message {
	l.Helper()
	if err := l.WriteMessage(websocket.TextMessage, []byte(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)); err != nil {
		l.Fatal(err)
	}
	m := l.read()
	if m.ID == nil || m.Method != "" {
		l.Fatalf("%s: got %+v; want m.ID != nil and m.Method == \"\"", method, m)
	}
	return m
}

// expect checks that the next notification has the method and contains a text.
func (l *listener) expect(method, text string) {
	l.Helper()
	if m := l.read(); m.Method != method || !strings.Contains(string(m.Params.Result), text) {
		l.Errorf("%s %s, want %s with %s", m.Method, m.Params.Result, method, text)
	}
}

// quiet checks that there is no notification: the next message is the answer to a call.
func (l *listener) quiet() {
	l.Helper()
	l.ask("getSlot", "[]")
}

func TestSubscriptions(t *testing.T) {
	n := newNode(t, Config{Finalized: 4})
	l := listen(t, n.endpoint)
	receiver := public(keyOf("receiver")).String()
	for _, q := range [][2]string{
		{"slotSubscribe", `[]`},
		{"logsSubscribe", `[{"mentions":["` + receiver + `"]},{"commitment":"confirmed"}]`},
		{"logsSubscribe", `[{"mentions":["` + public(keyOf("nobody")).String() + `"]},{"commitment":"processed"}]`},
		{"accountSubscribe", `["` + receiver + `",{"encoding":"base64+zstd","commitment":"processed"}]`},
		{"accountSubscribe", `["` + receiver + `",{"encoding":"base64","commitment":"finalized"}]`},
		{"programSubscribe", `["11111111111111111111111111111111",{"encoding":"base64","commitment":"confirmed","filters":[{"dataSize":0}]}]`},
		{"rootSubscribe", `[]`},
	} {
		if m := l.ask(q[0], q[1]); m.Error != nil {
			t.Fatalf("%v: got %v; want m.Error == nil", q, m.Error)
		}
	}
	name := n.sendRaw(n.transfer(sol))
	l.expect("accountNotification", `"lamports":1000000000,`)
	l.quiet()
	n.nextSlots(1)
	l.expect("slotNotification", `{"parent":1,"root":0,"slot":2}`)
	l.expect("logsNotification", name)
	l.expect("programNotification", receiver) // in the order of the addresses' bytes
	l.expect("programNotification", public(n.payer).String())
	for slot := range 3 {
		n.nextSlots(1)
		l.expect("slotNotification", `"slot":`+string(rune('3'+slot)))
	}
	l.expect("accountNotification", `"lamports":1000000000,`)
	l.expect("rootNotification", `1`)
	if m := l.ask("signatureSubscribe", `["`+name+`",{"commitment":"finalized"}]`); m.Error != nil {
		t.Fatal(m.Error)
	}
	l.expect("signatureNotification", `"err":null`)
	n.nextSlots(1)
	l.expect("slotNotification", `"slot":6`)
	l.expect("rootNotification", `2`)
	if m := l.ask("slotUnsubscribe", `[1]`); string(m.Result) != "true" {
		t.Errorf("got %+v; want string(m.Result) == \"true\"", m)
	}
	if m := l.ask("slotUnsubscribe", `[1]`); m.Error == nil || m.Error.Code != codeParameters {
		t.Errorf("got %+v; want m.Error != nil and m.Error.Code == codeParameters", m)
	}
	n.nextSlots(1)
	l.expect("rootNotification", `3`)
	l.quiet()
}

func TestSubscriptionsRefused(t *testing.T) {
	n := newNode(t, Config{})
	l := listen(t, n.endpoint)
	for _, q := range [][2]string{
		{"logsSubscribe", `[]`}, {"logsSubscribe", `["some"]`}, {"logsSubscribe", `[{"mentions":[]}]`}, {"logsSubscribe", `[{"mentions":["x"]}]`},
		{"accountSubscribe", `["x"]`}, {"accountSubscribe", `["11111111111111111111111111111111",{"encoding":"x"}]`},
		{"signatureSubscribe", `["x"]`}, {"programSubscribe", `["11111111111111111111111111111111",{"filters":[{}]}]`},
		{"slotUnsubscribe", `["x"]`}, {"slotSubscribe", `7`},
	} {
		if m := l.ask(q[0], q[1]); q[0] != "slotSubscribe" && (m.Error == nil || m.Error.Code != codeParameters) || q[0] == "slotSubscribe" && m.Error == nil {
			t.Errorf("%v: %+v", q, m)
		}
	}
}

// TestRollback rolls back slots in which a transaction was confirmed.
func TestRollback(t *testing.T) {
	for name, again := range map[string]bool{"lost": false, "again": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Config{})
			n.nextSlots(3)
			receiver := public(keyOf("receiver"))
			l := listen(t, n.endpoint)
			l.ask("accountSubscribe", `["`+receiver.String()+`",{"commitment":"confirmed"}]`)
			l.ask("logsSubscribe", `[{"mentions":["`+receiver.String()+`"]},{"commitment":"processed"}]`)
			sent := n.sendRaw(n.transfer(sol))
			l.expect("logsNotification", sent)
			n.nextSlots(2)
			l.expect("accountNotification", `"lamports":1000000000,`)
			slot, height := n.At(Processed, 0).Slot, n.At(Processed, 0).height()
			hash, _ := n.At(Processed, 0).blockhash()
			if err := n.server.Rollback(3, again); err != nil {
				t.Fatal(err)
			}
			v := n.At(Processed, 0)
			if newest, _ := v.blockhash(); v.Slot != slot+1 || v.height() != height-2 || newest == hash || v.isValid(hash) {
				t.Errorf("slot %d of height %d after slot %d of height %d", v.Slot, v.height(), slot, height)
			}
			l.expect("accountNotification", `"lamports":0,`)
			if got := n.status(sent); (got != nil) != again || again && got["slot"] != float64(slot+1) {
				t.Errorf("status %v", got)
			}
			if again {
				l.expect("logsNotification", sent)
				n.nextSlots(1)
				l.expect("accountNotification", `"lamports":1000000000,`)
			}
			l.quiet()
			if got := n.lamports(receiver); (got != 0) != again {
				t.Errorf("%d lamports", got)
			}
			if n.status(sent) == nil { // and it can be sent again while its hash is known
				if n.sendRaw(n.transfer(sol)); n.lamports(receiver) != sol {
					t.Error("not sent again")
				}
			}
		})
	}
}

func TestRollbackEnds(t *testing.T) {
	n := newNode(t, Config{Finalized: 4})
	n.nextSlots(10)
	before := n.At(Finalized, 0).Slot
	for _, count := range []int{0, -1, 5, 100} {
		if err := n.server.Rollback(count, true); err == nil {
			t.Errorf("%d slots were rolled back", count)
		}
	}
	if err := n.server.Rollback(4, true); err != nil || n.At(Finalized, 0).Slot != before {
		t.Errorf("%v, finalized %d, before %d", err, n.At(Finalized, 0).Slot, before)
	}
}

func TestFaults(t *testing.T) {
	n := newNode(t, Config{})
	n.nextSlots(5)
	other := n.server.Endpoint()
	n.endpoint.SetFaults(Faults{Throttled: true, Retry: 3 * time.Second})
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
	w := httptest.NewRecorder()
	if n.endpoint.ServeHTTP(w, r); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "3" {
		t.Errorf("got %d %v; want w.Code == http.StatusTooManyRequests and w.Header().Get(\"Retry-After\") == \"3\"", w.Code, w.Header())
	}
	n.endpoint.SetFaults(Faults{Lost: 1})
	if lost := n.sendRaw(n.transfer(1 * sol)); n.status(lost) != nil {
		t.Error("the transaction landed")
	}
	n.endpoint.SetFaults(Faults{Lost: 0.5})
	landed := 0
	for i := range 100 {
		if n.status(n.sendRaw(n.transfer(2*sol+uint64(i)))) != nil {
			landed++
		}
	}
	if landed < 30 || landed > 70 {
		t.Errorf("%d of 100 landed, half should", landed)
	}
	n.endpoint.SetFaults(Faults{Unhealthy: true, Lag: 3})
	if err := n.call(nil, "getHealth"); err == nil || err.Code != codeUnhealthy {
		t.Error(err)
	}
	if err := n.call(nil, "sendTransaction", base64Of(n.transfer(3*sol)), object{"encoding": "base64"}); err == nil || err.Code != codeUnhealthy {
		t.Error(err)
	}
	var slot, now uint64
	n.mustCall(&slot, "getSlot", object{"commitment": "processed"})
	n.mustCall(&now, "getSlot", object{"commitment": "confirmed"})
	if slot != 3 || now != 2 || n.endpoint.view(Processed).Account(public(keyOf("receiver"))) != nil || other.view(Processed).Account(public(keyOf("receiver"))) == nil {
		t.Errorf("slots %d and %d of a node that lags", slot, now)
	}
	n.endpoint.SetFaults(Faults{Falsify: func(method string, result json.RawMessage) json.RawMessage {
		if method == "getBalance" {
			return json.RawMessage(`{"context":{"slot":9},"value":7}`)
		}
		return result
	}})
	var balance struct{ Value uint64 }
	n.mustCall(&balance, "getBalance", public(n.payer).String())
	n.mustCall(&slot, "getSlot", object{"commitment": "processed"})
	if balance.Value != 7 || slot != 6 {
		t.Errorf("%d lamports in slot %d", balance.Value, slot)
	}
}

// TestDeadEndpoint checks that connections to a dead endpoint end, and that later ones are
// accepted.
func TestDeadEndpoint(t *testing.T) {
	n := newNode(t, Config{})
	l := listen(t, n.endpoint)
	l.ask("slotSubscribe", "[]")
	n.endpoint.SetFaults(Faults{Dead: true})
	if err := l.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _, err := l.ReadMessage()
	if late, isNet := errors.AsType[net.Error](err); err == nil || isNet && late.Timeout() {
		t.Errorf("the socket is still open: %v", err)
	}
	s := httptest.NewServer(n.endpoint)
	defer s.Close()
	if a, err := http.Post(s.URL, "application/json", strings.NewReader("{}")); err == nil {
		_ = a.Body.Close()
		t.Error("answered")
	}
	n.endpoint.SetFaults(Faults{Mute: true})
	again := listen(t, n.endpoint)
	again.ask("slotSubscribe", "[]")
	n.nextSlots(1)
	again.quiet()
}

// TestExpiry checks that blockhashes are valid for exactly 150 slots.
func TestExpiry(t *testing.T) {
	n := newNode(t, Config{})
	raw := n.transfer(sol)
	_, last := n.At(Processed, 0).blockhash()
	for slots, want := range map[int]string{int(last - n.At(Processed, 0).height()): "", int(last-n.At(Processed, 0).height()) + 1: `"BlockhashNotFound"`} {
		k := newNode(t, Config{})
		k.nextSlots(slots)
		r, err := k.submit(raw)
		if got := failure(t, r, err); got != want {
			t.Errorf("after %d slots: %s, want %s", slots, got, want)
		}
	}
	n.server.Skip(151)
	if now, _ := n.At(Processed, 0).time(); now != began.Unix()+60 {
		t.Errorf("%d seconds passed, want 60", now-began.Unix())
	}
	if r, err := n.submit(raw); failure(t, r, err) != `"BlockhashNotFound"` {
		t.Error(err)
	}
	if r, err := n.submit(signed(t, transaction.Hash{1}, []identity.Key{n.payer})); failure(t, r, err) != `"BlockhashNotFound"` {
		t.Error(err)
	}
}
