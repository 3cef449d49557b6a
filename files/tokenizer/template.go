package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// template contains the IDs that a post-processor adds before and after a text.
type template struct{ before, after []int32 }

// maxTemplate is the maximum number of IDs that post-processors add.
const maxTemplate = 256

// parseTemplate parses post_processor. With several templates, the reference passes the pieces of
// one (special tokens and the text) to the next, which treats two pieces as two texts and does not
// accept more.
func (t *Tokenizer) parseTemplate(raw []byte) error {
	pieces, around := 1, false
	walk := components{list: "processors", add: func(kind string, o *object) error {
		switch kind {
		case "ByteLevel": // changes only offsets, not IDs
			o.flag("add_prefix_space", true)
			o.flag("trim_offsets", true)
			o.flag("use_regex", true)
		case "BertProcessing", "RobertaProcessing":
			if kind == "RobertaProcessing" { // these change only offsets
				o.flag("add_prefix_space")
				o.flag("trim_offsets")
			}
			inner := template{before: t.marker(o, "cls"), after: t.marker(o, "sep")}
			if pieces > 1 || around {
				o.fail("%s follows a template that adds special tokens; this combination is not supported", o.name)
			}
			t.template, around = inner, true
		case "TemplateProcessing":
			inner, err := t.templateProcessing(o)
			if err != nil {
				return err
			}
			switch {
			case around:
				o.fail("%s follows another template that adds special tokens; this combination is not supported", o.name)
			case pieces == 1:
				t.template, pieces = inner.template, inner.pieces
			case pieces > 2 || !inner.plainPair:
				o.fail("%s follows a template that adds %d special tokens; the reference does not support this combination", o.name, pieces-1)
			}
		default:
			return unknownKind(o, kind)
		}
		return o.err
	}}
	return walk.walk("post_processor", raw, 0)
}

// marker parses the token that a post-processor adds on one side of a text: its name and its ID.
func (t *Tokenizer) marker(o *object, key string) []int32 {
	raw, found := o.need(key)
	var name string
	var id int32
	if found && (!twoValues(raw, &name, &id) || !t.has(id)) {
		o.fail("%s is %s, want a token and its id", o.path(key), shorten(raw))
	}
	return []int32{id}
}

// templateParts is a template as in the file.
type templateParts struct {
	template
	pieces    int  // of one text
	plainPair bool // two texts stay unchanged
}

func (t *Tokenizer) templateProcessing(o *object) (result templateParts, err error) {
	tokens, err := t.templateTokens(o)
	if err != nil {
		return result, err
	}
	if result.plainPair, err = plainPair(o); err != nil {
		return result, err
	}
	sequences := 0
	single := o.list("single")
	result.pieces = len(single)
	for i, raw := range single {
		part, err := parseObject(fmt.Sprintf("%s[%d]", o.path("single"), i), raw)
		if err != nil {
			return result, err
		}
		kind, inner := "Sequence", (*object)(nil)
		if _, special := part.fields["SpecialToken"]; special {
			kind = "SpecialToken"
		}
		inner = part.object(kind)
		id := inner.text("id")
		inner.count("type_id", maxID)
		if err := part.done(); err != nil {
			return result, err
		}
		if err := inner.done(); err != nil {
			return result, err
		}
		ids, known := tokens[id]
		switch {
		case kind == "Sequence" && id == "A":
			sequences++
		case kind == "SpecialToken" && known && sequences == 0:
			result.before = append(result.before, ids...)
		case kind == "SpecialToken" && known:
			result.after = append(result.after, ids...)
		default:
			return result, fmt.Errorf("%w: %s is %q, want the text or a special token of the template", errUnsupported, inner.path("id"), id)
		}
	}
	if sequences != 1 && o.err == nil {
		o.fail("%s contains the text %d times, want 1", o.path("single"), sequences)
	}
	if len(result.before)+len(result.after) > maxTemplate {
		o.fail("%s adds more than %d ids", o.path("single"), maxTemplate)
	}
	return result, o.err
}

// plainPair parses pair, for two texts. It reports whether pair consists only of these two.
func plainPair(o *object) (bool, error) {
	raw, found := o.get("pair")
	if !found {
		return true, nil
	}
	var parts []struct {
		Sequence struct {
			ID string `json:"id"`
		}
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return false, fmt.Errorf("%w: %s is not an array of objects: %w", errUnsupported, o.path("pair"), err)
	}
	return len(parts) == 2 && parts[0].Sequence.ID == "A" && parts[1].Sequence.ID == "B", nil
}

// templateTokens parses the IDs of the special tokens of a template.
func (t *Tokenizer) templateTokens(o *object) (map[string][]int32, error) {
	tokens := map[string][]int32{}
	all := o.object("special_tokens")
	if o.err != nil {
		return nil, o.err
	}
	for _, name := range slices.Sorted(maps.Keys(all.fields)) {
		token, err := parseObject(all.path(name), all.fields[name])
		if err != nil {
			return nil, err
		}
		var ids []int32
		if list, found := token.need("ids"); found {
			token.unmarshal("ids", list, &ids, "an array of ids")
		}
		var texts []string
		if list, found := token.need("tokens"); found {
			token.unmarshal("tokens", list, &texts, "an array of strings")
		}
		if id := token.text("id"); token.err == nil && id != name {
			token.fail("%s is %q, not %q", token.path("id"), id, name)
		}
		if err := token.done(); err != nil {
			return nil, err
		}
		if len(ids) > maxTemplate || slices.ContainsFunc(ids, func(id int32) bool { return !t.has(id) }) {
			return nil, fmt.Errorf("%w: %s is %s, which contains unknown ids", errUnsupported, token.path("ids"), shorten(mustJSON(ids)))
		}
		tokens[name] = ids
	}
	return tokens, nil
}

func mustJSON(ids []int32) []byte {
	text, err := json.Marshal(ids)
	if err != nil {
		panic("tokenizer: encode numbers as JSON: " + err.Error())
	}
	return text
}
