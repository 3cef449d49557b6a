package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Characters whose mapping has several characters, each followed by its mapping.
var (
	upperTexts = texts("\u00dfSS \u0149\u02bcN \u01f0J\u030c \u0390\u0399\u0308\u0301 \u03b0\u03a5\u0308\u0301 \u0587\u0535\u0552 " +
		"\u1e96H\u0331 \u1e97T\u0308 \u1e98W\u030a \u1e99Y\u030a \u1e9aA\u02be \u1f50\u03a5\u0313 " +
		"\u1f52\u03a5\u0313\u0300 \u1f54\u03a5\u0313\u0301 \u1f56\u03a5\u0313\u0342 \u1f80\u1f08\u0399 " +
		"\u1f81\u1f09\u0399 \u1f82\u1f0a\u0399 \u1f83\u1f0b\u0399 \u1f84\u1f0c\u0399 \u1f85\u1f0d\u0399 " +
		"\u1f86\u1f0e\u0399 \u1f87\u1f0f\u0399 \u1f88\u1f08\u0399 \u1f89\u1f09\u0399 \u1f8a\u1f0a\u0399 " +
		"\u1f8b\u1f0b\u0399 \u1f8c\u1f0c\u0399 \u1f8d\u1f0d\u0399 \u1f8e\u1f0e\u0399 \u1f8f\u1f0f\u0399 " +
		"\u1f90\u1f28\u0399 \u1f91\u1f29\u0399 \u1f92\u1f2a\u0399 \u1f93\u1f2b\u0399 \u1f94\u1f2c\u0399 " +
		"\u1f95\u1f2d\u0399 \u1f96\u1f2e\u0399 \u1f97\u1f2f\u0399 \u1f98\u1f28\u0399 \u1f99\u1f29\u0399 " +
		"\u1f9a\u1f2a\u0399 \u1f9b\u1f2b\u0399 \u1f9c\u1f2c\u0399 \u1f9d\u1f2d\u0399 \u1f9e\u1f2e\u0399 " +
		"\u1f9f\u1f2f\u0399 \u1fa0\u1f68\u0399 \u1fa1\u1f69\u0399 \u1fa2\u1f6a\u0399 \u1fa3\u1f6b\u0399 " +
		"\u1fa4\u1f6c\u0399 \u1fa5\u1f6d\u0399 \u1fa6\u1f6e\u0399 \u1fa7\u1f6f\u0399 \u1fa8\u1f68\u0399 " +
		"\u1fa9\u1f69\u0399 \u1faa\u1f6a\u0399 \u1fab\u1f6b\u0399 \u1fac\u1f6c\u0399 \u1fad\u1f6d\u0399 " +
		"\u1fae\u1f6e\u0399 \u1faf\u1f6f\u0399 \u1fb2\u1fba\u0399 \u1fb3\u0391\u0399 \u1fb4\u0386\u0399 " +
		"\u1fb6\u0391\u0342 \u1fb7\u0391\u0342\u0399 \u1fbc\u0391\u0399 \u1fc2\u1fca\u0399 \u1fc3\u0397\u0399 " +
		"\u1fc4\u0389\u0399 \u1fc6\u0397\u0342 \u1fc7\u0397\u0342\u0399 \u1fcc\u0397\u0399 \u1fd2\u0399\u0308\u0300 " +
		"\u1fd3\u0399\u0308\u0301 \u1fd6\u0399\u0342 \u1fd7\u0399\u0308\u0342 \u1fe2\u03a5\u0308\u0300 " +
		"\u1fe3\u03a5\u0308\u0301 \u1fe4\u03a1\u0313 \u1fe6\u03a5\u0342 \u1fe7\u03a5\u0308\u0342 \u1ff2\u1ffa\u0399 " +
		"\u1ff3\u03a9\u0399 \u1ff4\u038f\u0399 \u1ff6\u03a9\u0342 \u1ff7\u03a9\u0342\u0399 \u1ffc\u03a9\u0399 \ufb00FF " +
		"\ufb01FI \ufb02FL \ufb03FFI \ufb04FFL \ufb05ST \ufb06ST \ufb13\u0544\u0546 \ufb14\u0544\u0535 " +
		"\ufb15\u0544\u053b \ufb16\u054e\u0546 \ufb17\u0544\u053d")
	titleTexts = texts("\u00dfSs \u0149\u02bcN \u01f0J\u030c \u0390\u0399\u0308\u0301 \u03b0\u03a5\u0308\u0301 \u0587\u0535\u0582 " +
		"\u1e96H\u0331 \u1e97T\u0308 \u1e98W\u030a \u1e99Y\u030a \u1e9aA\u02be \u1f50\u03a5\u0313 " +
		"\u1f52\u03a5\u0313\u0300 \u1f54\u03a5\u0313\u0301 \u1f56\u03a5\u0313\u0342 \u1fb2\u1fba\u0345 " +
		"\u1fb4\u0386\u0345 \u1fb6\u0391\u0342 \u1fb7\u0391\u0342\u0345 \u1fc2\u1fca\u0345 \u1fc4\u0389\u0345 " +
		"\u1fc6\u0397\u0342 \u1fc7\u0397\u0342\u0345 \u1fd2\u0399\u0308\u0300 \u1fd3\u0399\u0308\u0301 " +
		"\u1fd6\u0399\u0342 \u1fd7\u0399\u0308\u0342 \u1fe2\u03a5\u0308\u0300 \u1fe3\u03a5\u0308\u0301 " +
		"\u1fe4\u03a1\u0313 \u1fe6\u03a5\u0342 \u1fe7\u03a5\u0308\u0342 \u1ff2\u1ffa\u0345 \u1ff4\u038f\u0345 " +
		"\u1ff6\u03a9\u0342 \u1ff7\u03a9\u0342\u0345 \ufb00Ff \ufb01Fi \ufb02Fl \ufb03Ffi \ufb04Ffl \ufb05St \ufb06St " +
		"\ufb13\u0544\u0576 \ufb14\u0544\u0565 \ufb15\u0544\u056b \ufb16\u054e\u0576 \ufb17\u0544\u056d")
	lowerTexts = texts("\u0130i\u0307")
)

func texts(table string) map[rune]string {
	all := map[rune]string{}
	for entry := range strings.FieldsSeq(table) {
		c, n := utf8.DecodeRuneInString(entry)
		all[c] = entry[n:]
	}
	return all
}

// cased reports whether a character has the property Cased of Unicode.
func cased(c rune) bool {
	return unicode.In(c, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

// caseIgnorable reports whether a character has the property Case_Ignorable of Unicode.
func caseIgnorable(c rune) bool {
	return unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune("'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a", c)
}

func upperRune(b *buffer, c rune) { mapped(b, c, upperTexts, unicode.ToUpper) }
func titleRune(b *buffer, c rune) { mapped(b, c, titleTexts, unicode.ToTitle) }

func mapped(b *buffer, c rune, several map[rune]string, one func(rune) rune) {
	if text, found := several[c]; found {
		b.add(text)
		return
	}
	b.add(string(one(c)))
}

// lowerRune writes the lower-case letter of the character at an index. A sigma at the end of a word
// has a special form.
func lowerRune(b *buffer, all []rune, at int) {
	if all[at] == '\u03a3' && finalSigma(b.r, all, at) {
		b.add("\u03c2")
		return
	}
	mapped(b, all[at], lowerTexts, unicode.ToLower)
}

func finalSigma(r *renderer, all []rune, at int) bool {
	before, after := at-1, at+1
	for before >= 0 && caseIgnorable(all[before]) {
		before--
		r.step(1)
	}
	for after < len(all) && caseIgnorable(all[after]) {
		after++
		r.step(1)
	}
	return before >= 0 && cased(all[before]) && (after == len(all) || !cased(all[after]))
}

// letters applies a function to each character of a text.
func (r *renderer) letters(text string, write func(b *buffer, all []rune, at int)) string {
	r.spend(4 * len(text))
	b, all := r.buffer(), []rune(text)
	for at := range all {
		write(b, all, at)
	}
	return b.String()
}

func (r *renderer) upper(text string) string {
	return r.letters(text, func(b *buffer, all []rune, at int) { upperRune(b, all[at]) })
}

func (r *renderer) lower(text string) string { return r.letters(text, lowerRune) }

func (r *renderer) capitalized(text string) string {
	return r.letters(text, func(b *buffer, all []rune, at int) {
		if at == 0 {
			titleRune(b, all[0])
		} else {
			lowerRune(b, all, at)
		}
	})
}

// titled implements str.title: every letter after a character without case becomes a capital.
func (r *renderer) titled(text string) string {
	return r.letters(text, func(b *buffer, all []rune, at int) {
		if at > 0 && cased(all[at-1]) {
			lowerRune(b, all, at)
		} else {
			titleRune(b, all[at])
		}
	})
}

func (r *renderer) swapped(text string) string {
	return r.letters(text, func(b *buffer, all []rune, at int) {
		switch c := all[at]; {
		case unicode.In(c, unicode.Lu, unicode.Other_Uppercase):
			lowerRune(b, all, at)
		case unicode.In(c, unicode.Ll, unicode.Other_Lowercase):
			upperRune(b, c)
		default:
			b.add(string(c))
		}
	})
}

// titleFilter implements the filter title: the characters after spaces and some marks become
// capitals.
func (r *renderer) titleFilter(text string) string {
	r.spend(4 * len(text))
	b := r.buffer()
	separates := func(c rune) bool { return isSpace(c) || strings.ContainsRune("-({[<", c) }
	for all := []rune(text); len(all) > 0; {
		n := 1
		for n < len(all) && separates(all[n]) == separates(all[0]) {
			n++
		}
		upperRune(b, all[0])
		for at := 1; at < n; at++ {
			lowerRune(b, all[1:n], at-1)
		}
		all = all[n:]
	}
	return b.String()
}
