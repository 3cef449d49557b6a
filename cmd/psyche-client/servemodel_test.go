package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// answering starts serve-model. It returns the printed address, and a function that interrupts the
// command and returns its exit code.
func answering(t *testing.T, args ...string) (url string, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	printed := make(chan string, 1)
	var mu sync.Mutex
	var all bytes.Buffer
	at := regexp.MustCompile(`answers at (http://\S+)\n`)
	out := writer(func(line []byte) {
		mu.Lock()
		defer mu.Unlock()
		all.Write(line)
		if found := at.FindSubmatch(line); found != nil {
			printed <- string(found[1])
		}
	})
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"serve-model", "--http-addr", "127.0.0.1:0", "--threads", "1"}, args...), terminal{io.Discard, out})
	}()
	stop = func() int { cancel(); return <-code }
	select {
	case url = <-printed:
	case n := <-code:
		cancel()
		t.Fatalf("exit code %d: %s", n, all.String())
	}
	return url, stop
}

// completion is the part of an answer, or of an event, that tests examine.
type completion struct {
	Choices []struct {
		Index    int
		Text     string
		Logprobs struct {
			Tokens   []string
			Logprobs []float64            `json:"token_logprobs"`
			Top      []map[string]float64 `json:"top_logprobs"`
		}
		Message, Delta struct{ Content string }
		FinishReason   string `json:"finish_reason"`
	}
	Usage struct {
		Completion int `json:"completion_tokens"`
	}
}

func post(t *testing.T, url, body string) string {
	t.Helper()
	r, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: got %s %s, %v; want nil error and r.StatusCode == http.StatusOK", body, r.Status, text, err)
	}
	return string(text)
}

func completed(t *testing.T, text string) (c completion) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &c); err != nil || len(c.Choices) > 1 {
		t.Fatalf("%s: got %v; want nil error and len(c.Choices) <= 1", text, err)
	}
	return c
}

// TestServeModel compares with generate: the answers to a prompt and to a message are the same
// texts, whole and streamed, also if several texts are generated in turns.
func TestServeModel(t *testing.T) {
	requireTorch(t)
	model, _ := toy(t)
	template := write(t, filepath.Join(t.TempDir(), "chat.jinja"), []byte("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<model>"))
	url, stop := answering(t, "--model", model, "--chat-template", template)
	generated := strings.TrimSuffix(succeed(t, "generate", "--model", model, "--prompt", "<user>What<model>", "--temperature", "0", "--max-tokens", "15", "--threads", "1"), "\n")
	want := string([]rune(strings.TrimPrefix(generated, "<user>What<model>"))) // JSON cannot contain other bytes
	const chat = `"model":"model","temperature":0,"max_tokens":15,"messages":[{"role":"user","content":"What"}]`
	var turns sync.WaitGroup
	for range 3 {
		turns.Go(func() {
			one := completed(t, post(t, url+"/chat/completions", `{`+chat+`}`)).Choices[0]
			if one.Message.Content != want || one.FinishReason != "length" {
				t.Errorf("a chat gave %q, %s, want %q", one.Message.Content, one.FinishReason, want)
			}
		})
	}
	turns.Wait()
	if one := completed(t, post(t, url+"/completions", `{"model":"model","temperature":0,"max_tokens":15,"prompt":"<user>What<model>"}`)); one.Choices[0].Text != want || one.Usage.Completion != 15 {
		t.Errorf("a completion gave %q, %d tokens, want %q", one.Choices[0].Text, one.Usage.Completion, want)
	}
	streamed := ""
	for line := range strings.Lines(post(t, url+"/chat/completions", `{"stream":true,`+chat+`}`)) {
		if data, ok := strings.CutPrefix(line, "data: {"); ok {
			streamed += completed(t, "{"+data).Choices[0].Delta.Content
		}
	}
	if streamed != want {
		t.Errorf("a stream gave %q, want %q", streamed, want)
	}
	drawn := func(seed string) string {
		return completed(t, post(t, url+"/completions", `{"model":"model","prompt":"What","seed":`+seed+`}`)).Choices[0].Text
	}
	checkLists(t, url, want)
	if a, again, b := drawn("1"), drawn("1"), drawn("2"); a != again || a == b {
		t.Errorf("seeds 1, 1, 2 gave %q, %q, %q", a, again, b)
	}
	if code := stop(); code != 0 {
		t.Errorf("interrupted: exit code %d", code)
	}
}

// checkLists checks that each text of a list of prompts equals the text of its prompt alone, with
// the most likely tokens in a greedy text.
func checkLists(t *testing.T, url, want string) {
	t.Helper()
	const asked = `{"model":"model","temperature":0,"max_tokens":15,"logprobs":1,"prompt":["<user>What<model>","What",`
	var several completion
	if err := json.Unmarshal([]byte(post(t, url+"/completions", asked+`"<user>What<model>"]}`)), &several); err != nil || len(several.Choices) != 3 {
		t.Fatalf("got %+v, %v; want nil error and len(several.Choices) == 3", several, err)
	}
	alone := completed(t, post(t, url+"/completions", `{"model":"model","temperature":0,"max_tokens":15,"prompt":[87,104,97,116]}`)).Choices[0]
	for i, text := range []string{want, alone.Text, want} {
		one := several.Choices[i]
		if one.Text != text || one.Index != i || len(one.Logprobs.Logprobs) != 15 || len(one.Logprobs.Top) != 15 || several.Usage.Completion != 45 {
			t.Fatalf("choice %d is %+v, want %q", i, one, text)
		}
		for j, logprob := range one.Logprobs.Logprobs {
			if top := one.Logprobs.Top[j]; len(top) != 1 || top[one.Logprobs.Tokens[j]] != logprob || logprob > 0 {
				t.Errorf("token %d has %v, the likeliest %v", j, logprob, top)
			}
		}
	}
}

func TestServeModelRejects(t *testing.T) {
	model, _ := toy(t)
	dir := t.TempDir()
	serve := []string{"serve-model", "--http-addr", "127.0.0.1:0", "--model", model}
	t.Setenv(apiKeyVariable, "")
	fail(t, exitUsage, "empty key file", append(serve, "--api-key-file", write(t, filepath.Join(dir, "empty"), nil))...)
	fail(t, exitUsage, "key file of two lines", append(serve, "--api-key-file", write(t, filepath.Join(dir, "two"), []byte("a\nb\n")))...)
	fail(t, exitFailure, "unknown tag", append(serve, "--chat-template", write(t, filepath.Join(dir, "bad.jinja"), []byte("{% nosuch %}")))...)
	fail(t, exitUsage, "missing model", "serve-model", "--model", filepath.Join(dir, "none"))
	t.Setenv(apiKeyVariable, "a b")
	fail(t, exitUsage, "key variable of two lines", serve...)
	requireTorch(t)
	if err := os.Unsetenv(apiKeyVariable); err != nil {
		t.Fatal(err)
	}
	fail(t, exitUsage, "nothing runs", append(serve, "--max-running", "0")...)
}

func TestServeModelNeedsItsKey(t *testing.T) {
	requireTorch(t)
	model, _ := toy(t)
	key := write(t, filepath.Join(t.TempDir(), "key"), []byte("secret\n"))
	url, stop := answering(t, "--model", model, "--api-key-file", key, "--name", "mine")
	defer stop()
	for sent, status := range map[string]int{"": http.StatusUnauthorized, "Bearer secret": http.StatusOK} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/models/mine", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", sent)
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != status {
			t.Errorf("%q: %s, want %d", sent, got.Status, status)
		}
	}
}
