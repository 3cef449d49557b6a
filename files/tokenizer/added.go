package tokenizer

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that has precedence over all others in a text.
type addedToken struct {
	id                         int32
	content                    string
	singleWord, lstrip, rstrip bool
	normalized, special        bool
}

// tokenTrie finds added tokens in a text. It returns the leftmost match; of several that start
// there, the longest.
type tokenTrie struct {
	starts [256]bool // first bytes of tokens
	nodes  []trieNode
}

type trieNode struct {
	children map[byte]int32
	token    *addedToken // token that ends here; nil: none
}

// add adds a token with a content that no other token has.
func (t *tokenTrie) add(content []byte, token *addedToken) {
	if len(t.nodes) == 0 {
		t.nodes = []trieNode{{}}
	}
	t.starts[content[0]] = true
	node := int32(0)
	for _, b := range content {
		next, found := t.nodes[node].children[b]
		if !found {
			next = int32(len(t.nodes))
			t.nodes = append(t.nodes, trieNode{})
			if t.nodes[node].children == nil {
				t.nodes[node].children = map[byte]int32{}
			}
			t.nodes[node].children[b] = next
		}
		node = next
	}
	t.nodes[node].token = token
}

// find returns the first match from an offset on.
func (t *tokenTrie) find(text []byte, from int) (start, end int, token *addedToken) {
	if len(t.nodes) == 0 {
		return 0, 0, nil
	}
	for start := from; start < len(text); start++ {
		if !t.starts[text[start]] {
			continue
		}
		node := int32(0)
		for at := start; at < len(text); at++ {
			next, found := t.nodes[node].children[text[at]]
			if !found {
				break
			}
			if node = next; t.nodes[node].token != nil {
				end, token = at+1, t.nodes[node].token
			}
		}
		if token != nil {
			return start, end, token
		}
	}
	return 0, 0, nil
}

// prefix returns the length of the longest token at the start of a text, or 0.
func (t *tokenTrie) prefix(text []byte) (length int) {
	if len(t.nodes) == 0 || len(text) == 0 || !t.starts[text[0]] {
		return 0
	}
	node := int32(0)
	for i, b := range text {
		next, found := t.nodes[node].children[b]
		if !found {
			break
		}
		if node = next; t.nodes[node].token != nil {
			length = i + 1
		}
	}
	return length
}

// each calls between for every part of a text outside added tokens, and found for every added
// token, in order.
func (t *tokenTrie) each(text []byte, between func(start, end int) error, found func(*addedToken) error) error {
	last := 0 // start of the current part outside tokens
	for from := 0; ; {
		start, end, token := t.find(text, from)
		if token == nil {
			break
		}
		from = end
		if token.singleWord && (endsWithWord(text[:start]) || startsWithWord(text[end:])) {
			continue
		}
		if token.lstrip {
			start = max(len(bytes.TrimRightFunc(text[:start], unicode.IsSpace)), last)
		}
		if token.rstrip {
			end = len(text) - len(bytes.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if last < start {
			if err := between(last, start); err != nil {
				return err
			}
		}
		if start < end { // otherwise the previous token has stripped the whole part
			if err := found(token); err != nil {
				return err
			}
		}
		last = end
	}
	if last < len(text) {
		return between(last, len(text))
	}
	return nil
}

func endsWithWord(text []byte) bool {
	r, size := utf8.DecodeLastRune(text)
	return size > 0 && isWord(r)
}

func startsWithWord(text []byte) bool {
	r, size := utf8.DecodeRune(text)
	return size > 0 && isWord(r)
}

// Limits of added tokens.
const (
	maxAdded      = 1 << 16
	maxAddedBytes = 4 << 20 // total bytes of all contents
)

// parseAdded parses added_tokens and adds their IDs to the model.
func (t *Tokenizer) parseAdded(o *object) error {
	if _, found := o.get("added_tokens"); !found {
		return nil
	}
	list := o.list("added_tokens")
	if o.err != nil {
		return o.err
	}
	if len(list) > maxAdded {
		return fmt.Errorf("%w: added_tokens has %d entries, the limit is %d", errUnsupported, len(list), maxAdded)
	}
	t.special = map[int32]bool{}
	seen := map[string]bool{}
	total := 0
	for i, raw := range list {
		inner, err := parseObject(fmt.Sprintf("added_tokens[%d]", i), raw)
		if err != nil {
			return err
		}
		token := &addedToken{
			id: int32(inner.count("id", maxID)), content: inner.text("content"),
			singleWord: inner.flag("single_word"), lstrip: inner.flag("lstrip"), rstrip: inner.flag("rstrip"),
			normalized: inner.flag("normalized"), special: inner.flag("special"),
		}
		if err := inner.done(); err != nil {
			return err
		}
		total += len(token.content)
		switch {
		case token.content == "" || len(token.content) > maxTokenBytes:
			inner.fail("%s has %d bytes, want 1 to %d", inner.path("content"), len(token.content), maxTokenBytes)
		case total > maxAddedBytes:
			inner.fail("added_tokens has more than %d bytes", maxAddedBytes)
		case seen[token.content]:
			inner.fail("%s %q occurs twice", inner.path("content"), token.content)
		}
		seen[token.content] = true
		if inner.err != nil {
			return inner.err
		}
		if err := t.add(inner, token); err != nil {
			return err
		}
	}
	return nil
}

// add adds a token. The reference implementation assigns IDs to added tokens itself: a token in the
// model keeps its ID, and other tokens follow the vocabulary. A file with other IDs would have
// different meanings in different readers, so it is refused.
func (t *Tokenizer) add(o *object, token *addedToken) error {
	want, found := t.model.vocab[token.content]
	if !found {
		want = int32(t.model.size) + t.beyond
		t.beyond++
	}
	if token.id != want {
		o.fail("%s of %q is %d, want %d, as programs that number added tokens assign it", o.path("id"), token.content, token.id, want)
		return o.err
	}
	for int(want) >= len(t.model.tokens) {
		t.model.tokens = append(t.model.tokens, "")
	}
	if held := t.model.tokens[want]; held != "" && held != token.content {
		o.fail("%s of %q is %d, but this id belongs to %q in the vocabulary", o.path("id"), token.content, want, held)
		return o.err
	}
	t.model.tokens[want] = token.content
	t.special[want] = t.special[want] || token.special
	t.added = append(t.added, token)
	return nil
}

// addTries fills the tries, and hidden.
func (t *Tokenizer) addTries() error {
	same := map[string]string{} // content of the token by normalized content
	special := map[string]bool{}
	for _, token := range t.added {
		if token.special {
			special[token.content] = true
		}
		if !token.normalized {
			t.raw.add([]byte(token.content), token)
			continue
		}
		content, err := t.normalizers.normalize([]byte(token.content))
		if err != nil {
			return fmt.Errorf("%w: added token %q: %w", errUnsupported, token.content, err)
		}
		if len(content) == 0 {
			return fmt.Errorf("%w: the normalizer removes all characters of the added token %q", errUnsupported, token.content)
		}
		if other, twice := same[string(content)]; twice {
			return fmt.Errorf("%w: the normalizer maps two added tokens to %q: %q and %q; the reference chooses one of them at random", errUnsupported, content, other, token.content)
		}
		same[string(content)] = token.content
		t.normal.add(content, token)
		t.model.tokens[token.id] = string(content) // as the reference implementation decodes it
	}
	t.hidden = map[int32]bool{}
	for _, token := range t.added {
		t.hidden[token.id] = special[t.model.tokens[token.id]]
	}
	return nil
}
