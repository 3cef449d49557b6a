package tokenizer

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// piece is a part of a text, and whether it is where the text begins.
type piece struct {
	text  []byte
	first bool
}

// stage is a step of pre-tokenization. It gives the non-empty pieces that it makes of
// one to the stage after, in order.
type stage interface {
	split(e *encoder, at int, p piece) error
}

// behaviour says what becomes of matches.
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
	invert bool // what is between matches counts as matches
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

// each calls yield with every match and every part between two.
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

// merge joins spans. The first of several matches in a row joins what is before it or,
// backwards, what is after.
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
	to := len(spans) // out is spans[to:]
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

// prefixStage puts a blank before text that does not begin with one.
type prefixStage struct{}

func (prefixStage) split(e *encoder, at int, p piece) error {
	if p.text[0] != ' ' {
		p.text = append(append(make([]byte, 0, len(p.text)+1), ' '), p.text...)
	}
	return e.next(at+1, p)
}

// alphabetStage writes bytes as the characters of a byte-level vocabulary.
type alphabetStage struct{}

func (alphabetStage) split(e *encoder, at int, p piece) error {
	text := make([]byte, 0, len(p.text)+len(p.text)/4)
	for _, b := range p.text {
		text = utf8.AppendRune(text, alphabet[b])
	}
	p.text = text
	return e.next(at+1, p)
}

// metaspaceStage writes blanks as another character, with one more before the text, and
// splits before each.
type metaspaceStage struct {
	mark   string
	scheme string // "always", "first" or "never"
	pieces bool   // whether to split
}

func (s *metaspaceStage) split(e *encoder, at int, p piece) error {
	text := bytes.ReplaceAll(p.text, []byte(" "), []byte(s.mark))
	if !bytes.HasPrefix(text, []byte(s.mark)) && (s.scheme == "always" || s.scheme == "first" && p.first) {
		text = append([]byte(s.mark), text...)
	}
	p.text = text
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

// digits finds numeric characters.
type digits struct{}

func (digits) each(text []byte, yield func(start, end int) error) error {
	table := classes()
	for at := 0; at < len(text); {
		c, size := table.at(text, at)
		if c&numeric != 0 {
			if err := yield(at, at+size); err != nil {
				return err
			}
		}
		at += size
	}
	return nil
}

// whiteSpace finds white space.
type whiteSpace struct{}

func (whiteSpace) each(text []byte, yield func(start, end int) error) error {
	table := classes()
	for at := 0; at < len(text); {
		c, size := table.at(text, at)
		if c&space != 0 {
			if err := yield(at, at+size); err != nil {
				return err
			}
		}
		at += size
	}
	return nil
}

// punctuationMarks finds characters of punctuation, and ASCII's symbols.
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

// words finds runs of characters of words.
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

// preTokenizer is what parsePreTokenizer reads.
type preTokenizer struct {
	stages    []stage
	byteLevel bool // the last stage is ByteLevel: words are bytes
	first     bool // a stage looks at where the text begins
	later     bool // and another one comes before it
}

// parsePreTokenizer reads pre_tokenizer.
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

func (all *preTokenizer) add(kind string, o *object) error {
	switch kind {
	case "ByteLevel":
		if o.flag("add_prefix_space") {
			all.stages = append(all.stages, prefixStage{})
		}
		if o.flag("use_regex", true) {
			all.stages = append(all.stages, &splitStage{find: scanners[gpt2Pattern], mode: isolated})
		}
		o.flag("trim_offsets", true) // changes no ids
		all.byteLevel = true
	case "Split":
		mode := o.behaviour("behavior")
		invert := o.flag("invert")
		find, err := parsePattern(o, "pattern")
		if err != nil {
			return err
		}
		all.stages = append(all.stages, &splitStage{find, mode, invert})
	case "Digits":
		mode := contiguous
		if o.flag("individual_digits") {
			mode = isolated
		}
		all.stages = append(all.stages, &splitStage{find: digits{}, mode: mode})
	case "Punctuation":
		all.stages = append(all.stages, &splitStage{find: punctuationMarks{}, mode: o.behaviour("behavior")})
	case "Whitespace":
		all.stages = append(all.stages, &splitStage{find: words{}, mode: isolated}, &splitStage{find: whiteSpace{}, mode: removed})
	case "WhitespaceSplit":
		all.stages = append(all.stages, &splitStage{find: whiteSpace{}, mode: removed})
	case "BertPreTokenizer":
		all.stages = append(all.stages, &splitStage{find: whiteSpace{}, mode: removed}, &splitStage{find: punctuationMarks{}, mode: isolated})
	case "Metaspace":
		mark, scheme, pieces := o.metaspace()
		all.later = all.later || scheme == "first" && len(all.stages) > 0
		all.stages = append(all.stages, &metaspaceStage{string(mark), scheme, pieces})
		all.first = all.first || scheme == "first"
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
		o.fail("%s is %q, which is not known here", o.path(key), mode)
	}
	return mode
}

// metaspace reads the settings of a Metaspace pre-tokenizer or decoder, also in the form
// that older files have.
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
			o.fail("%s is %q, not what replacement is", o.path("str_rep"), text)
		}
	}
	return mark, scheme, o.flag("split", true)
}

// check refuses what depends on more than the reader follows.
func (all *preTokenizer) check(n normalizers) error {
	if all.first && !n.keepsStart() {
		return fmt.Errorf("%w: pre_tokenizer has prepend_scheme \"first\" after a normalizer that drops text", ErrUnsupported)
	}
	// To the reference all that a normalizer makes of the first character is where the text begins.
	if all.later && len(n) > 0 {
		return fmt.Errorf("%w: pre_tokenizer splits text that was normalized before it comes to prepend_scheme \"first\"", ErrUnsupported)
	}
	return nil
}
