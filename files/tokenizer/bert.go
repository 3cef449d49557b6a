package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// filtered returns a text without the characters for which remove returns true, and with the others
// replaced by change.
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

// lowercase converts every character to lower case, independent of its context.
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

// stripAccents removes combining marks.
type stripAccents struct{}

func (stripAccents) normalize(text []byte) ([]byte, error) {
	return filtered(text, isMark, same), nil
}

// stripNonspacing removes nonspacing marks.
type stripNonspacing struct{}

func (stripNonspacing) normalize(text []byte) ([]byte, error) {
	return filtered(text, isNonspacing, same), nil
}

// cleanText removes invisible characters and converts white space to spaces.
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

// ideographs are the blocks that BERT's tokenizer treats as Chinese.
var ideographs = [][2]rune{
	{0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xf900, 0xfaff}, {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f},
}

// spaceIdeographs adds a space on both sides of every ideograph.
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

// parseBert parses a BertNormalizer into its steps.
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

// nmt removes ASCII control characters and converts white space, and some characters without width,
// to spaces, as SentencePiece's rule of that name does.
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

// byteCharacters converts bytes to the characters of a byte-level vocabulary.
type byteCharacters struct{}

func (byteCharacters) normalize(text []byte) ([]byte, error) {
	out := make([]byte, 0, len(text)+len(text)/4)
	for _, b := range text {
		out = utf8.AppendRune(out, alphabet[b])
	}
	return out, nil
}
