package talk

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/net/admission"
)

// fake is a serve-model without a model.
type fake struct {
	chats bool
	text  string
	hold  chan struct{} // answers wait until it is closed; nil: they do not wait

	mu      sync.Mutex
	bodies  []map[string]any
	running atomic.Int32
	most    atomic.Int32 // largest number of concurrent answers
	dropped atomic.Int32 // requests that the page's server ended
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.URL.Path == "/v1/models" {
		_, _ = fmt.Fprintf(w, `{"data":[{"id":"run","max_model_len":256,"chats":%v}]}`, f.chats)
		return
	}
	n := f.running.Add(1)
	defer f.running.Add(-1)
	f.most.Store(max(f.most.Load(), n))
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.mu.Lock()
	f.bodies = append(f.bodies, body)
	f.mu.Unlock()
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-r.Context().Done():
			f.dropped.Add(1)
			return
		}
	}
	if prompt, _ := body["prompt"].(string); strings.HasPrefix(prompt, "long") {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"too many tokens","code":"context_length_exceeded"}}`)
		return
	}
	text, _ := json.Marshal(f.text)
	_, _ = fmt.Fprintf(w, `{"choices":[{"text":%s,"message":{"content":%s},"finish_reason":"length"}]}`, text, text)
}

// newPage returns a page's server with a chat, and the model behind it.
func newPage(t *testing.T, f *fake) (*httptest.Server, *Model) {
	t.Helper()
	upstream := httptest.NewServer(f)
	t.Cleanup(upstream.Close)
	m, err := New(upstream.Listener.Addr().String(), "secret")
	if err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return m.Offer(t.Context(), "run").Ready })
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.ServeAnswer(w, r, "run") }))
	t.Cleanup(page.Close)
	t.Cleanup(m.client.CloseIdleConnections)
	return page, m
}

// unlimited removes the limit of each network, because all requests of a test come from one network.
func unlimited(m *Model) { m.rates = admission.NewKeyLimits[netip.Prefix](1e6, 1e6) }

// post sends a request and returns the status and the body of the answer.
func post(ctx context.Context, address, body string, header ...string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		if request.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			request.Host = header[i+1]
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func must(t *testing.T, status int, address, body string, header ...string) string {
	t.Helper()
	got, text, err := post(t.Context(), address, body, header...)
	if err != nil || got != status {
		t.Errorf("%.100s: status %d, %v, %.200q, want status %d", body, got, err, text, status)
	}
	return text
}

const question = `{"messages":[{"role":"user","content":"a <b>"}]}`

// TestAnswers checks the requests that the model gets, and that its texts contain no control characters.
func TestAnswers(t *testing.T) {
	for _, chats := range []bool{true, false} {
		f := &fake{chats: chats, text: "<img src=x>\x1b[31m\u202eb\n"}
		page, m := newPage(t, f)
		var got Answer
		if err := json.Unmarshal([]byte(must(t, http.StatusOK, page.URL, question)), &got); err != nil {
			t.Fatal(err)
		}
		if want := (Answer{"<img src=x>\ufffd[31m\ufffdb\n", true}); got != want {
			t.Errorf("answer %+v, want %+v", got, want)
		}
		sent := f.bodies[0]
		if sent["model"] != "run" || sent["max_tokens"] != 128.0 || (sent["prompt"] == "a <b>") == chats || (sent["messages"] != nil) != chats {
			t.Errorf("the model gets %v", sent)
		}
		if offer := m.Offer(t.Context(), "run"); offer == nil || *offer != (Offer{true, chats, 256}) {
			t.Errorf("offer %+v", offer)
		}
		if m.Offer(t.Context(), "other") != nil {
			t.Error("the page offers a chat with the model of another run")
		}
	}
}

// TestConversation checks that a conversation reaches a model with a chat template only.
func TestConversation(t *testing.T) {
	turns := `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":""},{"role":"user","content":"b"}]}`
	for chats, status := range map[bool]int{true: http.StatusOK, false: http.StatusBadRequest} {
		page, _ := newPage(t, &fake{chats: chats})
		must(t, status, page.URL, turns)
	}
}

// TestRefusals sends hostile requests. None of them reaches the model.
func TestRefusals(t *testing.T) {
	f := &fake{chats: true}
	page, _ := newPage(t, f)
	message := func(role, content string) string { return fmt.Sprintf(`{"role":%q,"content":%q}`, role, content) }
	of := func(messages ...string) string { return `{"messages":[` + strings.Join(messages, ",") + `]}` }
	many := make([]string, maxMessages+2)
	for i := range many {
		many[i] = message([]string{"user", "assistant"}[i%2], "a")
	}
	for _, test := range []struct {
		status int
		body   string
		header []string
	}{
		{400, "", nil}, {400, "{", nil}, {400, "[]", nil}, {400, of(), nil}, {400, question + question, nil},
		{400, `{"messages":[],"max_tokens":100000}`, nil}, {400, `{"messages":[{"role":"user","content":"a"}],"max_tokens":100000}`, nil},
		{400, of(message("system", "a")), nil}, {400, of(message("user", "a"), message("assistant", "b")), nil}, {400, of(message("user", "a"), message("user", "b"), message("user", "c")), nil},
		{400, of(message("user", " ")), nil}, {400, of(message("user", strings.Repeat("a", maxText+1))), nil}, {400, of(many...), nil},
		{400, `{"messages":[{"role":"user","content":"\u001b[31m"}]}`, nil}, {400, `{"messages":[{"role":"user","content":"\u202e"}]}`, nil}, {400, `{"messages":[{"role":"user","content":"\u0000"}]}`, nil},
		{413, of(message("user", strings.Repeat("a", maxBody))), nil},
		{415, question, []string{"Content-Type", "text/plain"}}, {415, question, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{403, question, []string{"Origin", "https://evil.example"}}, {403, question, []string{"Origin", "null"}}, {403, question, []string{"Sec-Fetch-Site", "cross-site"}}, {403, question, []string{"Sec-Fetch-Site", "same-site"}},
		{403, question, []string{"Host", "evil.example"}}, {403, question, []string{"Host", "evil.example:80", "Origin", "http://evil.example:80"}}, {403, question, []string{"Host", "localhost.evil.example"}},
	} {
		must(t, test.status, page.URL, test.body, test.header...)
	}
	if len(f.bodies) > 0 {
		t.Errorf("the model got %v", f.bodies)
	}
	must(t, http.StatusOK, page.URL, question, "Host", "localhost:1", "Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:1")
}

// TestTooLong checks that the reader learns that a text exceeds the model's context.
func TestTooLong(t *testing.T) {
	page, _ := newPage(t, &fake{})
	must(t, http.StatusRequestEntityTooLarge, page.URL, `{"messages":[{"role":"user","content":"long text"}]}`)
}

// TestOneAtATime sends many requests at once: one is running, some wait, and the server refuses the rest.
func TestOneAtATime(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	page, m := newPage(t, f)
	unlimited(m)
	const readers = 3 * maxWaiting
	status := make(chan int, readers)
	for range readers {
		go func() {
			got, _, _ := post(t.Context(), page.URL, question)
			status <- got
		}()
	}
	for range readers - maxWaiting {
		if got := <-status; got != http.StatusTooManyRequests {
			t.Errorf("status %d, want %d", got, http.StatusTooManyRequests)
		}
	}
	close(f.hold)
	for range maxWaiting {
		if got := <-status; got != http.StatusOK {
			t.Errorf("status %d of a waiting request", got)
		}
	}
	if f.most.Load() != 1 {
		t.Errorf("%d answers ran at the same time", f.most.Load())
	}
}

// TestRateOfANetwork checks that a network that asks too often has to wait.
func TestRateOfANetwork(t *testing.T) {
	page, _ := newPage(t, &fake{})
	for range burst {
		must(t, http.StatusOK, page.URL, question)
	}
	must(t, http.StatusTooManyRequests, page.URL, question)
}

// TestReaderLeaves checks that the model stops when the reader has disconnected, and that the next reader gets an answer.
func TestReaderLeaves(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	page, m := newPage(t, f)
	unlimited(m)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() { defer close(left); _, _, _ = post(ctx, page.URL, question) }()
	await(t, func() bool { return f.running.Load() == 1 })
	leave()
	<-left
	await(t, func() bool { return f.dropped.Load() == 1 })
	close(f.hold)
	must(t, http.StatusOK, page.URL, question)
}

// TestSlowBody checks that a reader whose request does not arrive occupies no slot.
func TestSlowBody(t *testing.T) {
	page, m := newPage(t, &fake{})
	unlimited(m)
	for range 2 * maxWaiting {
		conn, err := net.Dial("tcp", page.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
	}
	must(t, http.StatusOK, page.URL, question)
}

// TestSilentModel checks that a model's server that accepts connections but does not answer does not block readers, who
// get its last description.
func TestSilentModel(t *testing.T) {
	silent := make(chan struct{})
	var asked atomic.Int32
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || len(body) > 0 {
			t.Errorf("%s has the body %q, %v", r.URL.Path, body, err)
		}
		if asked.Add(1) > 1 {
			<-silent
		}
		_, _ = io.WriteString(w, `{"data":[{"id":"run","max_model_len":256}]}`)
	}))
	defer upstream.Close()
	defer close(silent)
	m, err := New(upstream.Listener.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	ready := func() bool { offer := m.Offer(t.Context(), "run"); return offer != nil && offer.Ready }
	await(t, ready)
	m.mu.Lock()
	m.looked = time.Time{}
	m.mu.Unlock()
	for range 3 {
		m.Offer(t.Context(), "run")
	}
	if asked.Load() > 2 {
		t.Errorf("%d requests at once for the description", asked.Load()-1)
	}
	await(t, func() bool { return !ready() })
}

// TestDeadModel checks what readers see while the model's process is dead, and after its next start.
func TestDeadModel(t *testing.T) {
	f := &fake{}
	upstream := httptest.NewServer(f)
	address := upstream.Listener.Addr().String()
	m, err := New(address, "secret")
	if err != nil {
		t.Fatal(err)
	}
	later := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.looked = time.Time{}
	}
	ready := func() bool { offer := m.Offer(t.Context(), "run"); return offer != nil && offer.Ready }
	await(t, ready)
	upstream.CloseClientConnections()
	upstream.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.ServeAnswer(w, r, "run") }))
	defer page.Close()
	must(t, http.StatusBadGateway, page.URL, question) // the description is not outdated yet
	later()
	await(t, func() bool { return !ready() })
	must(t, http.StatusBadGateway, page.URL, question)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("the port is in use again: %v", err)
	}
	again := &http.Server{Handler: f}
	go func() { _ = again.Serve(listener) }()
	defer func() { _ = again.Close() }()
	later()
	await(t, ready)
	must(t, http.StatusOK, page.URL, question)
}

// TestHostileServer checks answers of a program that is not serve-model.
func TestHostileServer(t *testing.T) {
	for answer, padding := range map[string]string{
		"": "", "{}": "", `{"choices":[]}`: "", `{"choices":[{},{}]}`: "", strings.Repeat("a", 2*maxReply): "", `{"data":[{"id":"run","max_model_len":-5}]}`: "",
		`{"choices":[{}]}`: strings.Repeat("a", 2*maxHeader),
	} {
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models" && !strings.Contains(answer, "data") {
				_, _ = io.WriteString(w, `{"data":[{"id":"run","max_model_len":256}]}`)
				return
			}
			w.Header().Set("Padding", padding)
			_, _ = io.WriteString(w, answer)
		}))
		m, err := New(upstream.Listener.Addr().String(), "")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(answer, "data") {
			await(t, func() bool { return m.Offer(t.Context(), "run").Ready })
		}
		page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.ServeAnswer(w, r, "run") }))
		must(t, http.StatusBadGateway, page.URL, question)
		page.Close()
		upstream.Close()
	}
}

func TestAddress(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1", ":8000", "127.0.0.1:0", "127.0.0.1:x", "http://127.0.0.1:8000", "a:70000"} {
		if _, err := New(address, ""); err == nil {
			t.Errorf("%q is an address", address)
		}
	}
}

// TestPlain checks the texts that pages show.
func TestPlain(t *testing.T) {
	if got := Plain("a\r\nb\rc\r", 20); got != "a\nb\ufffdc\ufffd" {
		t.Errorf("ends of lines: %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		text, n := string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))+rapid.String().Draw(t, "more"), rapid.IntRange(0, 40).Draw(t, "n")
		got := Plain(text, n)
		if len(got) > n || !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
		for _, r := range got {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Errorf("%q contains a control character", got)
			}
		}
	})
}

func await(t *testing.T, what func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !what(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing happened for 10 s")
		}
	}
}
