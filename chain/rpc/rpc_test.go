package rpc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/chain/transaction"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a server that answers every request with the text that result returns.
func node(t *testing.T, result func(method string, params []json.RawMessage) string) Address {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			ID     uint64            `json:"id"`
			Method string            `json:"method"`
			Params []json.RawMessage `json:"params"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,%s}`, asked.ID, result(asked.Method, asked.Params))
	})
}

func serve(t *testing.T, handle http.HandlerFunc) Address {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	address, err := ParseEndpoint(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func pool(t *testing.T, addresses ...Address) *Pool {
	t.Helper()
	p, err := NewPool(Options{Endpoints: addresses, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func endpoint(t *testing.T, a Address) *Endpoint {
	t.Helper()
	return pool(t, a).Endpoints()[0]
}

// dead returns the address of a stopped node.
func dead(t *testing.T) Address {
	server := httptest.NewServer(http.NotFoundHandler())
	address, err := ParseEndpoint(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	return address
}

func heightOf(ctx context.Context, e *Endpoint) (uint64, error) { return e.BlockHeight(ctx, Confirmed) }

func TestParseEndpoint(t *testing.T) {
	for text, want := range map[string]Address{
		"https://host/v2/key":                         {"https://host/v2/key", "wss://host/v2/key"},
		"http://127.0.0.1:8899":                       {"http://127.0.0.1:8899", "ws://127.0.0.1:8899"},
		"http://127.0.0.1:8899,ws://127.0.0.1:8900/x": {"http://127.0.0.1:8899", "ws://127.0.0.1:8900/x"},
	} {
		if got, err := ParseEndpoint(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v; want nil error and %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "host", "ftp://host", "https://", "https://host,https://host", "https://host/secret,x", "ht\x00tp://x/secret"} {
		if _, err := ParseEndpoint(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestPoolRefuses(t *testing.T) {
	a := Address{HTTP: "http://a"}
	for _, endpoints := range [][]Address{nil, make([]Address, 17), {a, a}} {
		if _, err := NewPool(Options{Endpoints: endpoints}); err == nil {
			t.Errorf("%d endpoints are accepted", len(endpoints))
		}
	}
	p, err := NewPool(Options{Endpoints: []Address{{HTTP: "http://a/key1"}, {HTTP: "http://a/key2"}}})
	if err != nil || p.Endpoints()[0].Name() != "http://a" || p.Endpoints()[1].Name() != "http://a#2" {
		t.Errorf("names %v, %v", p, err)
	}
}

func TestBadAnswers(t *testing.T) {
	write := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	for name, test := range map[string]struct {
		handle http.HandlerFunc
		want   error
	}{
		"garbage":       {write("<html>"), ErrBadAnswer},
		"nothing":       {write(""), ErrBadAnswer},
		"another id":    {write(`{"id":7,"result":1}`), ErrBadAnswer},
		"no result":     {write(`{"id":1}`), ErrBadAnswer},
		"a text":        {write(`{"id":1,"result":"x"}`), ErrBadAnswer},
		"a negative":    {write(`{"id":1,"result":-1}`), ErrBadAnswer},
		"deep":          {write(`{"id":1,"result":` + strings.Repeat("[", 500_000)), ErrBadAnswer},
		"huge":          {write(`{"id":1,"result":"` + strings.Repeat("x", 2*smallAnswer) + `"}`), ErrBadAnswer},
		"a page of 500": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oops", http.StatusInternalServerError) }, ErrBadAnswer},
		"elsewhere":     {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, ErrBadAnswer},
		"too often":     {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusTooManyRequests) }, ErrBusy},
		"slow":          {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, context.DeadlineExceeded},
		"slow, unread":  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, ErrUnreachable},
		"hangs up":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrUnreachable},
		"half an answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			_, _ = io.WriteString(w, "{")
		}, ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 30 * time.Second
			if strings.HasPrefix(name, "slow") {
				timeout = 300 * time.Millisecond
			}
			p, err := NewPool(Options{Endpoints: []Address{serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				test.handle(w, r)
			})}, Timeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			e := p.Endpoints()[0]
			_, err = heightOf(t.Context(), e)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), e.Name()) || !strings.Contains(err.Error(), "getBlockHeight") {
				t.Fatalf("error %v, want %v", err, test.want)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if !e.Resting() {
				t.Error("the node is asked again before its time")
			}
		})
	}
}

func TestErrorsHaveNoKeys(t *testing.T) {
	gone := dead(t)
	gone.HTTP += "/v2/secret?api-key=secret"
	gone.WS += "/v2/secret"
	e := endpoint(t, gone)
	if _, err := heightOf(t.Context(), e); !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
	if err := e.ListenLogs(t.Context(), transaction.PublicKey{}, Confirmed, nil, nil); !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}

func TestAnyGoesOnToTheNext(t *testing.T) {
	good := node(t, func(string, []json.RawMessage) string { return `"result":5` })
	behind := node(t, func(string, []json.RawMessage) string { return `"error":{"code":-32016,"message":"behind"}` })
	p := pool(t, dead(t), behind, good)
	for range 3 {
		if height, err := Any(t.Context(), p, heightOf); err != nil || height != 5 {
			t.Fatalf("height %d, %v", height, err)
		}
	}
	for i, e := range p.Endpoints()[:2] {
		if calls := e.calls.Load(); calls != 1 {
			t.Errorf("node %d was asked %d times, want once", i, calls)
		}
	}
}

func TestAnyTakesARefusal(t *testing.T) {
	refuses := node(t, func(string, []json.RawMessage) string { return `"error":{"code":-32602,"message":"bad"}` })
	good := node(t, func(string, []json.RawMessage) string { return `"result":5` })
	p := pool(t, refuses, good)
	_, err := Any(t.Context(), p, heightOf)
	if refused, ok := errors.AsType[*nodeError](err); !ok || refused.Code != -32602 {
		t.Errorf("error %v", err)
	}
	if p.Endpoints()[0].Resting() {
		t.Error("a node that refuses counts as failed")
	}
}

func TestAnyWaitsForABusyNode(t *testing.T) {
	var asked atomic.Int32
	busy := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "", http.StatusTooManyRequests)
			return
		}
		_, _ = io.WriteString(w, `{"id":2,"result":5}`)
	})
	p := pool(t, busy)
	if _, err := Any(t.Context(), p, heightOf); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "1s") {
		t.Fatalf("error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Any(ctx, p, heightOf); !errors.Is(err, context.DeadlineExceeded) || asked.Load() != 1 {
		t.Fatalf("error %v after %d requests", err, asked.Load())
	}
	begin := time.Now()
	if height, err := Any(t.Context(), p, heightOf); err != nil || height != 5 || time.Since(begin) < 500*time.Millisecond {
		t.Fatalf("height %d, %v after %v", height, err, time.Since(begin))
	}
}

func TestHealth(t *testing.T) {
	now := time.Unix(1000, 0)
	var h health
	for i, want := range []time.Duration{200, 400, 800, 1600, 3200, 6400, 10_000, 10_000} {
		h.failed(now, 0, busyPause)
		if got := h.wait(now); got != want*time.Millisecond {
			t.Errorf("after failure %d: %v, want %v ms", i+1, got, want)
		}
		now = h.again
	}
	h.failed(now, 0, gonePause)
	if got := h.wait(now); got != gonePause {
		t.Errorf("pause of %v for an unreachable node", got)
	}
	now = h.again
	h.failed(now, 30*time.Second, busyPause)
	if got := h.wait(now); got != 30*time.Second {
		t.Errorf("the node asked for 30 s, got %v", got)
	}
	if other := (health{failures: 1}); other.compare(h, now) >= 0 || h.compare(h, now) != 0 {
		t.Error("want the available endpoint first")
	}
	h.succeeded()
	if h.wait(now) != 0 {
		t.Error("an answer does not change the health")
	}
}

// packed returns an account in the format of nodes.
func packed(data []byte) string {
	writer, _ := zstd.NewWriter(nil)
	defer func() { _ = writer.Close() }()
	return fmt.Sprintf(`{"lamports":5,"owner":%q,"executable":false,"rentEpoch":18446744073709551615,"data":[%q,"base64+zstd"]}`,
		transaction.PublicKey{9}, base64.StdEncoding.EncodeToString(writer.EncodeAll(data, nil)))
}

func TestAccounts(t *testing.T) {
	data := make([]byte, 281_000)
	data[7] = 1
	e := endpoint(t, node(t, func(method string, params []json.RawMessage) string {
		switch method {
		case "getAccountInfo":
			if got := string(params[1]); got != `{"encoding":"base64+zstd","commitment":"confirmed"}` {
				t.Errorf("parameters %s", got)
			}
			return `"result":{"context":{"slot":77},"value":` + packed(data) + `}`
		case "getMultipleAccounts":
			if got := string(params[1]); got != `{"encoding":"base64","commitment":"processed","dataSlice":{"offset":0,"length":3},"minContextSlot":4}` {
				t.Errorf("parameters %s", got)
			}
			return `"result":{"context":{"slot":78},"value":[null,{"lamports":5,"owner":"11111111111111111111111111111111","data":["AQID","base64"]}]}`
		default:
			if got := string(params[1]); !strings.Contains(got, `{"dataSize":9}`) || !strings.Contains(got, `"offset":3`) {
				t.Errorf("parameters %s", got)
			}
			return fmt.Sprintf(`"result":[{"pubkey":%q,"account":%s}]`, transaction.PublicKey{3}, packed([]byte("abc")))
		}
	}))
	account, slot, err := e.Account(t.Context(), transaction.PublicKey{1}, Query{Commitment: Confirmed})
	if err != nil || slot != 77 || account.Lamports != 5 || account.Owner != (transaction.PublicKey{9}) || len(account.Data) != len(data) || account.Data[7] != 1 {
		t.Fatalf("slot %d, %v", slot, err)
	}
	accounts, slot, err := e.Accounts(t.Context(), make([]transaction.PublicKey, 2), Query{Commitment: Processed, Slice: &Slice{0, 3}, MinSlot: 4})
	if err != nil || slot != 78 || accounts[0] != nil || string(accounts[1].Data) != "\x01\x02\x03" {
		t.Fatalf("accounts %v, %v", accounts, err)
	}
	if _, _, err := e.Accounts(t.Context(), make([]transaction.PublicKey, 3), Query{Commitment: Processed, Slice: &Slice{0, 3}, MinSlot: 4}); !errors.Is(err, ErrBadAnswer) {
		t.Errorf("two accounts for three: %v", err)
	}
	found, err := e.ProgramAccounts(t.Context(), transaction.PublicKey{1}, 9, []Filter{{3, []byte("x")}}, Query{})
	if err != nil || len(found) != 1 || found[0].Key != (transaction.PublicKey{3}) || string(found[0].Data) != "abc" {
		t.Fatalf("accounts %v, %v", found, err)
	}
}

// TestBombsAreRefused checks that small data that decompresses to large data is refused.
func TestBombsAreRefused(t *testing.T) {
	bomb := packed(make([]byte, 100<<20))
	if len(bomb) > 100_000 {
		t.Fatalf("%d bytes", len(bomb))
	}
	e := endpoint(t, node(t, func(string, []json.RawMessage) string { return `"result":{"context":{"slot":77},"value":` + bomb + `}` }))
	if _, _, err := e.Account(t.Context(), transaction.PublicKey{1}, Query{}); !errors.Is(err, ErrBadAnswer) {
		t.Errorf("error %v", err)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"id":1,"result":{"context":{"slot":7},"value":` + packed([]byte("abc")) + `}}`))
	f.Add([]byte(`{"id":1,"result":{"value":{"data":["AQID","base64"],"owner":"11111111111111111111111111111111"}}}`))
	f.Add([]byte(`{"id":1,"error":{"code":-32002,"message":"m","data":{"err":{"InstructionError":[0,{"Custom":1}]}}}}`))
	f.Add([]byte(`{"method":"logsNotification","params":{"result":{"context":{"slot":5},"value":{"signature":"1","err":null,"logs":["Program data: YQ=="]}},"subscription":3}}`))
	f.Add([]byte(`{"id":1,"result":3}`))
	fuzztest.Run(f, func(t *testing.T, b []byte) {
		var found atSlot[*rawAccount]
		_ = decodeAnswer(b, 200, 1, &found)
		if account, err := found.Value.decode(); err == nil && account != nil && len(account.Data) > maxData {
			t.Errorf("%d bytes", len(account.Data))
		}
		var statuses atSlot[[]*Status]
		_ = decodeAnswer(b, 200, 1, &statuses)
		l := listening{accepted: true, name: 3}
		if logs, _, err := l.take(b); err == nil && logs != nil {
			_, _ = ProgramData(logs.Logs, transaction.PublicKey{1})
		}
	})
}
