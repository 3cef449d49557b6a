package openai

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sure is a model of bytes that writes a text. The logits are 2 for the byte that it writes, 1 for
// x, 0.5 for y and z, and far less for all other bytes.
func sure(text string) func(context.Context, []int32, Options, func(int32) error) error {
	return func(_ context.Context, _ []int32, o Options, emit func(int32) error) error {
		for i := range min(len(text), o.MaxTokens) {
			if o.Observe != nil {
				logits := slices.Repeat([]float32{-1e4}, 300)
				logits['x'], logits['y'], logits['z'] = 1, 0.5, 0.5
				logits[299] = 1.5 // a row of the embedding without a token
				logits[text[i]] = 2
				o.Observe(logits)
				clear(logits)
			}
			if err := emit(int32(text[i])); err != nil {
				return err
			}
		}
		return nil
	}
}

// total is the logarithm of the sum of the exponentials of all logits of sure.
var total = math.Log(math.Exp(2) + math.Exp(1.5) + math.Exp(1) + 2*math.Exp(0.5))

// logprobsOf returns choices[0].logprobs of an answer.
func logprobsOf(t *testing.T, body string) (logprobs any) {
	t.Helper()
	var got struct{ Choices []struct{ Logprobs any } }
	if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Choices) != 1 {
		t.Fatalf("%s: got %v; want nil error and len(got.Choices) == 1", body, err)
	}
	return got.Choices[0].Logprobs
}

func decoded(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// numbers writes the log-probabilities of the logits into a JSON text.
func numbers(text string) string {
	number := func(logit float64) string {
		out, _ := json.Marshal(logit - total)
		return string(out)
	}
	return strings.NewReplacer("L2", number(2), "L1", number(1), "LH", number(0.5)).Replace(text)
}

func TestLogprobs(t *testing.T) {
	m := described(t, sure("a\u00e9"))
	url := start(t, m, limits, "")
	close := cmpopts.EquateApprox(0, 1e-12)
	for body, want := range map[string]string{
		`"logprobs":0`: `{"tokens":["a","bytes:\\xc3","bytes:\\xa9"],"token_logprobs":[L2,L2,L2],
"top_logprobs":[{"a":L2},{"bytes:\\xc3":L2},{"bytes:\\xa9":L2}],"text_offset":[0,1,1]}`,
		`"logprobs":3,"max_tokens":1`: `{"tokens":["a"],"token_logprobs":[L2],"top_logprobs":[{"a":L2,"x":L1,"y":LH}],"text_offset":[0]}`,
		`"logprobs":false`:            `null`,
		`"logprobs":null`:             `null`,
		`"max_tokens":1`:              `null`,
	} {
		got := logprobsOf(t, text(t, ask(t, "POST", url+texts, `{"model":"toy","prompt":"Hi",`+body+`}`)))
		if diff := cmp.Diff(decoded(t, numbers(want)), got, close); diff != "" {
			t.Errorf("%s: got %s; want \"\"", body, diff)
		}
	}
	const chats = "/v1/chat/completions"
	one := `"token":"a","bytes":[97],"logprob":L2`
	for body, want := range map[string]string{
		`"logprobs":true`:                     `{"refusal":null,"content":[{` + one + `,"top_logprobs":[]}]}`,
		`"logprobs":true,"top_logprobs":2`:    `{"refusal":null,"content":[{` + one + `,"top_logprobs":[{` + one + `},{"token":"x","bytes":[120],"logprob":L1}]}]}`,
		`"logprobs":false,"top_logprobs":0`:   `null`,
		`"logprobs":true,"top_logprobs":0`:    `{"refusal":null,"content":[{` + one + `,"top_logprobs":[]}]}`,
		`"logprobs":null,"top_logprobs":null`: `null`,
	} {
		got := logprobsOf(t, text(t, ask(t, "POST", url+chats, `{`+hello+`,"max_tokens":1,`+body+`}`)))
		if diff := cmp.Diff(decoded(t, numbers(want)), got, close); diff != "" {
			t.Errorf("%s: got %s; want \"\"", body, diff)
		}
	}
}

// TestStreamedLogprobs checks that the events of a stream together have all tokens, including
// tokens whose text was held back.
func TestStreamedLogprobs(t *testing.T) {
	url := start(t, described(t, sure("a日b STOP")), limits, "")
	body := `"model":"toy","prompt":"Hi","logprobs":1,"max_tokens":50,"stop":"TOP"`
	type fields struct {
		Tokens   []string
		Offsets  []int                `json:"text_offset"`
		Logprobs []float64            `json:"token_logprobs"`
		Tops     []map[string]float64 `json:"top_logprobs"`
	}
	read := func(body string) (f fields) {
		raw, err := json.Marshal(logprobsOf(t, body))
		if err == nil {
			err = json.Unmarshal(raw, &f)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	want := read(text(t, ask(t, "POST", url+texts, `{`+body+`}`)))
	if !slices.Equal(want.Offsets, []int{0, 1, 1, 1, 2, 3, 4, 5, 6, 7}) || len(want.Tokens) != 10 {
		t.Errorf("whole: %+v", want)
	}
	var got fields
	for part := range strings.SplitSeq(strings.TrimSuffix(text(t, ask(t, "POST", url+texts, `{"stream":true,`+body+`}`)), "data: [DONE]\n\n"), "\n\n") {
		if part == "" {
			continue
		}
		f := read(strings.TrimPrefix(part, "data: "))
		got.Tokens, got.Offsets = append(got.Tokens, f.Tokens...), append(got.Offsets, f.Offsets...)
		got.Logprobs, got.Tops = append(got.Logprobs, f.Logprobs...), append(got.Tops, f.Tops...)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(fields{})); diff != "" {
		t.Error(diff)
	}
}

func TestLogprobsThatAreRefused(t *testing.T) {
	for value, want := range map[string]string{"true": "logprobs", "6": "logprobs", "-1": "logprobs", "1.5": "logprobs", `"1"`: "logprobs"} {
		if _, wrong := decode([]byte(`{"model":"toy","prompt":"a","logprobs":`+value+`}`), false); wrong == nil || wrong.param != want {
			t.Errorf("%s: %+v, want %s", value, wrong, want)
		}
	}
}

// TestBest compares best with sorting, for logits with ties.
func TestBest(t *testing.T) {
	s := scores{coder: described(t, nil).Tokenizer}
	for i := range 400 {
		s.logits = append(s.logits, float32(i*i%17))
	}
	var all []int32
	for id := range int32(256) {
		all = append(all, id)
	}
	slices.SortStableFunc(all, func(a, b int32) int { return int(s.logits[b] - s.logits[a]) })
	for _, s.top = range []int{0, 1, 5, 20} {
		if got := s.best(); !slices.Equal(got, all[:s.top]) {
			t.Errorf("top %d: %v, want %v", s.top, got, all[:s.top])
		}
	}
}
