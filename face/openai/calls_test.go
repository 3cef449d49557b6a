package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/files/tokenizer"
)

// Shortened templates that define a format of calls.
const (
	hermesTemplate  = "{{ tools | tojson if tools }}{% for m in messages %}{{ m.role }}{{ m.content }}{{ '\\n<tool_call>\\n' ~ m.tool_calls ~ '\\n</tool_call>' if m.tool_calls }}{% endfor %}"
	mistralTemplate = "{{ '[AVAILABLE_TOOLS]' ~ (tools | tojson) if tools }}{% for m in messages %}{{ m.content }}{{ '[TOOL_CALLS]' ~ m.tool_calls if m.tool_calls }}{% endfor %}"
	llamaTemplate   = "{% if tools %}Respond in the format {\"name\": function name, \"parameters\": dictionary of argument name and its value}.{{ tools | tojson }}{% endif %}" +
		"{% for m in messages %}{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}"
)

var tool = map[string]bool{"f": true, "g": true}

// readCalls gives a text to a callReader in pieces of the given size.
func readCalls(f *callForm, text string, size int, one bool) (before string, calls []call) {
	r := callReader{form: f, names: tool}
	for piece := range slices.Chunk([]byte(text), size) {
		before += r.next(string(piece))
	}
	rest, calls := r.end(one)
	return before + rest, calls
}

func TestCalls(t *testing.T) {
	for _, test := range []struct{ template, text, before, calls string }{
		{hermesTemplate, `No call.`, `No call.`, ``},
		{hermesTemplate, `Wait.` + "\n" + `<tool_call>` + "\n" + `{"name": "f", "arguments": {"a": [1, "}"]}}` + "\n" + `</tool_call>`, "Wait.\n", `f({"a": [1, "}"]})`},
		{hermesTemplate, `<tool_call>{"arguments":{},"name":"f"}</tool_call> <tool_call>{"name":"g"}</tool_call>` + "\n", ``, `f({})g({})`},
		{hermesTemplate, `<tool_call>{"name":"f","arguments":"{\"a\":1}"}</tool_call>`, ``, `f({"a":1})`},
		{hermesTemplate, `<tool_call>{"name":"f","arguments":null}</tool_call>`, ``, `f({})`},
		// These texts are not calls.
		{hermesTemplate, `<tool_call>{"name":"f","arguments":{}}`, `<tool_call>{"name":"f","arguments":{}}`, ``},
		{hermesTemplate, `<tool_call>{"name":"h","arguments":{}}</tool_call>`, `<tool_call>{"name":"h","arguments":{}}</tool_call>`, ``},
		{hermesTemplate, `<tool_call>{"name":"f","arguments":[]}</tool_call>`, `<tool_call>{"name":"f","arguments":[]}</tool_call>`, ``},
		{hermesTemplate, `a<tool_call>{"name":"f"}</tool_call>b`, `a<tool_call>{"name":"f"}</tool_call>b`, ``},
		{hermesTemplate, `<tool_call>{"name":"f","x":1}</tool_call>`, `<tool_call>{"name":"f","x":1}</tool_call>`, ``},
		{hermesTemplate, `<tool_call>{"name":"f","arguments":{},"parameters":{}}</tool_call>`, `<tool_call>{"name":"f","arguments":{},"parameters":{}}</tool_call>`, ``},
		{hermesTemplate, `<tool_call>{"name":"f"}{"name":"g"}</tool_call>`, `<tool_call>{"name":"f"}{"name":"g"}</tool_call>`, ``},
		{hermesTemplate, `a <tool_cal`, `a <tool_cal`, ``},
		{hermesTemplate, `{"name":"f","arguments":{}}`, `{"name":"f","arguments":{}}`, ``},

		{mistralTemplate, `[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}, "id": "abcdefghi"}, {"name": "g", "arguments": {}}]`, ``, `f({"a": 1})g({})`},
		{mistralTemplate, `Hm [TOOL_CALLS][{"name":"f","arguments":{}}]`, `Hm `, `f({})`},
		{mistralTemplate, `[TOOL_CALLS]f{"a": 1}`, `[TOOL_CALLS]f{"a": 1}`, ``},
		{mistralTemplate, `[TOOL_CALLS] []`, `[TOOL_CALLS] []`, ``},

		{llamaTemplate, "\n" + `{"name": "f", "parameters": {"a": "b"}}`, ``, `f({"a": "b"})`},
		{llamaTemplate, `{"type": "function", "name": "f", "parameters": {}}`, ``, `f({})`},
		{llamaTemplate, `{"city": "Bern"}`, `{"city": "Bern"}`, ``},
		{llamaTemplate, `Call {"name": "f", "parameters": {}}`, `Call {"name": "f", "parameters": {}}`, ``},
		{llamaTemplate, `{"name": "f", "parameters": {}} and more`, `{"name": "f", "parameters": {}} and more`, ``},
		{llamaTemplate, " \n", " \n", ``},
	} {
		form := formOf(parsed(t, test.template), tokenizer.Bytes())
		for size := 1; size <= len(test.text); size++ {
			before, calls := readCalls(form, test.text, size, false)
			made := ""
			for _, c := range calls {
				if made += c.name + "(" + c.arguments + ")"; len(c.id) != 9 {
					t.Errorf("%s: id %q", test.text, c.id)
				}
			}
			if before != test.before || made != test.calls {
				t.Errorf("%s in pieces of %d: %q, %s", test.text, size, before, made)
			}
		}
	}
	form := formOf(parsed(t, mistralTemplate), tokenizer.Bytes())
	if _, calls := readCalls(form, `[TOOL_CALLS][{"name":"f","id":"abcdefghi"},{"name":"g"}]`, 5, true); len(calls) != 1 || calls[0].id != "abcdefghi" {
		t.Errorf("one call: %+v", calls)
	}
	for _, unknown := range []string{"{{ tools }}", "{{ tools }}<tool_call><function=f></function></tool_call>", "{{ tools }}[TOOL_CALLS]f[ARGS]"} {
		if formOf(parsed(t, unknown), tokenizer.Bytes()) != nil {
			t.Errorf("%s has a form", unknown)
		}
	}
}

const called1 = `<tool_call>{"name":"weather","arguments":{"b":1}}</tool_call>`

// TestToolsInChats checks that tools are rendered and calls are found, whole and streamed, and that
// the client can send the answer and the tool's result back.
func TestToolsInChats(t *testing.T) {
	const chats = "/v1/chat/completions"
	m := described(t, says("I look. "+called1))
	m.Context, m.Template = 1000, parsed(t, hermesTemplate)
	url := start(t, m, limits, "")
	body := hello + `,"tools":[` + weather + `]`
	var whole struct {
		Choices []struct {
			Message json.RawMessage
			Finish  string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal([]byte(text(t, ask(t, "POST", url+chats, `{`+body+`}`))), &whole); err != nil || len(whole.Choices) != 1 {
		t.Fatalf("got %+v, %v; want nil error and len(whole.Choices) == 1", whole, err)
	}
	var message struct {
		Calls []struct{ ID string } `json:"tool_calls"`
	}
	if err := json.Unmarshal(whole.Choices[0].Message, &message); err != nil || len(message.Calls) != 1 {
		t.Fatalf("got %s, %v; want nil error and len(message.Calls) == 1", whole.Choices[0].Message, err)
	}
	call := fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":"weather","arguments":"{\"b\":1}"}}`, message.Calls[0].ID)
	want := decoded(t, `{"role":"assistant","content":"I look. ","refusal":null,"tool_calls":[`+call+`]}`)
	if diff := cmp.Diff(want, decoded(t, string(whole.Choices[0].Message))); diff != "" || whole.Choices[0].Finish != "tool_calls" {
		t.Error(whole.Choices[0].Finish, diff)
	}
	back := `{"model":"toy","tools":[` + weather + `],"messages":[{"role":"user","content":"Hi"},` + string(whole.Choices[0].Message) + `,{"role":"tool","tool_call_id":"c","content":"12"}]}`
	if r := ask(t, "POST", url+chats, back); r.StatusCode != http.StatusOK {
		t.Errorf("sent back: %s", text(t, r))
	}

	var deltas []string
	for part := range strings.SplitSeq(text(t, ask(t, "POST", url+chats, `{"stream":true,`+body+`}`)), "\n\n") {
		var event struct {
			Choices []struct {
				Delta  json.RawMessage
				Finish *string `json:"finish_reason"`
			}
		}
		if data, found := strings.CutPrefix(part, "data: {"); found {
			if err := json.Unmarshal([]byte("{"+data), &event); err != nil {
				t.Fatal(err)
			}
			deltas = append(deltas, string(event.Choices[0].Delta))
			if event.Choices[0].Finish != nil {
				deltas = append(deltas, *event.Choices[0].Finish)
			}
		}
	}
	streamed := strings.Join(deltas, "\n")
	for _, want := range []string{`{"content":"I","role":"assistant"}` + "\n", `"tool_calls":[{"function":{"arguments":"{\"b\":1}","name":"weather"},"id":"`, `"index":0,"type":"function"}]}`, "{}\ntool_calls"} {
		if !strings.Contains(streamed, want) || strings.Contains(streamed, "tool_call>") {
			t.Errorf("no %s in %s", want, streamed)
		}
	}

	none := parse(t, text(t, ask(t, "POST", url+chats, `{`+body+`,"tool_choice":"none"}`)))
	if one := none.Choices[0]; one.Message.Content != "I look. "+called1 || *one.FinishReason != "stop" {
		t.Errorf("tool_choice none: %+v", one)
	}
	cut := parse(t, text(t, ask(t, "POST", url+chats, `{`+body+`,"max_tokens":20}`)))
	if one := cut.Choices[0]; one.Message.Content != ("I look. " + called1)[:20] || *one.FinishReason != "length" {
		t.Errorf("a call that was cut: %+v", one)
	}
}

// TestToolsThatTemplatesDoNotShow checks that no part of a request is silently dropped.
func TestToolsThatTemplatesDoNotShow(t *testing.T) {
	for source, want := range map[string]string{
		"{% for m in messages %}{{ m.content }}{% endfor %}":                              "tools",
		"{{ tools }}{% for m in messages %}{{ m.content }}{{ m.tool_calls }}{% endfor %}": "tools", // in an unknown form
		"{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}":                   "messages[1].tool_calls",
	} {
		m := described(t, says("a"))
		m.Context, m.Template = 1000, parsed(t, source)
		url := start(t, m, limits, "")
		choice := `"auto"`
		if want != "tools" {
			choice = `"none"`
		}
		body := strings.Replace(string(talk(`"role":"assistant","content":"","tool_calls":[{"function":{"name":"f"}}]`)), `"none"`, choice, 1)
		if got := parse(t, text(t, ask(t, "POST", url+"/v1/chat/completions", body))); got.Error == nil || got.Error.Param != want || got.Error.Code != "unsupported_parameter" {
			t.Errorf("%s: got %+v; want got.Error != nil and got.Error.Param == want and got.Error.Code == \"unsupported_parameter\"", source, got.Error)
		}
	}
}

// TestMarkerOfCalls checks that a control token that begins calls has no text and is read as its
// name.
func TestMarkerOfCalls(t *testing.T) {
	const added = `"added_tokens": [{"id": 256, "content": "[TOOL_CALLS]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}]`
	coder, err := tokenizer.Parse(bytes.Replace(tokenizer.Bytes().JSON(), []byte(`"added_tokens": []`), []byte(added), 1))
	if err != nil {
		t.Fatal(err)
	}
	form := formOf(parsed(t, mistralTemplate), coder)
	if form.writtenBy(256) != "[TOOL_CALLS]" || form.writtenBy('a') != "" {
		t.Errorf("marker %d", form.marker)
	}
}

// FuzzCalls checks that a text gives the same result in any pieces, and that a text without calls
// is unchanged.
func FuzzCalls(f *testing.F) {
	for _, text := range []string{"a" + called1, `[TOOL_CALLS][{"name":"f","arguments":{}}]`, `{"name":"f","parameters":{}}`, "<tool_<tool_call>", "{", `[TOOL_CALLS][null]`, `<tool_call>null</tool_call>`} {
		f.Add(text, byte(3))
	}
	forms := []*callForm{{begin: hermesBegin, parse: parseHermes}, {begin: mistralBegin, parse: parseMistral}, {begin: "{", whole: true, parse: parseObject}}
	fuzztest.Run(f, func(t *testing.T, text string, size byte) {
		for _, form := range forms {
			whole, calls := readCalls(form, text, len(text)+1, false)
			before, again := readCalls(form, text, int(size)+1, false)
			if before != whole || len(calls) != len(again) {
				t.Errorf("%q: %q with %d calls, in pieces %q with %d", text, whole, len(calls), before, len(again))
			}
			if len(calls) == 0 && whole != text || !strings.HasPrefix(text, whole) && strings.TrimSpace(whole) != "" {
				t.Errorf("%q became %q", text, whole)
			}
			for _, c := range calls {
				var arguments map[string]json.RawMessage
				if err := json.Unmarshal([]byte(c.arguments), &arguments); err != nil || arguments == nil || !tool[c.name] {
					t.Errorf("%q has the call %+v", text, c)
				}
			}
		}
	})
}

// TestControlTokensInTools checks that the error names the field that has a control token.
func TestControlTokensInTools(t *testing.T) {
	m := described(t, says("a"))
	m.Context, m.Template = 1000, parsed(t, hermesTemplate)
	url := start(t, m, limits, "")
	for body, want := range map[string]string{
		hello + `,"tools":[{"type":"function","function":{"name":"a\u0000b"}}]`:             "tools",
		`"model":"toy","messages":[{"role":"tool","content":"a","tool_call_id":"a\u0000"}]`: "messages",
	} {
		got := parse(t, text(t, ask(t, "POST", url+"/v1/chat/completions", `{`+body+`}`)))
		if got.Error == nil || got.Error.Param != want || got.Error.Code != "control_tokens" {
			t.Errorf("%s: got %+v; want got.Error != nil and got.Error.Param == want and got.Error.Code == \"control_tokens\"", body, got)
		}
	}
}
