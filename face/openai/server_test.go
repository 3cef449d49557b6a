package openai

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

// says is a model of bytes that writes a text, whatever the prompt.
func says(text string) func(context.Context, []int32, Options, func(int32) error) error {
	return func(ctx context.Context, _ []int32, o Options, emit func(int32) error) error {
		for i := range min(len(text), o.MaxTokens) {
			if o.Observe != nil {
				logits := make([]float32, 256)
				logits[text[i]] = 30
				o.Observe(logits)
			}
			if err := errors.Join(ctx.Err(), emit(int32(text[i]))); err != nil {
				return fmt.Errorf("the model: %w", err)
			}
		}
		return nil
	}
}

func described(t *testing.T, tokens func(context.Context, []int32, Options, func(int32) error) error) Model {
	t.Helper()
	template := parsed(t, "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<model>")
	return Model{Name: "toy", Context: 100, Vocab: 256, Tokenizer: tokenizer.Bytes(), Ends: []int32{0}, Template: template, Tokens: tokens}
}

func parsed(t *testing.T, source string) *chat.Template {
	t.Helper()
	template, err := chat.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

var limits = Limits{Running: 1, Waiting: 1, Time: time.Minute}

func start(t *testing.T, m Model, l Limits, key string) (url string) {
	t.Helper()
	s, err := New(m, l, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return web.URL
}

// received is an answer. The end of the test closes its body.
type received struct {
	StatusCode int
	Header     http.Header
	Body       io.ReadCloser
}

func ask(t *testing.T, method, url, body string, header ...string) *received {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return &received{answer.StatusCode, answer.Header, answer.Body}
}

func text(t *testing.T, r *received) string {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// reply has the fields of answers and events that tests examine.
type reply struct {
	ID, Object, Model string
	Choices           []struct {
		Index          int
		Text           string
		Message, Delta struct{ Role, Content string }
		FinishReason   *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
	Error *struct{ Message, Type, Param, Code string }
}

func parse(t *testing.T, body string) (r reply) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	return r
}

const hello = `"model":"toy","messages":[{"role":"user","content":"Hi"}]`

func TestChat(t *testing.T) {
	var prompt []int32
	var chosen Options
	url := start(t, described(t, func(ctx context.Context, ids []int32, o Options, emit func(int32) error) error {
		prompt, chosen = ids, o
		return says("Hello, you")(ctx, ids, o, emit)
	}), limits, "")
	body := text(t, ask(t, "POST", url+"/v1/chat/completions", `{`+hello+`,"seed":-1,"temperature":0.5,"top_p":0.25,"user":"me"}`))
	got := parse(t, body)
	if string(bytesOf(prompt)) != "<user>Hi<model>" || !reflect.DeepEqual(chosen, Options{MaxTokens: 85, Temperature: 0.5, TopP: 0.25, Seed: 1<<64 - 1}) {
		t.Errorf("the model got %q, %+v", bytesOf(prompt), chosen)
	}
	if got.Object != "chat.completion" || got.Choices[0].Message.Role != "assistant" || got.Choices[0].Message.Content != "Hello, you" ||
		*got.Choices[0].FinishReason != "stop" || got.Usage.Prompt != 15 || got.Usage.Completion != 10 || got.Usage.Total != 25 {
		t.Errorf("answer %s", body)
	}
	got = parse(t, text(t, ask(t, "POST", url+"/v1/completions", `{"model":"toy","prompt":["a"],"max_tokens":5}`)))
	if got.Object != "text_completion" || got.Choices[0].Text != "Hello" || *got.Choices[0].FinishReason != "length" {
		t.Errorf("completion %+v", got)
	}
	if text(t, ask(t, "POST", url+"/v1/completions", `{"model":"toy","prompt":"a"}`)); chosen.MaxTokens != 16 {
		t.Errorf("%d tokens by default", chosen.MaxTokens)
	}
	if list := text(t, ask(t, "GET", url+"/v1/models", "")); !strings.Contains(list, `"id":"toy"`) || !strings.Contains(list, `"object":"list"`) {
		t.Errorf("models %s", list)
	}
	if one := text(t, ask(t, "GET", url+"/v1/models/toy", "")); parse(t, one).ID != "toy" {
		t.Errorf("model %s", one)
	}
	if health := text(t, ask(t, "GET", url+"/healthz", "")); health != `{"running":0,"status":"ok","waiting":0}`+"\n" {
		t.Errorf("health %s", health)
	}
}

func bytesOf(ids []int32) (text []byte) {
	for _, id := range ids {
		text = append(text, byte(id))
	}
	return text
}

// stream reads the events of an answer.
func stream(t *testing.T, body string) (whole, finish string, events []reply) {
	t.Helper()
	parts := strings.Split(body, "\n\n")
	if len(parts) < 2 || parts[len(parts)-2] != "data: [DONE]" || parts[len(parts)-1] != "" {
		t.Fatalf("a stream ends with %q", parts[max(0, len(parts)-3):])
	}
	for _, part := range parts[:len(parts)-2] {
		data, ok := strings.CutPrefix(part, "data: ")
		if !ok {
			t.Fatalf("event %q", part)
		}
		event := parse(t, data)
		events = append(events, event)
		for _, choice := range event.Choices {
			whole += choice.Delta.Content + choice.Text
			if choice.FinishReason != nil {
				finish += *choice.FinishReason
			}
		}
	}
	return whole, finish, events
}

// TestStreamedAnswersEqualWholeAnswers compares streamed with whole answers: characters of several
// tokens, bytes outside of characters, and stop strings that begin in one token and end in a later
// token.
func TestStreamedAnswersEqualWholeAnswers(t *testing.T) {
	for _, test := range []struct{ says, more, want, finish string }{
		{"naïve 日本 🙂", `,"max_tokens":50`, "naïve 日本 🙂", "stop"},
		{"a\xff\xe6\x97b\xf0\x9f", ``, "a\ufffd\ufffd\ufffdb\ufffd\ufffd", "stop"},
		{"one two three", `,"max_tokens":5`, "one t", "length"},
		{"日本", `,"max_tokens":4`, "日\ufffd", "length"},
		{"one two three", `,"stop":"o t"`, "one tw", "stop"},
		{"one STOP it", `,"stop":["STAP","STOP","P"]`, "one ", "stop"},
		{"one STO", `,"stop":["STOP"]`, "one STO", "stop"},
		{"one", `,"stop":["one"]`, "", "stop"},
		{"", ``, "", "stop"},
	} {
		url := start(t, described(t, says(test.says)), limits, "")
		for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
			base := hello
			if path == "/v1/completions" {
				base = `"model":"toy","prompt":"Hi"`
			}
			one := parse(t, text(t, ask(t, "POST", url+path, `{`+base+test.more+`}`)))
			whole, finish := one.Choices[0].Message.Content+one.Choices[0].Text, *one.Choices[0].FinishReason
			r := ask(t, "POST", url+path, `{"stream":true,"stream_options":{"include_usage":true},`+base+test.more+`}`)
			streamed, ended, events := stream(t, text(t, r))
			if whole != test.want || streamed != whole || finish != test.finish || ended != finish {
				t.Errorf("%q%s: whole %q %s, stream %q %s, want %q %s", test.says, test.more, whole, finish, streamed, ended, test.want, test.finish)
			}
			last := events[len(events)-1]
			if len(last.Choices) != 0 || *last.Usage != *one.Usage || events[0].Usage != nil || r.Header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("%q: the last event is %+v", test.says, last)
			}
			if path == "/v1/chat/completions" && events[0].Choices[0].Delta.Role != "assistant" {
				t.Errorf("%q: the first event is %+v", test.says, events[0])
			}
		}
	}
}

func TestRefused(t *testing.T) {
	url := start(t, described(t, says("a")), limits, "")
	const chats, texts = "/v1/chat/completions", "/v1/completions"
	short := strings.NewReplacer(hello, "hello", strings.Repeat("a", maxBody), "too long", strings.Repeat("a", 100), "a…", `{"model":"toy","messages":[{"role":"user",`, "{user ", `"`, "")
	for _, test := range []struct {
		path, body string
		status     int
		param      string
	}{
		{chats, `{`, 400, ""},
		{chats, `[]`, 400, ""},
		{chats, `{` + hello + `} x`, 400, ""},
		{chats, `{` + hello + `,"model":"toy"}`, 400, "model"},
		{chats, "{\"model\":\"\xff\"}", 400, ""},
		{chats, `{"model":"gpt"` + hello[len(`"model":"toy"`):] + `}`, 404, "model"},
		{chats, `{"messages":[]}`, 400, "model"},
		{chats, `{"model":"toy"}`, 400, "messages"},
		{chats, `{` + hello + `,"n":2}`, 400, "n"},
		{chats, `{` + hello + `,"n":0}`, 400, "n"},
		{chats, `{` + hello + `,"n":"1"}`, 400, "n"},
		{chats, `{` + hello + `,"functions":[{"name":"f","parameters":{}}]}`, 400, "functions"},
		{chats, `{` + hello + `,"functions":{}}`, 400, "functions"},
		{chats, `{` + hello + `,"function_call":{"name":"f"}}`, 400, "function_call"},
		{chats, `{"model":"toy","messages":[{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}]}`, 400, "messages[0].function_call"},
		{chats, `{"model":"toy","messages":[{"role":"function","name":"f","content":"1"}]}`, 400, "messages[0].role"},
		{chats, `{` + hello + `,"tools":{}}`, 400, "tools"},
		{chats, `{` + hello + `,"tools":{"type":"function","function":{"name":"f"}}}`, 400, "tools"},
		{chats, `{` + hello + `,"tools":"[]"}`, 400, "tools"},
		{chats, `{` + hello + `,"tools":true}`, 400, "tools"},
		{chats, `{` + hello + `,"tools":[null]}`, 400, "tools[0]"},
		{chats, `{` + hello + `,"tools":[[]]}`, 400, "tools[0]"},
		{chats, `{` + hello + `,"tools":[{"type":"function","function":"f"}]}`, 400, "tools[0].function"},
		{chats, `{` + hello + `,"tool_choice":{"type":"function","function":{"name":"f"}}}`, 400, "tool_choice"},
		{chats, `{` + hello + `,"echo":true}`, 400, "echo"},
		{texts, `{"model":"toy","prompt":"a","n":3}`, 400, "n"},
		{texts, `{"model":"toy","prompt":"a","best_of":2}`, 400, "best_of"},
		{texts, `{"model":"toy","prompt":"a","echo":1}`, 400, "echo"},
		{texts, `{"model":"toy","prompt":"a","echo":"false"}`, 400, "echo"},
		{texts, `{"model":"toy","prompt":"a","suffix":"b"}`, 400, "suffix"},
		{texts, `{"model":"toy","prompt":"a","tools":[]}`, 400, "tools"},
		{chats, `{` + hello + `,"top_k":5}`, 400, "top_k"},
		{chats, `{` + hello + `,"tools":[{"type":"function"}]}`, 400, "tools"},
		{chats, `{` + hello + `,"response_format":{"type":"json_object"}}`, 400, "response_format"},
		{chats, `{` + hello + `,"logprobs":1}`, 400, "logprobs"},
		{chats, `{` + hello + `,"logprobs":true,"top_logprobs":21}`, 400, "top_logprobs"},
		{chats, `{` + hello + `,"top_logprobs":2}`, 400, "top_logprobs"},
		{chats, `{` + hello + `,"frequency_penalty":0.5}`, 400, "frequency_penalty"},
		{chats, `{` + hello + `,"temperature":2.5}`, 400, "temperature"},
		{chats, `{` + hello + `,"temperature":"hot"}`, 400, "temperature"},
		{chats, `{` + hello + `,"top_p":0}`, 400, "top_p"},
		{chats, `{` + hello + `,"max_tokens":0}`, 400, "max_tokens"},
		{chats, `{` + hello + `,"max_tokens":1,"max_completion_tokens":2}`, 400, "max_completion_tokens"},
		{chats, `{` + hello + `,"max_tokens":86}`, 400, "max_tokens"},
		{chats, `{` + hello + `,"max_completion_tokens":86}`, 400, "max_completion_tokens"},
		{chats, `{"model":"toy","messages":[{"role":"user","content":"` + strings.Repeat("a", 100) + `"}],"max_tokens":86}`, 400, "messages"},
		{chats, `{` + hello + `,"seed":1.5}`, 400, "seed"},
		{chats, `{` + hello + `,"stop":["a","b","c","d","e"]}`, 400, "stop"},
		{chats, `{` + hello + `,"stop":[""]}`, 400, "stop"},
		{chats, `{` + hello + `,"stream_options":{"include_usage":true}}`, 400, "stream_options"},
		{chats, `{` + hello + `,"stream":true,"stream_options":{"x":true}}`, 400, "stream_options.x"},
		{chats, `{` + hello + `,"prompt":"a"}`, 400, "prompt"},
		{chats, `{"model":"toy","messages":[{"role":"critic","content":"a"}]}`, 400, "messages[0].role"},
		{chats, `{"model":"toy","messages":[{"role":"user"}]}`, 400, "messages[0].content"},
		{chats, `{"model":"toy","messages":[{"role":"user","content":"a","refusal":"b"}]}`, 400, "messages[0].refusal"},
		{chats, `{"model":"toy","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "messages[0].content[0].type"},
		{chats, `{"model":"toy","messages":[{"role":"user","content":"a\u0000b"}]}`, 400, "messages"},
		{texts, `{"model":"toy","prompt":""}`, 400, "prompt"},
		{texts, `{"model":"toy","prompt":"` + strings.Repeat("a", 100) + `"}`, 400, "prompt"},
		{texts, `{"model":"toy","prompt":"a","echo":true}`, 400, "echo"},
		{texts, `{"model":"toy","prompt":"` + strings.Repeat("a", maxBody) + `"}`, 413, ""},
		{"/v1/embeddings", `{}`, 404, ""},
	} {
		r := ask(t, "POST", url+test.path, test.body)
		got := parse(t, text(t, r))
		if r.StatusCode != test.status || got.Error == nil || got.Error.Type == "" || got.Error.Param != test.param {
			t.Errorf("%.80s: %d %+v, want %d %q", test.body, r.StatusCode, got.Error, test.status, test.param)
		} else {
			golden.Message(t, strings.TrimPrefix(test.path, "/v1/")+" "+short.Replace(test.body), errors.New(got.Error.Message))
		}
	}
	if r := ask(t, "POST", url+chats, `{`+hello+`}`, "Content-Type", "text/plain"); r.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("text/plain: %d", r.StatusCode)
	}
	harmless := `{` + hello + `,"n":1,"logit_bias":{},"tools":[],"tool_choice":"auto","functions":[],"function_call":"none","stop":null,"frequency_penalty":0.0,"metadata":{"a":"b"},"response_format":{"type":"text"},"max_tokens":3,"max_completion_tokens":3}`
	if r := ask(t, "POST", url+chats, harmless); r.StatusCode != http.StatusOK {
		t.Errorf("harmless fields: %d %s", r.StatusCode, text(t, r))
	}
	parts := `{"model":"toy","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","content":"c","tool_calls":null,"annotations":[]},{"role":"user","content":"d"}]}`
	if r := ask(t, "POST", url+chats, parts); r.StatusCode != http.StatusOK {
		t.Errorf("parts: %d %s", r.StatusCode, text(t, r))
	}
	bare := described(t, says("a"))
	bare.Template, bare.NoTemplate = nil, chat.ErrNone
	if got := parse(t, text(t, ask(t, "POST", start(t, bare, limits, "")+chats, `{`+hello+`}`))); got.Error == nil {
		t.Errorf("without a template: %+v", got)
	} else {
		golden.Message(t, "no template", errors.New(got.Error.Message))
	}
}

func TestAnswersByHostAndToken(t *testing.T) {
	open, locked := start(t, described(t, says("a")), limits, ""), start(t, described(t, says("a")), limits, "secret")
	for _, test := range []struct {
		url    string
		header []string
		status int
	}{
		{open + "/v1/models", nil, 200},
		{open + "/v1/models", []string{"Host", "localhost:8000"}, 200},
		{open + "/v1/models", []string{"Host", "evil.example:8000"}, 403},
		{open + "/healthz", []string{"Host", "evil.example"}, 200},
		{locked + "/healthz", nil, 200},
		{locked + "/v1/models", nil, 401},
		{locked + "/v1/models", []string{"Authorization", "Bearer secreT"}, 401},
		{locked + "/v1/models", []string{"Authorization", "Basic secret"}, 401},
		{locked + "/v1/models", []string{"Authorization", "Bearer secret"}, 200},
		{locked + "/v1/models", []string{"Authorization", "bearer secret", "Host", "my.example"}, 200},
	} {
		if r := ask(t, "GET", test.url, "", test.header...); r.StatusCode != test.status {
			t.Errorf("%s %v: %d, want %d", test.url, test.header, r.StatusCode, test.status)
		}
	}
}

// blocked is a model that writes a byte, signals this, and waits for its release or the end of its
// context.
func blocked() (tokens func(context.Context, []int32, Options, func(int32) error) error, began chan struct{}, release chan struct{}, ended chan error) {
	began, release, ended = make(chan struct{}, 9), make(chan struct{}), make(chan error, 9)
	return func(ctx context.Context, _ []int32, _ Options, emit func(int32) error) error {
		err := emit('a')
		began <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
			err = ctx.Err()
		}
		ended <- err
		return err
	}, began, release, ended
}

// inTheQueue waits until the given numbers of requests run and wait.
func inTheQueue(t *testing.T, url string, running, waiting int) {
	t.Helper()
	want := fmt.Sprintf(`{"running":%d,"status":"ok","waiting":%d}`+"\n", running, waiting)
	for range 2000 {
		if text(t, ask(t, "GET", url+"/healthz", "")) == want {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("the queue never is %s", want)
}

func TestQueue(t *testing.T) {
	tokens, began, release, _ := blocked()
	url := start(t, described(t, tokens), limits, "")
	statuses := make(chan int, 2)
	for range 2 {
		go func() {
			r, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(`{`+hello+`}`))
			if err != nil {
				statuses <- 0
				return
			}
			_ = r.Body.Close()
			statuses <- r.StatusCode
		}()
	}
	<-began
	inTheQueue(t, url, 1, 1)
	r := ask(t, "POST", url+"/v1/chat/completions", `{`+hello+`}`)
	got := parse(t, text(t, r))
	if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" || got.Error.Type != "rate_limit_error" {
		t.Errorf("beyond the queue: %d, %v, %+v", r.StatusCode, r.Header, got.Error)
	}
	close(release)
	if a, b := <-statuses, <-statuses; a != 200 || b != 200 {
		t.Errorf("the requests in the queue got %d and %d", a, b)
	}
	inTheQueue(t, url, 0, 0)
}

func TestClientGoesAway(t *testing.T) {
	tokens, began, _, ended := blocked()
	url := start(t, described(t, tokens), limits, "")
	for _, streaming := range []string{"true", "false"} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"stream":`+streaming+`,`+hello+`}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			if answer, err := http.DefaultClient.Do(r); err == nil {
				_, _ = io.ReadAll(answer.Body)
				_ = answer.Body.Close()
			}
		}()
		<-began
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("stream %s: the model ended with %v", streaming, err)
		}
		<-gone
		inTheQueue(t, url, 0, 0)
	}
}

func TestTimeIsOver(t *testing.T) {
	tokens, _, _, _ := blocked()
	short := limits
	short.Time = 50 * time.Millisecond
	got := parse(t, text(t, ask(t, "POST", start(t, described(t, tokens), short, "")+"/v1/chat/completions", `{`+hello+`}`)))
	if len(got.Choices) != 1 || got.Choices[0].Message.Content != "a" || *got.Choices[0].FinishReason != "length" {
		t.Errorf("an answer that was cut: %+v", got)
	}
	silent := func(ctx context.Context, _ []int32, _ Options, _ func(int32) error) error {
		<-ctx.Done()
		return ctx.Err()
	}
	r := ask(t, "POST", start(t, described(t, silent), short, "")+"/v1/chat/completions", `{`+hello+`}`)
	if got := parse(t, text(t, r)); r.StatusCode != http.StatusServiceUnavailable || got.Error.Code != "timeout" || r.Header.Get("Retry-After") == "" {
		t.Errorf("an answer that has not started: %d %+v", r.StatusCode, got.Error)
	}
}

func TestModelFails(t *testing.T) {
	fails := func(_ context.Context, _ []int32, o Options, emit func(int32) error) error {
		if o.MaxTokens > 1 {
			_ = emit('a')
		}
		return errors.New("a secret of the machine")
	}
	url := start(t, described(t, fails), limits, "")
	r := ask(t, "POST", url+"/v1/chat/completions", `{"stream":true,"max_tokens":1,`+hello+`}`)
	if body := text(t, r); r.StatusCode != http.StatusInternalServerError || parse(t, body).Error == nil || strings.Contains(body, "secret") {
		t.Errorf("got %d %s; want r.StatusCode == http.StatusInternalServerError and parse(t, body).Error != nil and no \"secret\" in it", r.StatusCode, body)
	}
	body := text(t, ask(t, "POST", url+"/v1/chat/completions", `{"stream":true,`+hello+`}`))
	if !strings.Contains(body, `data: {"error":{`) || strings.Contains(body, "[DONE]") || strings.Contains(body, "secret") {
		t.Errorf("a stream that broke: %s", body)
	}
}

// TestStopAnswersOrRefuses stops a server. It checks that waiting requests are refused, and that an answer in
// progress ends normally or with an error.
func TestStopAnswersOrRefuses(t *testing.T) {
	t.Run("in time", func(t *testing.T) { testEnd(t, false) })
	t.Run("cut", func(t *testing.T) { testEnd(t, true) })
}

func testEnd(t *testing.T, cut bool) {
	tokens, began, release, _ := blocked()
	s, err := New(described(t, tokens), limits, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if cut {
		s.grace = 10 * time.Millisecond
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener) }()
	url := "http://" + listener.Addr().String()
	r := ask(t, "POST", url+"/v1/chat/completions", `{"stream":true,`+hello+`}`)
	lines := bufio.NewReader(r.Body)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"content":"a"`) {
		t.Fatalf("the first event is %q, %v", line, err)
	}
	<-began
	waiting := make(chan *received, 1)
	go func() { waiting <- ask(t, "POST", url+"/v1/chat/completions", `{`+hello+`}`) }()
	inTheQueue(t, url, 1, 1)
	cancel()
	if refused := <-waiting; refused.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the waiting request got %d", refused.StatusCode)
	}
	last := "data: [DONE]\n\n"
	if cut {
		last = `"message":"the server is shutting down","param":null,"type":"server_error"}}` + "\n\n"
	} else {
		close(release)
	}
	if rest, err := io.ReadAll(lines); err != nil || !strings.HasSuffix(string(rest), last) {
		t.Errorf("the answer ended with %q, %v", rest, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestStopperInPieces(t *testing.T) {
	const whole = "aababcabcdab"
	for _, stops := range [][]string{{"abcd"}, {"abc", "bc"}, {"abcd", "bc"}, {"cab"}, {"x"}, {"abx", "ab"}, nil} {
		one := stopper{stops: stops}
		want, found := one.next(whole)
		want += one.rest()
		for size := range len(whole) {
			got, cut := "", false
			pieces := stopper{stops: stops}
			for piece := range slices.Chunk([]byte(whole), size+1) {
				if cut {
					break
				}
				var text string
				text, cut = pieces.next(string(piece))
				got += text
			}
			if got += pieces.rest(); got != want || cut != found {
				t.Errorf("%q in pieces of %d: %q, %v, whole %q, %v", stops, size+1, got, cut, want, found)
			}
		}
	}
}

// FuzzDecode checks that any body gives a request within its bounds, or a problem with a message.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{` + hello + `}`, `{"model":"toy","prompt":["a"],"stop":["a","b"],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"toy","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"seed":-9223372036854775808,"n":1.0}`,
		`{"a":1e999}`, `{"tools":[]}`, `null`, `{"messages":[null]}`, `{"stop":[null]}`, `{"max_tokens":1e3}`, `{"model":"\ud800"}`,
		`{"model":"toy","prompt":[[1,2],[3]],"logprobs":0}`, `{"model":"toy","prompt":[1],"logprobs":false}`, `{"model":"toy","prompt":["a",null]}`,
		`{"model":"toy","messages":[{"role":"developer","content":"a"}],"logprobs":true,"top_logprobs":20,"parallel_tool_calls":false}`,
		string(talk(`"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\":[1]}"}}]`)),
	} {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	fuzztest.Run(f, func(t *testing.T, body []byte, inChat bool) {
		r, problem := decode(body, inChat)
		if problem != nil {
			if problem.message == "" || problem.status != http.StatusBadRequest {
				t.Errorf("problem %+v", problem)
			}
			return
		}
		if r.model == "" || !(r.temperature >= 0 && r.temperature <= 2) || !(r.topP > 0 && r.topP <= 1) || r.maxTokens < 0 || len(r.stops) > maxStops ||
			inChat == (len(r.messages) == 0) || inChat == (len(r.prompts) != 0) || len(r.prompts) > maxPrompts || r.top < 0 || r.top > maxTop {
			t.Errorf("request %+v of %q", r, body)
		}
	})
}
