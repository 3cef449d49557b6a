package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/strictjson"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

// Limits of a request.
const (
	maxMessages = 1 << 12
	maxStops    = 4
	maxStop     = 1 << 10 // bytes of one string
	maxTop      = 20      // alternatives shown for each token of a message
	maxTextTop  = 5       // alternatives shown for each token of a text
)

// request is a decoded request.
type request struct {
	model       string
	messages    []chat.Message
	tools       json.RawMessage
	toolChoice  string
	oneCall     bool // at most one tool call
	prompts     []prompt
	maxTokens   int // 0: not set
	maxField    string
	temperature float64
	topP        float64
	seed        *int64
	stops       []string
	stream      bool
	usage       bool // in the last event of the stream
	scored      bool // log-probabilities are requested
	top         int  // number of alternatives shown for each token

	severalPrompts bool // prompt is a list of prompts
}

// A field decodes one value of a request that is not null. It panics with a *problem, which decode
// recovers.
type field func(r *request, name string, raw json.RawMessage)

// fields are the fields of both kinds of requests.
var fields = map[string]field{
	"model":          func(r *request, name string, raw json.RawMessage) { read(name, raw, &r.model, "a string") },
	"temperature":    func(r *request, name string, raw json.RawMessage) { number(name, raw, &r.temperature, 0, 2) },
	"top_p":          topP,
	"max_tokens":     maxTokens,
	"seed":           func(r *request, name string, raw json.RawMessage) { read(name, raw, &r.seed, "an integer of 64 bits") },
	"stop":           stops,
	"stream":         func(r *request, name string, raw json.RawMessage) { read(name, raw, &r.stream, "true or false") },
	"stream_options": streamOptions,

	"n": only("1"), "frequency_penalty": only("0"), "presence_penalty": only("0"), "logit_bias": only("{}"),

	"user": ignored, "metadata": ignored, "store": ignored, "service_tier": ignored,
	"safety_identifier": ignored, "prompt_cache_key": ignored, "prompt_cache_retention": ignored,
}

// chatFields are fields of chat requests only, and textFields are fields of text completion requests
// only.
var (
	chatFields = map[string]field{
		"messages": messages, "max_completion_tokens": maxTokens,
		"logprobs":        func(r *request, name string, raw json.RawMessage) { read(name, raw, &r.scored, "true or false") },
		"top_logprobs":    func(r *request, name string, raw json.RawMessage) { whole(name, raw, &r.top, 0, maxTop) },
		"response_format": only(`{"type":"text"}`), "modalities": only(`["text"]`),
		"tools": tools, "functions": replaced("tools", "[]"), "tool_choice": toolChoice, "function_call": replaced("tool_choice", `"none"`, `"auto"`),
		"parallel_tool_calls": parallelCalls, "prediction": ignored,
	}
	textFields = map[string]field{
		"prompt": prompts, "logprobs": textLogprobs, "best_of": only("1"), "echo": only("false"), "suffix": only(`""`),
	}
)

// decode decodes the body of a chat request or of a text completion request.
func decode(body []byte, inChat bool) (r request, wrong *problem) {
	defer func() {
		switch value := recover().(type) {
		case nil:
		case *problem:
			wrong = value
		default:
			panic(value)
		}
	}()
	r = request{temperature: 1, topP: 1}
	own := textFields
	if inChat {
		own = chatFields
	}
	if err := strictjson.CheckEscapes(body); err != nil {
		return r, invalid("", "", "the body is not strict JSON: %v", err)
	}
	if !json.Valid(body) {
		return r, invalid("", "", "the body is not a JSON object")
	}
	object(body, "", func(name string, raw json.RawMessage) {
		take := own[name]
		if take == nil {
			take = fields[name]
		}
		if take == nil {
			panic(invalid(name, "unknown_parameter", "%s is unknown and could change the answer; omit it", quoted(name)))
		}
		take(&r, name, raw)
	})
	switch {
	case r.model == "":
		return r, invalid("model", "missing_required_parameter", "model is missing: GET /v1/models lists the name")
	case inChat && r.top > 0 && !r.scored:
		return r, invalid("top_logprobs", "invalid_value", "top_logprobs is %d without logprobs: set logprobs to true", r.top)
	case inChat && len(r.messages) == 0:
		return r, invalid("messages", "missing_required_parameter", "messages is missing or empty")
	case !inChat && (len(r.prompts) == 0 || !r.severalPrompts && r.prompts[0].empty()):
		return r, invalid("prompt", "missing_required_parameter", "prompt is missing or empty")
	case len(r.prompts) > 1 && r.maxTokens > maxWritten/len(r.prompts):
		return r, invalid(r.maxField, "invalid_value", "%s is %d for each of %d prompts: want at most %d tokens in total for several prompts", r.maxField, r.maxTokens, len(r.prompts), maxWritten)
	case r.usage && !r.stream:
		return r, invalid("stream_options", "", "stream_options requires stream = true")
	}
	return r, nil
}

// object calls each with the fields of an object that are not null, in their order. at is the
// object's path in the request, empty for the whole request. raw is valid JSON.
func object(raw []byte, at string, each func(name string, raw json.RawMessage)) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		panic(invalid(at, "invalid_type", "%s is %.20s: want an object", cmp.Or(at, "the body"), raw))
	}
	seen := map[string]bool{}
	for d.More() {
		var value json.RawMessage
		key, err := d.Token()
		if err = errors.Join(err, d.Decode(&value)); err != nil {
			panic(invalid(at, "", "the body is not JSON: %v", err))
		}
		name := key.(string) // keys of an object are strings
		if seen[name] {
			panic(invalid(fieldOf(at, name), "", "%s occurs twice", quoted(name)))
		}
		if seen[name] = true; string(value) == "null" {
			continue
		}
		each(name, value)
	}
}

// fieldOf returns the path of a field of an object.
func fieldOf(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func quoted(name string) string { return fmt.Sprintf("%.100q", name) }

func read(name string, raw json.RawMessage, to any, want string) {
	if json.Unmarshal(raw, to) != nil {
		panic(invalid(name, "invalid_type", "%s is %.60s: want %s", name, raw, want))
	}
}

func number(name string, raw json.RawMessage, to *float64, minimum, maximum float64) {
	want := fmt.Sprintf("a number from %v to %v", minimum, maximum)
	read(name, raw, to, want)
	if !(*to >= minimum && *to <= maximum) {
		panic(invalid(name, "invalid_value", "%s is %v: want %s", name, *to, want))
	}
}

func whole(name string, raw json.RawMessage, to *int, minimum, maximum int) {
	want := fmt.Sprintf("a whole number from %d to %d", minimum, maximum)
	read(name, raw, to, want)
	if *to < minimum || *to > maximum {
		panic(invalid(name, "invalid_value", "%s is %d: want %s", name, *to, want))
	}
}

func ignored(*request, string, json.RawMessage) {}

// among reports whether a value is one of the given values.
func among(raw json.RawMessage, values []string) bool {
	var given, allowed any
	_ = json.Unmarshal(raw, &given) // it is valid JSON
	return slices.ContainsFunc(values, func(value string) bool {
		_ = json.Unmarshal([]byte(value), &allowed)
		return reflect.DeepEqual(given, allowed)
	})
}

// only returns a field that accepts only the given values, because other values request unsupported
// behaviour.
func only(values ...string) field {
	return func(_ *request, name string, raw json.RawMessage) {
		if !among(raw, values) {
			panic(invalid(name, "unsupported_parameter", "%s is %.60s, which is not supported; omit it, or use %s", name, raw, strings.Join(values, " or ")))
		}
	}
}

// replaced is like only, for a field that has a newer name.
func replaced(by string, values ...string) field {
	return func(_ *request, name string, raw json.RawMessage) {
		if !among(raw, values) {
			panic(invalid(name, "unsupported_parameter", "%s is not supported; use %s", name, by))
		}
	}
}

func topP(r *request, name string, raw json.RawMessage) {
	number(name, raw, &r.topP, 0, 1)
	if r.topP == 0 {
		panic(invalid(name, "invalid_value", "top_p is 0: want more than 0; to choose the most likely token, set temperature to 0"))
	}
}

func maxTokens(r *request, name string, raw json.RawMessage) {
	var n int
	read(name, raw, &n, "an integer of at least 1")
	switch {
	case n < 1:
		panic(invalid(name, "invalid_value", "%s is %d: want at least 1", name, n))
	case r.maxTokens != 0 && r.maxTokens != n:
		panic(invalid(name, "invalid_value", "%s is %d, but %s is %d; give only one of them", r.maxField, r.maxTokens, name, n))
	}
	r.maxTokens, r.maxField = n, name
}

func stops(r *request, name string, raw json.RawMessage) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		r.stops = []string{one}
	} else {
		read(name, raw, &r.stops, "a string, or a list of strings")
	}
	if len(r.stops) > maxStops {
		panic(invalid(name, "invalid_value", "stop has %d strings, at most %d are allowed", len(r.stops), maxStops))
	}
	for _, stop := range r.stops {
		if stop == "" || len(stop) > maxStop {
			panic(invalid(name, "invalid_value", "stop has a string of %d bytes: want 1 to %d", len(stop), maxStop))
		}
	}
}

func streamOptions(r *request, name string, raw json.RawMessage) {
	object(raw, name, func(key string, raw json.RawMessage) {
		switch key {
		case "include_usage":
			read("stream_options.include_usage", raw, &r.usage, "true or false")
		case "include_obfuscation": // it does not affect the text
		default:
			panic(invalid(fieldOf(name, key), "unknown_parameter", "stream_options.%.100s is unknown; omit it", key))
		}
	})
}

// developer is a newer name of the role system. Templates that do not know it get the role system.
const developer = "developer"

// roles of messages.
var roles = []string{"system", developer, "user", "assistant", "tool"}

func messages(r *request, name string, raw json.RawMessage) {
	var all []json.RawMessage
	read(name, raw, &all, "a list of messages")
	if len(all) > maxMessages {
		panic(invalid(name, "invalid_value", "messages has %d entries, at most %d are allowed", len(all), maxMessages))
	}
	for i, raw := range all {
		var m chat.Message
		at, hasContent := fmt.Sprintf("messages[%d]", i), false
		object(raw, at, func(key string, raw json.RawMessage) {
			switch inner := at + "." + key; key {
			case "role":
				read(inner, raw, &m.Role, "a string")
			case "content":
				hasContent = true
				content(inner, raw, &m.Content)
			case "tool_calls":
				toolCalls(inner, raw, &m.Calls)
			case "tool_call_id":
				keepText(inner, raw, &m.CallID)
			case "name":
				keepText(inner, raw, &m.Name)
			case "annotations": // of an answer that the client sends back
				only("[]")(r, inner, raw)
			default:
				panic(invalid(inner, "unsupported_parameter", "%.100s is not supported and could change the answer; omit it", inner))
			}
		})
		switch {
		case !slices.Contains(roles, m.Role):
			panic(invalid(at+".role", "invalid_value", "%s.role is %.40q: want one of %s", at, m.Role, strings.Join(roles, ", ")))
		case !hasContent && m.Calls == nil:
			panic(invalid(at+".content", "missing_required_parameter", "%s.content is missing or null", at))
		}
		if !hasContent {
			m.Kind = chat.NullContent
		}
		r.messages = append(r.messages, m)
	}
}

// keepText keeps the JSON of a string.
func keepText(at string, raw json.RawMessage, to *json.RawMessage) {
	var text string
	*to = raw
	read(at, raw, &text, "a string")
}

// content reads a text, or a text in parts.
func content(at string, raw json.RawMessage, to *string) {
	if json.Unmarshal(raw, to) == nil {
		return
	}
	var parts []json.RawMessage
	read(at, raw, &parts, "a string, or a list of parts")
	var whole strings.Builder
	for i, raw := range parts {
		var kind, text string
		place := fmt.Sprintf("%s[%d]", at, i)
		object(raw, place, func(key string, raw json.RawMessage) {
			switch inner := place + "." + key; key {
			case "type":
				read(inner, raw, &kind, "a string")
			case "text":
				read(inner, raw, &text, "a string")
			default:
				panic(invalid(inner, "unsupported_parameter", "%.100s is not supported: this server reads text only", inner))
			}
		})
		if kind != "text" {
			panic(invalid(place+".type", "invalid_value", "%s.type is %.40q: this server reads text only", place, kind))
		}
		whole.WriteString(text)
	}
	*to = whole.String()
}
