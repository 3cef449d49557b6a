package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// inert contains characters that got decompositions or combining classes after Unicode 9.0. The
// reference implementation has the tables of Unicode 9.0, and treats these as ordinary characters
// that are not reordered or composed.
var inert = [][2]rune{
	{0x7fd, 0x7fd}, {0x898, 0x89f}, {0x8ca, 0x8d3}, {0x9fe, 0x9fe}, {0xc3c, 0xc3c}, {0xd3b, 0xd3c}, {0xeba, 0xeba},
	{0x1715, 0x1715}, {0x1abf, 0x1ace}, {0x1df6, 0x1dfa}, {0x32ff, 0x32ff}, {0xa7f2, 0xa7f4}, {0xa82c, 0xa82c},
	{0xab69, 0xab69}, {0x10781, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27},
	{0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070},
	{0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11935, 0x11935},
	{0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
	{0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97},
	{0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136},
	{0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
}

func isInert(r rune) bool { return within(inert, r) }

// unicodeForm converts text to a normalization form of UAX 15. Package norm quickly detects text
// that is already in the form, and provides the tables. Its own conversion is not used, because it
// breaks up sequences of more than 30 combining marks.
type unicodeForm struct {
	form       norm.Form // detects text in the form
	decomposed norm.Form // decomposes single characters
	compose    bool
}

var unicodeForms = map[string]unicodeForm{
	"NFC":  {norm.NFC, norm.NFD, true},
	"NFD":  {norm.NFD, norm.NFD, false},
	"NFKC": {norm.NFKC, norm.NFKD, true},
	"NFKD": {norm.NFKD, norm.NFKD, false},
}

// maxSegment is the number of characters after which a segment ends at the next possible position.
const maxSegment = 256

type classedRune struct {
	r   rune
	ccc uint8 // canonical combining class

	// change is 0 if the character replaces one in the text, 1 if it is inserted, and -n if it
	// replaces one and n more.
	change int
}

func (f unicodeForm) normalize(text []byte) ([]byte, error) {
	from := f.form.QuickSpan(text)
	if from == len(text) {
		return text, nil
	}
	// Go back to a character that is neither reordered nor composes with the previous ones.
	for from > 0 {
		_, size := utf8.DecodeLastRune(text[:from])
		from -= size
		if text[from] < utf8.RuneSelf {
			break
		}
	}
	out := append(make([]byte, 0, len(text)+len(text)/8), text[:from]...)
	var segment []classedRune
	for from < len(text) {
		if c := text[from]; c < utf8.RuneSelf && (from+1 == len(text) || text[from+1] < utf8.RuneSelf) {
			out = f.flush(out, segment)
			segment = segment[:0]
			out = append(out, c)
			from++
			continue
		}
		r, size := utf8.DecodeRune(text[from:])
		if len(segment) >= maxSegment && (isInert(r) || norm.NFKC.Properties(text[from:from+size]).BoundaryBefore()) {
			out = f.flush(out, segment)
			segment = segment[:0]
		}
		segment = f.decompose(segment, text[from:from+size], r)
		from += size
	}
	return f.flush(out, segment), nil
}

// decompose appends the decomposition of a character, in canonical order.
func (f unicodeForm) decompose(segment []classedRune, raw []byte, r rune) []classedRune {
	if isInert(r) {
		return append(segment, classedRune{r: r})
	}
	decomposition := f.decomposed.Properties(raw).Decomposition()
	if decomposition == nil {
		if hangul := r - 0xac00; hangul >= 0 && hangul < 11172 {
			segment = append(segment, classedRune{r: 0x1100 + hangul/588}, classedRune{r: 0x1161 + hangul%588/28, change: 1})
			if tail := hangul % 28; tail > 0 {
				segment = append(segment, classedRune{r: 0x11a7 + tail, change: 1})
			}
			return segment
		}
		decomposition = raw
	}
	for change := 0; len(decomposition) > 0; change = 1 {
		d, size := utf8.DecodeRune(decomposition)
		segment = append(segment, classedRune{d, f.decomposed.Properties(decomposition).CCC(), change})
		decomposition = decomposition[size:]
	}
	return segment
}

// flush appends a segment, ordered and composed by the form.
func (f unicodeForm) flush(out []byte, segment []classedRune) []byte {
	for _, c := range f.order(segment) {
		out = utf8.AppendRune(out, c.r)
	}
	return out
}

// order orders and composes a segment, in place.
func (f unicodeForm) order(segment []classedRune) []classedRune {
	for i := 0; i < len(segment); {
		if segment[i].ccc == 0 {
			i++
			continue
		}
		start := i
		for i < len(segment) && segment[i].ccc != 0 {
			i++
		}
		slices.SortStableFunc(segment[start:i], func(a, b classedRune) int { return int(a.ccc) - int(b.ccc) })
	}
	if f.compose {
		segment = composeSegment(segment)
	}
	return segment
}

// composeSegment replaces pairs by their composed characters, in place.
func composeSegment(segment []classedRune) []classedRune {
	starter, kept := -1, 0
	last := uint8(0) // class of the previous character that was kept after the starter
	for _, c := range segment {
		if starter >= 0 && (kept == starter+1 || last != 0 && last < c.ccc) {
			if composed, ok := composePair(segment[starter].r, c.r); ok {
				segment[starter].r = composed
				segment[starter].change += c.change - 1
				continue
			}
		}
		if c.ccc == 0 {
			starter = kept
		}
		last = c.ccc
		segment[kept] = c
		kept++
	}
	return segment[:kept]
}

// composePair returns the composition of two characters.
func composePair(a, b rune) (rune, bool) {
	if b < 0x300 || isInert(a) || isInert(b) {
		return 0, false
	}
	var buffer [2 * utf8.UTFMax]byte
	second := utf8.AppendRune(buffer[:0], b)
	if norm.NFC.Properties(second).BoundaryBefore() {
		return 0, false
	}
	pair := utf8.AppendRune(utf8.AppendRune(buffer[:0], a), b)
	composed := norm.NFC.Bytes(pair)
	r, size := utf8.DecodeRune(composed)
	return r, size == len(composed) && r != a
}
