package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// maxPrompts limits the prompts of a request.
const maxPrompts = 128

// prompt is a text, or the ids of its tokens.
type prompt struct {
	text string
	ids  []int32 // nil: text is set
}

func (p prompt) empty() bool { return p.text == "" && len(p.ids) == 0 }

// prompts reads a text, the ids of its tokens, or a list of either.
func prompts(r *request, name string, raw json.RawMessage) {
	const want = "a string, a list of strings, a list of token ids, or a list of such lists"
	var text string
	if json.Unmarshal(raw, &text) == nil {
		r.prompts = []prompt{{text: text}}
		return
	}
	inner := bytes.TrimLeft(raw, "[ \t\r\n")
	lists := bytes.Count(raw[:len(raw)-len(inner)], []byte("["))
	var texts []*string
	var all [][]int32
	switch {
	case bytes.HasPrefix(inner, []byte(`"`)):
		read(name, raw, &texts, want)
	case bytes.Contains(raw, []byte("null")): // it would decode as 0
		panic(invalid(name, "invalid_type", "%s is %.60s: want %s", name, raw, want))
	case lists < 2:
		all = make([][]int32, 1)
		read(name, raw, &all[0], want)
	default:
		read(name, raw, &all, want)
	}
	if n := len(texts) + len(all); n > maxPrompts {
		panic(invalid(name, "invalid_value", "%s has %d prompts, at most %d are allowed", name, n, maxPrompts))
	}
	r.severalPrompts = len(texts) > 0 || lists > 1
	for i, text := range texts {
		if text == nil || *text == "" {
			panic(invalid(fmt.Sprintf("%s[%d]", name, i), "invalid_value", "%s[%d] is null or empty", name, i))
		}
		r.prompts = append(r.prompts, prompt{text: *text})
	}
	for _, ids := range all {
		for _, id := range ids {
			if id < 0 {
				panic(invalid(name, "invalid_value", "%s has the token %d: want at least 0", name, id))
			}
		}
		r.prompts = append(r.prompts, prompt{ids: ids})
	}
}

// textLogprobs reads the number of likely alternatives to show for each token of a text. 0 shows
// only the token itself, false shows nothing.
func textLogprobs(r *request, name string, raw json.RawMessage) {
	if string(raw) == "false" {
		return
	}
	r.scored = true
	whole(name, raw, &r.top, 0, maxTextTop)
}
