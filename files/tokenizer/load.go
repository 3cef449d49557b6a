package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/strictjson"
)

// errUnsupported means that a tokenizer.json or a tokenizer.model requires a feature that this
// package does not support, so that its IDs would differ.
var errUnsupported = errors.New("the tokenizer is not supported")

// Limits of a tokenizer.json.
const (
	maxFileSize   = 64 << 20 // bytes
	maxVocab      = 2 << 20  // tokens
	maxID         = 4 << 20
	maxMerges     = 4 << 20
	maxTokenBytes = 4096
)

// Load reads a tokenizer.json. If the name contains .model, as in tokenizer.model.v3, it reads a
// tokenizer.model.
func Load(path string) (*Tokenizer, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	parse := Parse
	if name := filepath.Base(path); strings.Contains(name, ".model") && filepath.Ext(name) != ".json" {
		parse = ParseSentencePiece
	}
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	return t, nil
}

// Parse parses the text of a tokenizer.json, which it keeps. For a feature that it cannot implement
// exactly it returns errUnsupported with the path of the feature.
func Parse(text []byte) (*Tokenizer, error) {
	if len(text) > maxFileSize {
		return nil, fmt.Errorf("the file exceeds %d bytes", maxFileSize)
	}
	if err := filestart.Check(text); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsupported, err)
	}
	if err := strictjson.CheckEscapes(text); err != nil {
		return nil, fmt.Errorf("the file: %w", err)
	}
	root, err := parseObject("", text)
	if err != nil {
		return nil, err
	}
	root.want("version", `"1.0"`)
	for _, key := range []string{"truncation", "padding"} {
		root.want(key, "null")
	}
	t := &Tokenizer{file: text}
	for _, part := range []func(*object) error{t.parseModel, t.parseAdded, t.parseParts} {
		if err := part(root); err != nil {
			return nil, err
		}
	}
	if err := root.done(); err != nil {
		return nil, err
	}
	return t, t.prepare()
}

// parseParts parses everything except the model.
func (t *Tokenizer) parseParts(root *object) (err error) {
	if raw, found := root.get("normalizer"); found {
		if t.normalizers, err = parseNormalizers(raw); err != nil {
			return err
		}
	}
	if raw, found := root.get("pre_tokenizer"); found {
		if t.pre, err = parsePreTokenizer(raw); err != nil {
			return err
		}
	}
	if raw, found := root.get("post_processor"); found {
		if err = t.parseTemplate(raw); err != nil {
			return err
		}
	}
	if raw, found := root.get("decoder"); found {
		if t.decoders, err = parseDecoders(raw); err != nil {
			return err
		}
	}
	return nil
}

// prepare creates the tables for encoding and decoding.
func (t *Tokenizer) prepare() error {
	if t.pre.byteLevel && !t.model.useBytes() {
		t.pre.stages = append(t.pre.stages, alphabetStage{})
		t.pre.byteLevel = false
	}
	if !t.pre.byteLevel {
		t.model.useCharacters()
	}
	if err := t.addTries(); err != nil {
		return err
	}
	if len(t.decoders) == 1 && t.decoders[0] == (byteLevelDecoder{last: true}) {
		t.texts = make([][]byte, len(t.model.tokens))
		for id, token := range t.model.tokens {
			raw, ok := alphabetBytes(nil, token)
			if !ok {
				raw = []byte(token)
			}
			t.texts[id] = raw
		}
	}
	t.atEnd = decidesAtEnd(t.decoders)
	t.bytewise = t.pre.byteLevel && len(t.pre.stages) == 0 && len(t.normalizers) == 0 && len(t.added) == 0 &&
		t.model.merges.slots == nil && !t.model.ignoreMerges
	return nil
}

// parseModel parses model.
func (t *Tokenizer) parseModel(root *object) error {
	o := root.object("model")
	if root.err != nil {
		return root.err
	}
	switch string(o.fields["type"]) {
	case `"Unigram"`:
		return t.parseUnigram(o)
	case `"WordPiece"`:
		return t.parseWordPiece(o)
	}
	o.want("type", `"BPE"`, `"Unigram"`, `"WordPiece"`)
	o.want("dropout", "null", "0", "0.0")
	for _, key := range []string{"continuing_subword_prefix", "end_of_word_suffix"} {
		o.want(key, "null", `""`)
	}
	m := &bpe{
		unknown:      -1,
		fuseUnknown:  o.flag("fuse_unk", false),
		ignoreMerges: o.flag("ignore_merges", false),
	}
	fallback := o.flag("byte_fallback", false)
	unknown := ""
	if _, found := o.get("unk_token"); found {
		unknown = o.text("unk_token")
	}
	vocab, _ := o.need("vocab")
	merges, _ := o.need("merges")
	if err := o.done(); err != nil {
		return err
	}
	if err := m.parseVocab(o.path("vocab"), vocab); err != nil {
		return err
	}
	if err := m.parseMerges(o.path("merges"), merges); err != nil {
		return err
	}
	if unknown != "" {
		id, found := m.vocab[unknown]
		if !found {
			return fmt.Errorf("%w: %s is %q, which is not in the vocabulary", errUnsupported, o.path("unk_token"), unknown)
		}
		m.unknown = id
	}
	if fallback {
		m.useFallback()
	}
	t.model = m
	return nil
}

// useFallback finds the tokens of bytes.
func (m *bpe) useFallback() {
	m.fallback = new([256]int32)
	for b := range m.fallback {
		m.fallback[b] = -1
		if id, found := m.vocab[fmt.Sprintf("<0x%02X>", b)]; found {
			m.fallback[b] = id
		}
	}
}

// parseVocab parses tokens and their IDs.
func (m *bpe) parseVocab(path string, raw []byte) error {
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return fmt.Errorf("%w: %s is not a JSON object", errUnsupported, path)
	}
	m.vocab = map[string]int32{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("%s is not valid JSON: %w", path, err)
		}
		token, _ := key.(string)
		var id int64
		if err := decoder.Decode(&id); err != nil {
			return fmt.Errorf("%w: %s: the id of %.80q is not a whole number", errUnsupported, path, token)
		}
		_, twice := m.vocab[token]
		switch {
		case twice:
			return fmt.Errorf("%w: %s has %.80q twice", errUnsupported, path, token)
		case id < 0 || id >= maxID:
			return fmt.Errorf("%w: %s: the id of %.80q is %d, want 0 to %d", errUnsupported, path, token, id, maxID-1)
		case token == "" || len(token) > maxTokenBytes:
			return fmt.Errorf("%w: %s has a token of %d bytes, want 1 to %d", errUnsupported, path, len(token), maxTokenBytes)
		case len(m.vocab) == maxVocab:
			return fmt.Errorf("%w: %s has more than %d tokens", errUnsupported, path, maxVocab)
		}
		m.vocab[token] = int32(id)
		for int(id) >= len(m.tokens) {
			m.tokens = append(m.tokens, make([]string, int(id)-len(m.tokens)+1)...)
		}
		if other := m.tokens[id]; other != "" {
			return fmt.Errorf("%w: %s: %.80q and %.80q have the same id %d", errUnsupported, path, other, token, id)
		}
		m.tokens[id] = token
	}
	m.size = len(m.vocab)
	return nil
}

// parseMerges parses pairs, which are strings with a space in between or, in newer files, arrays of
// two strings.
func (m *bpe) parseMerges(path string, raw []byte) error {
	var pairs [][]string
	if err := json.Unmarshal(raw, &pairs); err != nil {
		var lines []string
		if json.Unmarshal(raw, &lines) != nil {
			return fmt.Errorf("%w: %s is neither an array of strings nor of pairs of strings", errUnsupported, path)
		}
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#version") })
		pairs = make([][]string, len(lines))
		for i, line := range lines {
			pairs[i] = strings.Split(line, " ")
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	if len(pairs) > maxMerges {
		return fmt.Errorf("%w: %s has %d pairs, the limit is %d", errUnsupported, path, len(pairs), maxMerges)
	}
	m.merges = newPairTable(len(pairs), new(maphash.Hash).Sum64())
	m.products = make([]int32, len(pairs))
	for rank, pair := range pairs {
		if len(pair) != 2 || pair[0] == "" || pair[1] == "" {
			return fmt.Errorf("%w: %s[%d] is %.80q, want two tokens", errUnsupported, path, rank, pair)
		}
		var ids [3]int32
		for i, token := range []string{pair[0], pair[1], pair[0] + pair[1]} {
			id, found := m.vocab[token]
			if !found {
				return fmt.Errorf("%w: %s[%d] contains %.80q, which is not in the vocabulary", errUnsupported, path, rank, token)
			}
			ids[i] = id
		}
		m.merges.set(ids[0], ids[1], int32(rank), ids[2])
		m.products[rank] = ids[2]
	}
	return nil
}
