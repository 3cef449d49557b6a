package chat

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// digitRunes are the characters that str.isdigit accepts but str.isdecimal does not.
var digitRunes = runeRanges("\u00b2\u00b3 \u00b9\u00b9 \u1369\u1371 \u19da\u19da \u2070\u2070 \u2074\u2079 \u2080\u2089 \u2460\u2468 " +
	"\u2474\u247c \u2488\u2490 \u24ea\u24ea \u24f5\u24fd \u24ff\u24ff \u2776\u277e \u2780\u2788 \u278a\u2792 " +
	"\U00010a40\U00010a43 \U00010e60\U00010e68 \U00011052\U0001105a \U0001f100\U0001f10a")

// numericLetters are the letters that str.isnumeric accepts.
var numericLetters = runeSet("\u3405\u3483\u382a\u3b4d\u4e00\u4e03\u4e07\u4e09\u4e5d\u4e8c\u4e94\u4e96\u4ebf\u4ec0\u4edf\u4ee8\u4f0d\u4f70" +
	"\u5104\u5146\u5169\u516b\u516d\u5341\u5343\u5344\u5345\u534c\u53c1\u53c2\u53c3\u53c4\u56db\u58f1\u58f9\u5e7a\u5efe\u5eff\u5f0c\u5f0d\u5f0e\u5f10" +
	"\u62fe\u634c\u67d2\u6f06\u7396\u767e\u8086\u842c\u8cae\u8cb3\u8d30\u9621\u9646\u964c\u9678\u96f6\uf96b\uf973\uf978\uf9b2\uf9d1\uf9d3\uf9fd" +
	"\U00020001\U00020064\U000200e2\U00020121\U0002092a\U00020983\U0002098c\U0002099c\U00020aea\U00020afd\U00020b19\U00022390\U00022998\U00023b1b\U0002626d\U0002f890")

// The exceptions of str.isidentifier from the categories of characters: for the first character,
// and for later characters.
var (
	notFirst = runeRanges("\u037a\u037a \u0e33\u0e33 \u0eb3\u0eb3 \u2e2f\u2e2f \ufc5e\ufc63 \ufdfa\ufdfb \ufe70\ufe70 \ufe72\ufe72 \ufe74\ufe74 " +
		"\ufe76\ufe76 \ufe78\ufe78 \ufe7a\ufe7a \ufe7c\ufe7c \ufe7e\ufe7e \uff9e\uff9f")
	notBehind = runeRanges("\u037a\u037a \u2e2f\u2e2f \ufc5e\ufc63 \ufdfa\ufdfb \ufe70\ufe70 \ufe72\ufe72 \ufe74\ufe74 \ufe76\ufe76 \ufe78\ufe78 " +
		"\ufe7a\ufe7a \ufe7c\ufe7c \ufe7e\ufe7e")
)

// runeRanges parses pairs of characters, the first and the last of each range, with spaces between
// the pairs.
func runeRanges(table string) (all [][2]rune) {
	for pair := range strings.FieldsSeq(table) {
		first, n := utf8.DecodeRuneInString(pair)
		last, _ := utf8.DecodeRuneInString(pair[n:])
		all = append(all, [2]rune{first, last})
	}
	return all
}

func runeSet(text string) map[rune]bool {
	all := map[rune]bool{}
	for _, c := range text {
		all[c] = true
	}
	return all
}

func within(c rune, ranges [][2]rune) bool {
	return slices.ContainsFunc(ranges, func(one [2]rune) bool { return c >= one[0] && c <= one[1] })
}

// isDigitRune implements str.isdigit for a character.
func isDigitRune(c rune) bool { return unicode.IsDigit(c) || c > '~' && within(c, digitRunes) }

// isNumericRune implements str.isnumeric for a character.
func isNumericRune(c rune) bool { return unicode.IsNumber(c) || numericLetters[c] }

// decimalValue returns the value of a decimal digit of any script.
func decimalValue(c rune) (value int, isDecimal bool) {
	for _, one := range unicode.Nd.R16 {
		if c >= rune(one.Lo) && c <= rune(one.Hi) {
			return int(c-rune(one.Lo)) % 10, true
		}
	}
	for _, one := range unicode.Nd.R32 {
		if c >= rune(one.Lo) && c <= rune(one.Hi) {
			return int(c-rune(one.Lo)) % 10, true
		}
	}
	return 0, false
}

// asciiDigits replaces the decimal digits of other scripts, as Python's int and float do.
func (r *renderer) asciiDigits(text string) string {
	r.spend(2 * len(text))
	return strings.Map(func(c rune) rune {
		if value, isDecimal := decimalValue(c); c > '~' && isDecimal {
			return rune('0' + value)
		}
		return c
	}, text)
}

// isIdentifier implements str.isidentifier.
func isIdentifier(text string) bool {
	for at, c := range text {
		first := (unicode.In(c, unicode.L, unicode.Nl, unicode.Other_ID_Start) || c == '_') && !within(c, notFirst)
		behind := unicode.In(c, unicode.L, unicode.Nl, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Start, unicode.Other_ID_Continue) &&
			!within(c, notBehind)
		if at == 0 && !first || at > 0 && !behind {
			return false
		}
	}
	return text != ""
}

// isPrintable implements str.isprintable. It refuses characters that this program does not know.
func (r *renderer) isPrintable(text string) bool {
	for _, c := range text {
		if unicode.IsPrint(c) {
			continue
		}
		if !unicode.In(c, hidden...) {
			r.unsupported("whether the character %U is printable", c)
		}
		return false
	}
	return true
}

// isTitle implements str.istitle: capitals only after characters without case, small letters only
// after letters.
func isTitle(text string) bool {
	found, before := false, false
	for _, c := range text {
		switch {
		case unicode.In(c, unicode.Lu, unicode.Lt, unicode.Other_Uppercase):
			if before {
				return false
			}
			found, before = true, true
		case unicode.In(c, unicode.Ll, unicode.Other_Lowercase):
			if !before {
				return false
			}
			found = true
		default:
			before = false
		}
	}
	return found
}

// folded implements str.casefold.
func (r *renderer) folded(text string) string {
	return r.letters(text, func(b *buffer, all []rune, at int) {
		switch c := all[at]; {
		case c == '\u0131':
			b.add("\u0131")
		case c == '\u1e9e':
			b.add("ss")
		case c >= '\u13a0' && c <= '\u13fd', c >= '\uab70' && c <= '\uabbf':
			b.add(string(unicode.ToUpper(c)))
		case upperTexts[c] != "":
			for _, part := range upperTexts[c] {
				mapped(b, part, lowerTexts, unicode.ToLower)
			}
		default:
			mapped(b, unicode.ToUpper(c), lowerTexts, unicode.ToLower)
		}
	})
}

// expanded implements str.expandtabs.
func (r *renderer) expanded(text string, size int64) string {
	r.spend(len(text))
	b, column := r.buffer(), int64(0)
	for _, c := range text {
		switch c {
		case '\t':
			if size > 0 {
				n := size - column%size
				b.add(r.repeated(" ", n))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1
		}
		column++
		b.add(string(c))
	}
	return b.String()
}

// translated implements str.translate. The table is a dict or a list.
func (r *renderer) translated(text string, table any) string {
	_, isDict := table.(*dict)
	characters, isString := str(table)
	if isString {
		r.spend(16 * len(characters))
		table = &list{items: r.each(characters)}
	}
	if _, isList := table.(*list); !isDict && !isList {
		r.unsupported("translate with a value of the type %s", typeName(table))
	}
	b := r.buffer()
	for _, c := range text {
		r.step(1)
		var value any
		found := false
		if d, isDict := table.(*dict); isDict {
			value, found = d.values[int64(c)]
		} else if items := indexed(table); int(c) < len(items) {
			value, found = items[c], true
		}
		n, isNumber := number(value)
		to, isText := str(value)
		switch {
		case !found:
			b.add(string(c))
		case isText:
			b.add(to)
		case isNumber && n >= 0 && n <= unicode.MaxRune && utf8.ValidRune(rune(n)):
			b.add(string(rune(n)))
		case isNumber && n >= 0 && n <= unicode.MaxRune:
			r.unsupported("the character %d", n)
		case value != nil:
			r.wrong("translate to a value of the type %s", typeName(value))
		}
	}
	return b.String()
}

// translation implements str.maketrans.
func (r *renderer) translation(g given) *dict {
	args, d := g.bind("", "", ""), newDict()
	if len(g.placed) == 1 {
		from, isDict := args[0].(*dict)
		if !isDict {
			r.wrong("maketrans of a value of the type %s, want a dict", typeName(args[0]))
		}
		for i, key := range from.keys {
			r.set(d, r.translatedKey(key), from.values[from.hashes[i]])
		}
		return d
	}
	from, to := []rune(g.text(args[0])), []rune(g.text(args[1]))
	if len(from) != len(to) {
		r.wrong("maketrans of texts with different lengths")
	}
	for i, c := range from {
		r.set(d, int64(c), int64(to[i]))
	}
	if len(g.placed) == 3 {
		for _, c := range g.text(args[2]) {
			r.set(d, int64(c), nil)
		}
	}
	return d
}

// translatedKey returns a key of maketrans: an integer, or the code of a character.
func (r *renderer) translatedKey(key any) any {
	if text, isText := str(key); isText {
		c, n := utf8.DecodeRuneInString(text)
		if n != len(text) || n == 0 {
			r.wrong("maketrans of the key %.40q, want one character", text)
		}
		return int64(c)
	}
	if _, isWhole := whole(key); !isWhole {
		r.wrong("maketrans of a key of the type %s", typeName(key))
	}
	return key
}
