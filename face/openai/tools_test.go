package openai

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

const weather = `{"type":"function","function":{"name":"weather","parameters":{"b":0.5,"a":null}}}`

// talk returns a request with tools. The argument message is the content of the brackets of one of
// its messages.
func talk(message string) []byte {
	return fmt.Appendf(nil, `{"model":"toy","tools":[%s],"tool_choice":"none","messages":[{"role":"user","content":"Hi"},{%s}]}`, weather, message)
}

// TestTools checks the values of tools and calls that templates get: the objects themselves, and
// their fields in their original order.
func TestTools(t *testing.T) {
	r, wrong := decode(talk(`"role":"assistant","content":null,"tool_calls":[{"type":"function","id":"c","function":{"name":"weather","arguments":"{\"z\": 1, \"a\": {\"n\": 2.5}}"}}]`), true)
	if wrong != nil {
		t.Fatal(wrong)
	}
	if string(r.tools) != "["+weather+"]" {
		t.Errorf("tools %s", r.tools)
	}
	template, err := chat.Parse("{{ tools | tojson }}{% for m in messages %}{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls else '' }}{{ m.tool_call_id }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	text, err := template.Render(chat.Input{Messages: r.messages, Tools: r.tools})
	want := `[{"type": "function", "function": {"name": "weather", "parameters": {"b": 0.5, "a": null}}}]HiNone[{"type": "function", "id": "c", "function": {"name": "weather", "arguments": {"z": 1, "a": {"n": 2.5}}}}]`
	if diff := cmp.Diff(want, text); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if r, wrong = decode(talk(`"role":"tool","content":"12","tool_call_id":"c","name":"weather"`), true); wrong != nil {
		t.Fatal(wrong)
	}
	if diff := cmp.Diff(chat.Message{Role: "tool", Content: "12", CallID: json.RawMessage(`"c"`), Name: json.RawMessage(`"weather"`)}, r.messages[1]); diff != "" {
		t.Error(diff)
	}
}

// TestEmptyArguments checks that absent, null and empty arguments are an empty object, and that an
// empty content stays a text.
func TestEmptyArguments(t *testing.T) {
	for function, want := range map[string]string{
		`{"name":"f","arguments":""}`:        `|{"name": "f", "arguments": {}}`,
		`{"name":"f","arguments":null}`:      `|{"name": "f", "arguments": {}}`,
		`{"arguments":"{}","name":"f"}`:      `|{"arguments": {}, "name": "f"}`,
		`{"name":"f"}`:                       `|{"name": "f", "arguments": {}}`,
		`{}`:                                 `|{"arguments": {}}`,
		`{"name":"f","arguments":{"a":[1]}}`: `|{"name": "f", "arguments": {"a": [1]}}`,
	} {
		r, wrong := decode(talk(`"role":"assistant","content":"","tool_calls":[{"function":`+function+`}]`), true)
		if wrong != nil {
			t.Errorf("%s: got %+v; want wrong == nil", function, wrong)
			continue
		}
		template, err := chat.Parse("{{ messages[1].content }}|{{ messages[1].tool_calls[0].function | tojson }}")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := template.Render(chat.Input{Messages: r.messages}); text != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", function, text, err, want)
		}
	}
	for name, arguments := range map[string]string{"blank": `" "`, "null": `"null"`, "list": `"[]"`, "number": `3`} {
		body := talk(`"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":` + arguments + `}}]`)
		if _, wrong := decode(body, true); wrong == nil {
			t.Errorf("arguments %s: no error", arguments)
		} else {
			golden.Message(t, name, wrong)
		}
	}
}

func TestToolsThatAreRefused(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"toy","tools":[{"function":{"strict":true}}],"messages":[{"role":"user","content":"Hi"}]}`:                          "tools[0].function.strict",
		`{"model":"toy","tools":[{"function":[]}],"messages":[{"role":"user","content":"Hi"}]}`:                                       "tools[0].function",
		`{"model":"toy","tool_choice":{"type":"function","function":{"name":"weather"}},"messages":[{"role":"user","content":"Hi"}]}`: "tool_choice",
		`{"model":"toy","parallel_tool_calls":1,"messages":[{"role":"user","content":"Hi"}]}`:                                         "parallel_tool_calls",
		`{"model":"toy","tools":[1],"messages":[{"role":"user","content":"Hi"}]}`:                                                     "tools[0]",
		`{"model":"toy","tool_choice":"required","messages":[{"role":"user","content":"Hi"}]}`:                                        "tool_choice",
		string(talk(`"role":"assistant"`)):                                                                 "messages[1].content",
		string(talk(`"role":"assistant","tool_calls":[]`)):                                                 "messages[1].content",
		string(talk(`"role":"assistant","tool_calls":[{"function":{"arguments":"[1]"}}]`)):                 "messages[1].tool_calls[0].function.arguments",
		string(talk(`"role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\":\"\\ud800\"}"}}]`)): "messages[1].tool_calls[0].function.arguments",
		string(talk(`"role":"assistant","tool_calls":[{"function":"f"}]`)):                                 "messages[1].tool_calls[0].function",
	} {
		if _, wrong := decode([]byte(body), true); wrong == nil || wrong.param != want {
			t.Errorf("%s: %+v, want %s", body, wrong, want)
		}
	}
}
