package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const texts = "/v1/completions"

// shouts is a model of bytes that repeats its prompt in capitals.
func shouts(ctx context.Context, ids []int32, o Options, emit func(int32) error) error {
	return says(strings.ToUpper(string(bytesOf(ids))))(ctx, ids, o, emit)
}

func TestPromptShapes(t *testing.T) {
	for body, want := range map[string][]prompt{
		`"a"`:            {{text: "a"}},
		`["a"]`:          {{text: "a"}},
		`["a", "[1]"]`:   {{text: "a"}, {text: "[1]"}},
		`["null"]`:       {{text: "null"}},
		`[97, 0]`:        {{ids: []int32{97, 0}}},
		`[ [97],[98,9]]`: {{ids: []int32{97}}, {ids: []int32{98, 9}}},
		`[[97]]`:         {{ids: []int32{97}}},
	} {
		r, wrong := decode([]byte(`{"model":"toy","prompt":`+body+`}`), false)
		if wrong != nil {
			t.Errorf("%s: got %v; want wrong == nil", body, wrong)
			continue
		}
		if diff := cmp.Diff(want, r.prompts, cmp.AllowUnexported(prompt{})); diff != "" {
			t.Errorf("%s: got %s; want \"\"", body, diff)
		}
	}
	for body, want := range map[string]string{
		`""`: "prompt", `[]`: "prompt", `[""]`: "prompt[0]", `["a",""]`: "prompt[1]", `["a",null]`: "prompt[1]", `[null]`: "prompt", `[1,null]`: "prompt", `[[1],null]`: "prompt",
		`["a",1]`: "prompt", `[1,"a"]`: "prompt", `[[1],2]`: "prompt", `[1,[2]]`: "prompt", `[[[1]]]`: "prompt", `{}`: "prompt", `1`: "prompt", `[1.5]`: "prompt",
		`[-1]`: "prompt", `[4294967296]`: "prompt", `["` + strings.Repeat(`","`, maxPrompts) + `"]`: "prompt",
	} {
		if _, wrong := decode([]byte(`{"model":"toy","prompt":`+body+`}`), false); wrong == nil || wrong.param != want {
			t.Errorf("%.60s: %+v, want %s", body, wrong, want)
		}
	}
	if _, wrong := decode([]byte(`{"model":"toy","prompt":["a","b"],"max_tokens":131073}`), false); wrong == nil || wrong.param != "max_tokens" {
		t.Errorf("many tokens: %+v", wrong)
	}
}

// TestSeveralPrompts checks that each prompt gets a choice with its index, whether the texts are
// generated together or one by one, streamed or not.
func TestSeveralPrompts(t *testing.T) {
	want := []string{"A", "BB", "CCC", "DDDD"}
	for _, running := range []int{1, 2, 8} {
		url := start(t, described(t, shouts), Limits{Running: running, Waiting: 1, Time: time.Minute}, "")
		for _, prompts := range []string{`["a","bb","ccc","dddd"]`, `[[97],[98,98],[99,99,99],[100,100,100,100]]`} {
			body := `"model":"toy","max_tokens":3,"prompt":` + prompts
			got := parse(t, text(t, ask(t, "POST", url+texts, `{`+body+`}`)))
			if len(got.Choices) != 4 || got.Usage.Prompt != 10 || got.Usage.Completion != 9 || got.Usage.Total != 19 {
				t.Fatalf("answer %+v", got)
			}
			for i, choice := range got.Choices {
				if choice.Index != i || choice.Text != want[i][:min(3, i+1)] || *choice.FinishReason != []string{"stop", "stop", "length", "length"}[i] {
					t.Errorf("choice %d: %+v", i, choice)
				}
			}
			_, _, events := stream(t, text(t, ask(t, "POST", url+texts, `{"stream":true,"stream_options":{"include_usage":true},`+body+`}`)))
			written, ended := make([]string, 4), make([]string, 4)
			for _, event := range events[:len(events)-1] {
				choice := event.Choices[0]
				if ended[choice.Index] != "" {
					t.Errorf("an event after the end of %d", choice.Index)
				}
				if written[choice.Index] += choice.Text; choice.FinishReason != nil {
					ended[choice.Index] = *choice.FinishReason
				}
			}
			if !slices.Equal(written, []string{"A", "BB", "CCC", "DDD"}) || !slices.Equal(ended, []string{"stop", "stop", "length", "length"}) {
				t.Errorf("streams %q, %q", written, ended)
			}
			if last := events[len(events)-1]; len(last.Choices) != 0 || *last.Usage != *got.Usage {
				t.Errorf("the last event is %+v", last)
			}
		}
		if health := text(t, ask(t, "GET", url+"/healthz", "")); health != `{"running":0,"status":"ok","waiting":0}`+"\n" {
			t.Errorf("health %s", health)
		}
	}
}

// TestPromptsTogether checks that the texts of one request are generated together if no other
// request needs the slots.
func TestPromptsTogether(t *testing.T) {
	began := make(chan struct{}, 3)
	all := make(chan struct{})
	tokens := func(ctx context.Context, ids []int32, o Options, emit func(int32) error) error {
		began <- struct{}{}
		select {
		case <-all:
		case <-ctx.Done():
			return ctx.Err()
		}
		return shouts(ctx, ids, o, emit)
	}
	url := start(t, described(t, tokens), Limits{Running: 3, Waiting: 0, Time: time.Minute}, "")
	go func() {
		for range 3 {
			<-began
		}
		close(all)
	}()
	if got := parse(t, text(t, ask(t, "POST", url+texts, `{"model":"toy","prompt":["a","b","c"]}`))); len(got.Choices) != 3 || got.Choices[2].Text != "C" {
		t.Errorf("answer %+v", got)
	}
}

func TestSpareSlots(t *testing.T) {
	one, two := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	q := newQueue(3, 2)
	own := q.enter(one, func() {})
	q.await(own)
	<-own.begun
	first := q.spare(one)
	if first == nil || q.busy != 2 {
		t.Fatalf("no spare slot, %d run", q.busy)
	}
	waits := q.enter(two, func() { t.Error("evicted") })
	if q.spare(one) != nil {
		t.Error("a slot was lent while a request waits")
	}
	q.await(waits)
	<-waits.begun
	if q.spare(one) != nil {
		t.Error("more run than may")
	}
	q.leave(first)
	if last := q.spare(two); last == nil {
		t.Error("no spare slot after a return")
	} else {
		q.leave(last)
	}
	q.leave(own)
	q.leave(waits)
	if running, waiting := q.counts(); running != 0 || waiting != 0 || len(q.since) != 0 {
		t.Errorf("%d run, %d wait, %d addresses", running, waiting, len(q.since))
	}
}

func TestPromptsThatAreRefused(t *testing.T) {
	m := described(t, shouts)
	m.Vocab = 250
	url := start(t, m, limits, "")
	long := strings.Repeat("a", 100)
	for body, want := range map[string]string{
		`"prompt":["a","` + long + `"]`:                                    "prompt[1]",
		`"prompt":["a","` + long[:90] + `"],"max_tokens":11`:               "max_tokens",
		`"prompt":[[97],[97,250]]`:                                         "prompt[1]",
		`"prompt":[97,256]`:                                                "prompt",
		`"prompt":[[97],[]]`:                                               "prompt[1]",
		`"prompt":"a\u00ff` + strings.Repeat("a", 3) + `","max_tokens":95`: "max_tokens",
	} {
		r := ask(t, "POST", url+texts, `{"model":"toy",`+body+`}`)
		if got := parse(t, text(t, r)); r.StatusCode != http.StatusBadRequest || got.Error == nil || got.Error.Param != want {
			t.Errorf("%.60s: %d %+v, want %s", body, r.StatusCode, got.Error, want)
		}
	}
}

// TestOnePromptFails checks that an error fails the whole answer and ends the other texts.
func TestOnePromptFails(t *testing.T) {
	ended := make(chan error, 2) // the third prompt starts too if the second returns its slot first
	tokens := func(ctx context.Context, ids []int32, _ Options, _ func(int32) error) error {
		if ids[0] == 'b' {
			return errors.New("out of memory")
		}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
	url := start(t, described(t, tokens), Limits{Running: 2, Waiting: 0, Time: time.Minute}, "")
	r := ask(t, "POST", url+texts, `{"model":"toy","prompt":["a","b","a"]}`)
	if got := parse(t, text(t, r)); r.StatusCode != http.StatusInternalServerError || got.Error.Type != "server_error" {
		t.Errorf("got %d %+v; want r.StatusCode == http.StatusInternalServerError and got.Error.Type == \"server_error\"", r.StatusCode, got.Error)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestSeedOfSeveralPrompts checks that each text of a list has the seed of the request, so it is
// the text of its prompt alone.
func TestSeedOfSeveralPrompts(t *testing.T) {
	tokens := func(ctx context.Context, ids []int32, o Options, emit func(int32) error) error {
		return says(fmt.Sprint(o.Seed, o.MaxTokens))(ctx, ids, o, emit)
	}
	url := start(t, described(t, tokens), limits, "")
	for _, choice := range parse(t, text(t, ask(t, "POST", url+texts, `{"model":"toy","prompt":["a","b"],"seed":7}`))).Choices {
		if choice.Text != "7 16" {
			t.Errorf("choice %+v", choice)
		}
	}
}

// TestDeveloper checks that a template that supports the role gets it, and that other templates get
// it as system.
func TestDeveloper(t *testing.T) {
	for source, want := range map[string]string{
		"{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}":                                                                    "<system>Be brief.<user>Hi",
		"{% for m in messages %}{{ '<' ~ m.role ~ ('!' if m.role == 'developer' else '') ~ '>' ~ m.content }}{% endfor %}":                    "<developer!>Be brief.<user>Hi",
		"{% for m in messages %}{% if m.role not in ['system', 'user'] %}{{ raise_exception('role') }}{% endif %}{{ m.content }}{% endfor %}": "Be brief.Hi",
	} {
		m := described(t, shouts)
		m.Template = parsed(t, source)
		body := `{"model":"toy","messages":[{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi"}]}`
		got := parse(t, text(t, ask(t, "POST", start(t, m, limits, "")+"/v1/chat/completions", body)))
		if len(got.Choices) != 1 || got.Choices[0].Message.Content != strings.ToUpper(want) {
			t.Errorf("%s: got %+v; want len(got.Choices) == 1 and got.Choices[0].Message.Content == strings.ToUpper(want)", source, got)
		}
	}
}
