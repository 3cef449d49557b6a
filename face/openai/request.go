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

// A field decodes one value of a request, which is not null.
type field func(r *request, name string, raw json.RawMessage) *problem

// fields are the fields of both kinds of requests.
var fields = map[string]field{
	"model": func(r *request, name string, raw json.RawMessage) *problem {
		return read(name, raw, &r.model, "a string")
	},
	"temperature": func(r *request, name string, raw json.RawMessage) *problem {
		return number(name, raw, &r.temperature, 0, 2)
	},
	"top_p":      topP,
	"max_tokens": maxTokens,
	"seed": func(r *request, name string, raw json.RawMessage) *problem {
		return read(name, raw, &r.seed, "an integer of 64 bits")
	},
	"stop": stops,
	"stream": func(r *request, name string, raw json.RawMessage) *problem {
		return read(name, raw, &r.stream, "true or false")
	},
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
		"logprobs": func(r *request, name string, raw json.RawMessage) *problem {
			return read(name, raw, &r.scored, "true or false")
		},
		"top_logprobs": func(r *request, name string, raw json.RawMessage) *problem {
			return whole(name, raw, &r.top, 0, maxTop)
		},
		"response_format": only(`{"type":"text"}`), "modalities": only(`["text"]`),
		"tools": tools, "functions": replaced("tools", "[]"), "tool_choice": toolChoice, "function_call": replaced("tool_choice", `"none"`, `"auto"`),
		"parallel_tool_calls": parallelCalls, "prediction": ignored,
	}
	textFields = map[string]field{
		"prompt": prompts, "logprobs": textLogprobs, "best_of": only("1"), "echo": only("false"), "suffix": only(`""`),
	}
)

// decode decodes the body of a chat request or of a text completion request.
func decode(body []byte, inChat bool) (request, *problem) {
	r := request{temperature: 1, topP: 1}
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
	problem := object(body, "", func(name string, raw json.RawMessage) *problem {
		if take := own[name]; take != nil {
			return take(&r, name, raw)
		}
		if take := fields[name]; take != nil {
			return take(&r, name, raw)
		}
		return invalid(name, "unknown_parameter", "%s is unknown and could change the answer; omit it", quoted(name))
	})
	switch {
	case problem != nil:
		return r, problem
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
func object(raw []byte, at string, each func(name string, raw json.RawMessage) *problem) *problem {
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return invalid(at, "invalid_type", "%s is %.20s: want an object", cmp.Or(at, "the body"), raw)
	}
	seen := map[string]bool{}
	for d.More() {
		var value json.RawMessage
		key, err := d.Token()
		if err = errors.Join(err, d.Decode(&value)); err != nil {
			return invalid(at, "", "the body is not JSON: %v", err)
		}
		name := key.(string) // keys of an object are strings
		if seen[name] {
			return invalid(fieldOf(at, name), "", "%s occurs twice", quoted(name))
		}
		if seen[name] = true; string(value) == "null" {
			continue
		}
		if problem := each(name, value); problem != nil {
			return problem
		}
	}
	return nil
}

// fieldOf returns the path of a field of an object.
func fieldOf(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func quoted(name string) string { return fmt.Sprintf("%.100q", name) }

func read(name string, raw json.RawMessage, to any, want string) *problem {
	if json.Unmarshal(raw, to) != nil {
		return invalid(name, "invalid_type", "%s is %.60s: want %s", name, raw, want)
	}
	return nil
}

func number(name string, raw json.RawMessage, to *float64, least, most float64) *problem {
	want := fmt.Sprintf("a number from %v to %v", least, most)
	if problem := read(name, raw, to, want); problem != nil {
		return problem
	}
	if !(*to >= least && *to <= most) {
		return invalid(name, "invalid_value", "%s is %v: want %s", name, *to, want)
	}
	return nil
}

func whole(name string, raw json.RawMessage, to *int, least, most int) *problem {
	want := fmt.Sprintf("a whole number from %d to %d", least, most)
	if problem := read(name, raw, to, want); problem != nil {
		return problem
	}
	if *to < least || *to > most {
		return invalid(name, "invalid_value", "%s is %d: want %s", name, *to, want)
	}
	return nil
}

func ignored(*request, string, json.RawMessage) *problem { return nil }

// only returns a field that accepts only the given values, because other values request unsupported
// behaviour.
func only(values ...string) field {
	return func(_ *request, name string, raw json.RawMessage) *problem {
		var given, allowed any
		_ = json.Unmarshal(raw, &given) // it is valid JSON
		for _, value := range values {
			if _ = json.Unmarshal([]byte(value), &allowed); reflect.DeepEqual(given, allowed) {
				return nil
			}
		}
		return invalid(name, "unsupported_parameter", "%s is %.60s, which is not supported; omit it, or use %s", name, raw, strings.Join(values, " or "))
	}
}

// replaced is like only, for a field that has a newer name.
func replaced(by string, values ...string) field {
	return func(r *request, name string, raw json.RawMessage) *problem {
		if problem := only(values...)(r, name, raw); problem != nil {
			problem.message = fmt.Sprintf("%s is not supported; use %s", name, by)
			return problem
		}
		return nil
	}
}

func topP(r *request, name string, raw json.RawMessage) *problem {
	if problem := number(name, raw, &r.topP, 0, 1); problem != nil {
		return problem
	}
	if r.topP == 0 {
		return invalid(name, "invalid_value", "top_p is 0: want more than 0; to choose the most likely token, set temperature to 0")
	}
	return nil
}

func maxTokens(r *request, name string, raw json.RawMessage) *problem {
	var n int
	if problem := read(name, raw, &n, "an integer of at least 1"); problem != nil {
		return problem
	}
	switch {
	case n < 1:
		return invalid(name, "invalid_value", "%s is %d: want at least 1", name, n)
	case r.maxTokens != 0 && r.maxTokens != n:
		return invalid(name, "invalid_value", "%s is %d, but %s is %d; give only one of them", r.maxField, r.maxTokens, name, n)
	}
	r.maxTokens, r.maxField = n, name
	return nil
}

func stops(r *request, name string, raw json.RawMessage) *problem {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		r.stops = []string{one}
	} else if problem := read(name, raw, &r.stops, "a string, or a list of strings"); problem != nil {
		return problem
	}
	if len(r.stops) > maxStops {
		return invalid(name, "invalid_value", "stop has %d strings, at most %d are allowed", len(r.stops), maxStops)
	}
	for _, stop := range r.stops {
		if stop == "" || len(stop) > maxStop {
			return invalid(name, "invalid_value", "stop has a string of %d bytes: want 1 to %d", len(stop), maxStop)
		}
	}
	return nil
}

func streamOptions(r *request, name string, raw json.RawMessage) *problem {
	return object(raw, name, func(key string, raw json.RawMessage) *problem {
		switch key {
		case "include_usage":
			return read("stream_options.include_usage", raw, &r.usage, "true or false")
		case "include_obfuscation":
			return nil // it does not affect the text
		}
		return invalid(fieldOf(name, key), "unknown_parameter", "stream_options.%.100s is unknown; omit it", key)
	})
}

// developer is a newer name of the role system. Templates that do not know it get the role system.
const developer = "developer"

// roles of messages.
var roles = []string{"system", developer, "user", "assistant", "tool"}

func messages(r *request, name string, raw json.RawMessage) *problem {
	var all []json.RawMessage
	if problem := read(name, raw, &all, "a list of messages"); problem != nil {
		return problem
	}
	if len(all) > maxMessages {
		return invalid(name, "invalid_value", "messages has %d entries, at most %d are allowed", len(all), maxMessages)
	}
	for i, raw := range all {
		var m chat.Message
		at, hasContent := fmt.Sprintf("messages[%d]", i), false
		problem := object(raw, at, func(key string, raw json.RawMessage) *problem {
			switch inner := at + "." + key; key {
			case "role":
				return read(inner, raw, &m.Role, "a string")
			case "content":
				hasContent = true
				return content(inner, raw, &m.Content)
			case "tool_calls":
				return toolCalls(inner, raw, &m.Calls)
			case "tool_call_id":
				return keepText(inner, raw, &m.CallID)
			case "name":
				return keepText(inner, raw, &m.Name)
			case "annotations": // of an answer that the client sends back
				return only("[]")(r, inner, raw)
			default:
				return invalid(inner, "unsupported_parameter", "%.100s is not supported and could change the answer; omit it", inner)
			}
		})
		switch {
		case problem != nil:
			return problem
		case !slices.Contains(roles, m.Role):
			return invalid(at+".role", "invalid_value", "%s.role is %.40q: want one of %s", at, m.Role, strings.Join(roles, ", "))
		case !hasContent && m.Calls == nil:
			return invalid(at+".content", "missing_required_parameter", "%s.content is missing or null", at)
		}
		if !hasContent {
			m.Kind = chat.NullContent
		}
		r.messages = append(r.messages, m)
	}
	return nil
}

// keepText keeps the JSON of a string.
func keepText(at string, raw json.RawMessage, to *json.RawMessage) *problem {
	var text string
	*to = raw
	return read(at, raw, &text, "a string")
}

// content reads a text, or a text in parts.
func content(at string, raw json.RawMessage, to *string) *problem {
	if json.Unmarshal(raw, to) == nil {
		return nil
	}
	var parts []json.RawMessage
	if problem := read(at, raw, &parts, "a string, or a list of parts"); problem != nil {
		return problem
	}
	var whole strings.Builder
	for i, raw := range parts {
		var kind, text string
		place := fmt.Sprintf("%s[%d]", at, i)
		problem := object(raw, place, func(key string, raw json.RawMessage) *problem {
			switch inner := place + "." + key; key {
			case "type":
				return read(inner, raw, &kind, "a string")
			case "text":
				return read(inner, raw, &text, "a string")
			default:
				return invalid(inner, "unsupported_parameter", "%.100s is not supported: this server reads text only", inner)
			}
		})
		if problem != nil {
			return problem
		}
		if kind != "text" {
			return invalid(place+".type", "invalid_value", "%s.type is %.40q: this server reads text only", place, kind)
		}
		whole.WriteString(text)
	}
	*to = whole.String()
	return nil
}
