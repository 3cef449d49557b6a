package tokenizer

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
)

// precompiled normalizes by a charsmap as the reference implementation does, which differs from
// SentencePiece. If a grapheme of fewer than 6 bytes starts with a replaced text, the replacement
// replaces the whole grapheme. Otherwise each of its characters is looked up.
type precompiled struct{ *charsmap }

// shortGrapheme is the minimum length in bytes of graphemes that are not looked up as a whole.
const shortGrapheme = 6

func (p precompiled) normalize(text []byte) ([]byte, error) {
	limit := growthLimit(text)
	out := make([]byte, 0, len(text)+len(text)/8)
	p.each(text, func(_, with []byte, _ bool) bool {
		out = append(out, with...)
		return len(out) <= limit
	})
	if len(out) > limit {
		return nil, fmt.Errorf("the normalizer makes the text more than %d times as long", maxGrowth)
	}
	return out, nil
}

// each calls yield for each part of a text and its replacement, until yield returns false. If no
// rule applies, with is the part itself and replaced is false.
func (p precompiled) each(text []byte, yield func(old, with []byte, replaced bool) bool) {
	for all := graphemes.FromBytes(text); all.Next(); {
		grapheme := all.Value()
		if len(grapheme) < shortGrapheme {
			if with, found := p.first(grapheme); found {
				if !yield(grapheme, with, true) {
					return
				}
				continue
			}
		}
		for len(grapheme) > 0 {
			_, size := utf8.DecodeRune(grapheme)
			with, found := p.first(grapheme[:size])
			if !found {
				with = grapheme[:size]
			}
			if !yield(grapheme[:size], with, found) {
				return
			}
			grapheme = grapheme[size:]
		}
	}
}

// parsePrecompiled parses a Precompiled normalizer.
func parsePrecompiled(o *object) (precompiled, error) {
	const key = "precompiled_charsmap"
	text := o.text(key)
	if o.err != nil {
		return precompiled{}, o.err
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return precompiled{}, fmt.Errorf("%w: %s is not base64", errUnsupported, o.path(key))
	}
	found, err := parseCharsmap(raw)
	if err != nil {
		return precompiled{}, fmt.Errorf("%w: %s: %w", errUnsupported, o.path(key), err)
	}
	return precompiled{found}, nil
}
