package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// template is what a post-processor puts before and after the ids of a text.
type template struct{ before, after []int32 }

// maxTemplate bounds the ids that post-processors add.
const maxTemplate = 256

// parseTemplate reads post_processor.
func (t *Tokenizer) parseTemplate(raw []byte) error {
	walk := components{list: "processors", add: func(kind string, o *object) error {
		switch kind {
		case "ByteLevel": // it changes offsets only, no ids
			o.flag("add_prefix_space", true)
			o.flag("trim_offsets", true)
			o.flag("use_regex", true)
		case "TemplateProcessing":
			inner, err := t.templateProcessing(o)
			if err != nil {
				return err
			}
			t.template.before = append(inner.before, t.template.before...)
			t.template.after = append(t.template.after, inner.after...)
		default:
			return unknownKind(o, kind)
		}
		return o.err
	}}
	return walk.walk("post_processor", raw, 0)
}

func (t *Tokenizer) templateProcessing(o *object) (result template, err error) {
	tokens, err := t.templateTokens(o)
	if err != nil {
		return result, err
	}
	o.get("pair") // for two texts at once, which this package never has
	sequences := 0
	for i, raw := range o.list("single") {
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
			return result, fmt.Errorf("%w: %s is %q, which is neither the text nor a special token of the template", ErrUnsupported, inner.path("id"), id)
		}
	}
	if sequences != 1 && o.err == nil {
		o.fail("%s has the text %d times, want once", o.path("single"), sequences)
	}
	if len(result.before)+len(result.after) > maxTemplate {
		o.fail("%s adds more than %d ids", o.path("single"), maxTemplate)
	}
	return result, o.err
}

// templateTokens reads the ids of the special tokens of a template.
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
			return nil, fmt.Errorf("%w: %s is %s, which names ids that no token has", ErrUnsupported, token.path("ids"), shorten(mustJSON(ids)))
		}
		tokens[name] = ids
	}
	return tokens, nil
}

func mustJSON(ids []int32) []byte {
	text, err := json.Marshal(ids)
	if err != nil {
		panic("tokenizer: numbers have no JSON: " + err.Error())
	}
	return text
}
