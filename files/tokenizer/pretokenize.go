package tokenizer

import (
	"bytes"
	"unicode/utf8"
)

// piece is a part of a normalized text.
type piece struct {
	text   []byte
	origin int // bytes at its start that come from the first character of the text before normalization
}

// part returns the part of a piece between two offsets.
func (p piece) part(start, end int) piece {
	return piece{p.text[start:end], min(max(p.origin-start, 0), end-start)}
}

// stage is a step of pre-tokenization. It splits a piece into nonempty pieces and passes these to
// the next stage, in order.
type stage interface {
	split(e *encoder, at int, p piece) error
}

// behaviour selects how matches are handled.
type behaviour string

const (
	removed            behaviour = "Removed"
	isolated           behaviour = "Isolated"
	mergedWithPrevious behaviour = "MergedWithPrevious"
	mergedWithNext     behaviour = "MergedWithNext"
	contiguous         behaviour = "Contiguous"
)

// splitStage splits at matches.
type splitStage struct {
	find   finder
	mode   behaviour
	invert bool // the parts between matches count as matches
}

type span struct {
	start, end int
	match      bool
}

func (s *splitStage) split(e *encoder, at int, p piece) error {
	switch s.mode {
	case removed, isolated:
		return s.each(p.text, func(x span) error {
			if x.match && s.mode == removed {
				return nil
			}
			return e.pass(at, p, x.start, x.end)
		})
	}
	var spans []span
	err := s.each(p.text, func(x span) error {
		spans = append(spans, x)
		return nil
	})
	if err != nil {
		return err
	}
	for _, x := range merge(spans, s.mode) {
		if err := e.pass(at, p, x.start, x.end); err != nil {
			return err
		}
	}
	return nil
}

// each calls yield for every match and every part in between.
func (s *splitStage) each(text []byte, yield func(span) error) error {
	last := 0
	err := s.find.each(text, func(start, end int) error {
		if start > last {
			if err := yield(span{last, start, s.invert}); err != nil {
				return err
			}
		}
		last = end
		return yield(span{start, end, !s.invert})
	})
	if err == nil && last < len(text) {
		err = yield(span{last, len(text), s.invert})
	}
	return err
}

// merge joins spans. The first of several consecutive matches joins the previous span or,
// backwards, the next one.
func merge(spans []span, mode behaviour) []span {
	if mode == mergedWithNext {
		return mergeNext(spans)
	}
	var out []span
	previous := false
	for _, x := range spans {
		join := x.match == previous
		if mode == mergedWithPrevious {
			join = x.match && !previous
		}
		if join && len(out) > 0 {
			out[len(out)-1].end = x.end
		} else {
			out = append(out, x)
		}
		previous = x.match
	}
	return out
}

func mergeNext(spans []span) []span {
	to := len(spans) // the result is spans[to:]
	previous := false
	for i := len(spans) - 1; i >= 0; i-- {
		x := spans[i]
		if x.match && !previous && to < len(spans) {
			spans[to].start = x.start
		} else {
			to--
			spans[to] = x
		}
		previous = x.match
	}
	return spans[to:]
}

// prefixStage adds a space before text that does not start with one.
type prefixStage struct{}

func (prefixStage) split(e *encoder, at int, p piece) error {
	if p.text[0] != ' ' {
		p.text = append(append(make([]byte, 0, len(p.text)+1), ' '), p.text...)
		if p.origin > 0 {
			p.origin++
		}
	}
	return e.next(at+1, p)
}

// alphabetStage converts bytes to the characters of a byte-level vocabulary.
type alphabetStage struct{}

func (alphabetStage) split(e *encoder, at int, p piece) error {
	text := make([]byte, 0, len(p.text)+len(p.text)/4)
	origin := 0
	for i, b := range p.text {
		text = utf8.AppendRune(text, alphabet[b])
		if i+1 == p.origin {
			origin = len(text)
		}
	}
	return e.next(at+1, piece{text, origin})
}

// metaspaceStage replaces spaces by another character, with one more before the text, and splits
// before each.
type metaspaceStage struct {
	mark   string
	scheme string // "always", "first" or "never"
	pieces bool   // whether to split
}

func (s *metaspaceStage) split(e *encoder, at int, p piece) error {
	text := bytes.ReplaceAll(p.text, []byte(" "), []byte(s.mark))
	origin := p.origin + (len(s.mark)-1)*bytes.Count(p.text[:p.origin], []byte(" "))
	if !bytes.HasPrefix(text, []byte(s.mark)) && (s.scheme == "always" || s.scheme == "first" && origin > 0) {
		text = append([]byte(s.mark), text...)
		if origin > 0 {
			origin += len(s.mark)
		}
	}
	p = piece{text, origin}
	if !s.pieces {
		return e.next(at+1, p)
	}
	for start := 0; start < len(text); {
		_, size := utf8.DecodeRune(text[start:])
		end := bytes.Index(text[start+size:], []byte(s.mark))
		if end < 0 {
			end = len(text)
		} else {
			end += start + size
		}
		if err := e.pass(at, p, start, end); err != nil {
			return err
		}
		start = end
	}
	return nil
}

// charactersOf finds characters of a class.
type charactersOf class

func (wanted charactersOf) each(text []byte, yield func(start, end int) error) error {
	table := classes()
	for at := 0; at < len(text); {
		c, size := table.at(text, at)
		if c&class(wanted) != 0 {
			if err := yield(at, at+size); err != nil {
				return err
			}
		}
		at += size
	}
	return nil
}

// punctuationMarks finds punctuation characters, and ASCII symbols.
type punctuationMarks struct{}

func (punctuationMarks) each(text []byte, yield func(start, end int) error) error {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if isPunctuation(r) {
			if err := yield(at, at+size); err != nil {
				return err
			}
		}
		at += size
	}
	return nil
}

// words finds runs of word characters.
type words struct{}

func (words) each(text []byte, yield func(start, end int) error) error {
	start := 0 // of the run
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if !isWord(r) {
			if at > start {
				if err := yield(start, at); err != nil {
					return err
				}
			}
			start = at + size
		}
		at += size
	}
	if start < len(text) {
		return yield(start, len(text))
	}
	return nil
}

// preTokenizer is the result of parsePreTokenizer.
type preTokenizer struct {
	stages    []stage
	byteLevel bool // the last stage is ByteLevel: words are bytes
	first     bool // a stage depends on the origin of pieces
}

// parsePreTokenizer parses pre_tokenizer.
func parsePreTokenizer(raw []byte) (all preTokenizer, err error) {
	walk := components{list: "pretokenizers", add: func(kind string, o *object) error {
		if all.byteLevel {
			all.stages = append(all.stages, alphabetStage{})
			all.byteLevel = false
		}
		return all.add(kind, o)
	}}
	return all, walk.walk("pre_tokenizer", raw, 0)
}

func (p *preTokenizer) add(kind string, o *object) error {
	switch kind {
	case "ByteLevel":
		if o.flag("add_prefix_space") {
			p.stages = append(p.stages, prefixStage{})
		}
		if o.flag("use_regex", true) {
			p.stages = append(p.stages, &splitStage{find: scanners[gpt2Pattern], mode: isolated})
		}
		o.flag("trim_offsets", true) // does not change IDs
		p.byteLevel = true
	case "Split":
		mode := o.behaviour("behavior")
		invert := o.flag("invert")
		find, err := parsePattern(o, "pattern")
		if err != nil {
			return err
		}
		p.stages = append(p.stages, &splitStage{find, mode, invert})
	case "Digits":
		mode := contiguous
		if o.flag("individual_digits") {
			mode = isolated
		}
		p.stages = append(p.stages, &splitStage{find: charactersOf(numeric), mode: mode})
	case "Punctuation":
		p.stages = append(p.stages, &splitStage{find: punctuationMarks{}, mode: o.behaviour("behavior")})
	case "Whitespace":
		p.stages = append(p.stages, &splitStage{find: words{}, mode: isolated}, &splitStage{find: charactersOf(space), mode: removed})
	case "WhitespaceSplit":
		p.stages = append(p.stages, &splitStage{find: charactersOf(space), mode: removed})
	case "BertPreTokenizer":
		p.stages = append(p.stages, &splitStage{find: charactersOf(space), mode: removed}, &splitStage{find: punctuationMarks{}, mode: isolated})
	case "Metaspace":
		mark, scheme, pieces := o.metaspace()
		p.stages = append(p.stages, &metaspaceStage{string(mark), scheme, pieces})
		p.first = p.first || scheme == "first"
	default:
		return unknownKind(o, kind)
	}
	return o.err
}

func (o *object) behaviour(key string) behaviour {
	mode := behaviour(o.text(key))
	switch mode {
	case removed, isolated, mergedWithPrevious, mergedWithNext, contiguous:
	default:
		o.fail("%s is %q, which is not supported", o.path(key), mode)
	}
	return mode
}

// metaspace parses the settings of a Metaspace pre-tokenizer or decoder, also in the form of older
// files.
func (o *object) metaspace() (mark rune, scheme string, pieces bool) {
	mark = o.character("replacement")
	scheme = "always"
	_, hasScheme := o.get("prepend_scheme")
	if hasScheme {
		scheme = o.text("prepend_scheme")
	}
	if scheme != "always" && scheme != "first" && scheme != "never" {
		o.fail("%s is %q, want always, first or never", o.path("prepend_scheme"), scheme)
	}
	if _, found := o.get("add_prefix_space"); found {
		switch add := o.flag("add_prefix_space"); {
		case add && scheme == "never", !add && hasScheme && scheme != "never":
			o.fail("%s contradicts prepend_scheme %q", o.path("add_prefix_space"), scheme)
		case !add:
			scheme = "never"
		}
	}
	if _, found := o.get("str_rep"); found {
		if text := o.text("str_rep"); text != string(mark) {
			o.fail("%s is %q, want the same as replacement", o.path("str_rep"), text)
		}
	}
	return mark, scheme, o.flag("split", true)
}
