package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/base/strictjson"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

// maxTools limits the tools of a request, and the calls of a message.
const maxTools = 1 << 10

// objects calls each with the objects of a list, in their order.
func objects(name string, raw json.RawMessage, each func(at string, raw json.RawMessage)) {
	var all []json.RawMessage
	read(name, raw, &all, "a list of objects")
	if len(all) > maxTools {
		panic(invalid(name, "invalid_value", "%s has %d entries, at most %d are allowed", name, len(all), maxTools))
	}
	for i, one := range all {
		each(fmt.Sprintf("%s[%d]", name, i), one)
	}
}

// tools passes the tools to the template unchanged.
func tools(r *request, name string, raw json.RawMessage) {
	objects(name, raw, func(at string, one json.RawMessage) {
		r.tools = raw
		object(one, at, func(key string, value json.RawMessage) {
			if key != "function" {
				return
			}
			object(value, fieldOf(at, key), func(key string, value json.RawMessage) {
				if key != "strict" {
					return
				}
				only("false")(r, fieldOf(at, "function.strict"), value) // the server cannot enforce a schema
			})
		})
	})
}

// toolNames returns the names of the functions in tools.
func toolNames(tools json.RawMessage) map[string]bool {
	var all []struct {
		Function struct{ Name string }
	}
	_ = json.Unmarshal(tools, &all) // tools with other fields have no name
	names := map[string]bool{}
	for _, tool := range all {
		if tool.Function.Name != "" {
			names[tool.Function.Name] = true
		}
	}
	return names
}

// fits rejects tools, and calls in messages, if the template would not show them to the model. It also
// rejects tools if the server could not recognise their calls in the answer.
func (r *request) fits(t *chat.Template, form *callForm) *problem {
	const code = "unsupported_parameter"
	switch {
	case r.tools == nil:
	case !t.Reads("tools"):
		return invalid("tools", code, "the model's chat template does not show tools to the model: omit tools, or start the server with a --chat-template that supports them")
	case r.toolChoice != "none" && form == nil:
		return invalid("tools", code, `calls of tools in the format of the model's chat template are not supported; set tool_choice to "none", and read the calls in content`)
	}
	for i, m := range r.messages {
		if m.Calls != nil && !t.Reads("tool_calls") {
			at := fmt.Sprintf("messages[%d].tool_calls", i)
			return invalid(at, code, "the model's chat template does not show %s to the model: omit it", at)
		}
	}
	return nil
}

// parallelCalls reads whether an answer may have more than one call.
func parallelCalls(r *request, name string, raw json.RawMessage) {
	several := true
	read(name, raw, &several, "true or false")
	r.oneCall = !several
}

func toolChoice(r *request, name string, raw json.RawMessage) {
	only(`"none"`, `"auto"`)(r, name, raw)
	read(name, raw, &r.toolChoice, "a string")
}

// toolCalls reads the calls of a message. Their arguments are JSON within a string, but templates
// expect the object itself. Arguments that are missing, null or an empty string become an empty
// object, as in vLLM.
func toolCalls(at string, raw json.RawMessage, to *json.RawMessage) {
	var calls []json.RawMessage
	objects(at, raw, func(at string, one json.RawMessage) {
		calls = append(calls, changed(one, at, "function", func(at string, raw json.RawMessage) json.RawMessage {
			given := false
			function := changed(raw, at, "arguments", func(at string, raw json.RawMessage) json.RawMessage {
				given = true
				arguments, wrong := opened(at, raw)
				if wrong != nil {
					panic(wrong)
				}
				return arguments
			})
			if !given {
				function = withEmptyArguments(function)
			}
			return function
		}))
	})
	if len(calls) > 0 {
		*to = joined('[', calls, ']')
	}
}

// withEmptyArguments appends empty arguments to an object.
func withEmptyArguments(function json.RawMessage) json.RawMessage {
	if string(function) == "{}" {
		return json.RawMessage(`{"arguments":{}}`)
	}
	return append(function[:len(function)-1], `,"arguments":{}}`...)
}

// changed returns an object in which change has replaced the named field.
func changed(raw json.RawMessage, at, name string, change func(at string, raw json.RawMessage) json.RawMessage) json.RawMessage {
	var parts []json.RawMessage
	object(raw, at, func(key string, value json.RawMessage) {
		if key == name {
			value = change(at+"."+key, value)
		}
		quoted, err := json.Marshal(key)
		if err != nil {
			panic(failed(err))
		}
		parts = append(parts, slices.Concat(quoted, []byte(":"), value))
	})
	return joined('{', parts, '}')
}

// opened returns the object of arguments. The JSON may be the object itself, or a string that contains
// it.
func opened(at string, raw json.RawMessage) (json.RawMessage, *problem) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = json.RawMessage(text)
		if text == "" {
			raw = json.RawMessage("{}")
		}
	}
	var fields map[string]json.RawMessage
	if err := errors.Join(strictjson.CheckEscapes(raw), json.Unmarshal(raw, &fields)); err != nil || fields == nil {
		return nil, invalid(at, "invalid_value", "%s are %.60q: want an object, as JSON in a string", at, raw)
	}
	return raw, nil
}

// joined encodes values with commas between two brackets.
func joined(open byte, values []json.RawMessage, end byte) json.RawMessage {
	out := []byte{open}
	for i, value := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, value...)
	}
	return append(out, end)
}
