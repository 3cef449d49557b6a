package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// filtered returns a text without the characters that remove wants gone, and with those that
// change gives in the place of the others.
func filtered(text []byte, remove func(rune) bool, change func(rune) rune) []byte {
	out := make([]byte, 0, len(text))
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		at += size
		if !remove(r) {
			out = utf8.AppendRune(out, change(r))
		}
	}
	return out
}

func same(r rune) rune { return r }

// lowercase writes every character as its small letter, whatever is around it.
type lowercase struct{}

func (lowercase) normalize(text []byte) ([]byte, error) {
	out := make([]byte, 0, len(text))
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		at += size
		out = utf8.AppendRune(out, toLower(r))
		if r == '\u0130' {
			out = utf8.AppendRune(out, '\u0307')
		}
	}
	return out, nil
}

// stripAccents removes marks that are characters of their own.
type stripAccents struct{}

func (stripAccents) normalize(text []byte) ([]byte, error) {
	return filtered(text, isMark, same), nil
}

// stripNonspacing removes nonspacing marks.
type stripNonspacing struct{}

func (stripNonspacing) normalize(text []byte) ([]byte, error) {
	return filtered(text, isNonspacing, same), nil
}

// cleanText removes what is not to be seen and writes white space as blanks.
type cleanText struct{}

func (cleanText) normalize(text []byte) ([]byte, error) {
	remove := func(r rune) bool {
		return r == utf8.RuneError || isControl(r) && r != '\t' && r != '\n' && r != '\r'
	}
	return filtered(text, remove, func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}), nil
}

// ideographs are the blocks that BERT's tokenizer takes for Chinese.
var ideographs = [][2]rune{
	{0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xf900, 0xfaff}, {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f},
}

// spaceIdeographs puts a blank on either side of every ideograph.
type spaceIdeographs struct{}

func (spaceIdeographs) normalize(text []byte) ([]byte, error) {
	out := make([]byte, 0, len(text)+len(text)/8)
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r >= ideographs[0][0] && within(ideographs, r) {
			out = append(append(append(out, ' '), text[at:at+size]...), ' ')
		} else {
			out = append(out, text[at:at+size]...)
		}
		at += size
	}
	return out, nil
}

// parseBert reads a BertNormalizer as the steps that it takes.
func parseBert(o *object) (all normalizers) {
	clean, spaced, lower := o.flag("clean_text"), o.flag("handle_chinese_chars"), o.flag("lowercase")
	if clean {
		all = append(all, cleanText{})
	}
	if spaced {
		all = append(all, spaceIdeographs{})
	}
	if o.flag("strip_accents", lower) {
		all = append(all, unicodeForms["NFD"], stripNonspacing{})
	}
	if lower {
		all = append(all, lowercase{})
	}
	return all
}

// nmt removes control characters of ASCII and writes white space as blanks, as SentencePiece's rule of that name
// has it, and with it some characters that have no width.
type nmt struct{}

func (nmt) normalize(text []byte) ([]byte, error) {
	remove := func(r rune) bool {
		return r >= 1 && r <= 8 || r == 0xb || r >= 0xe && r <= 0x1f || r == 0x7f || r == 0x8f || r == 0x9f
	}
	return filtered(text, remove, func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, r >= 0x200b && r <= 0x200f,
			r == 0x2028, r == 0x2029, r == 0x2581, r == 0xfeff, r == utf8.RuneError:
			return ' '
		}
		return r
	}), nil
}

// byteCharacters writes bytes as the characters of a byte-level vocabulary.
type byteCharacters struct{}

func (byteCharacters) normalize(text []byte) ([]byte, error) {
	out := make([]byte, 0, len(text)+len(text)/4)
	for _, b := range text {
		out = utf8.AppendRune(out, alphabet[b])
	}
	return out, nil
}
