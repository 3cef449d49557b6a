package plain

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// maxMarks is how many marks may follow one another, as accents and vowels do: more of them make a pile that
// covers the lines around it.
const maxMarks = 3

// brailleBlank is a symbol of which nothing is seen.
const brailleBlank = '\u2800'

// CheckName returns why a text is no name of at most size bytes that people are shown: one line of printable UTF-8,
// without blanks at its ends, without what is not seen, turns the direction of writing, or piles marks up. Nil: it is.
func CheckName(text string, size int) error {
	switch {
	case text == "":
		return errors.New("empty")
	case len(text) > size:
		return fmt.Errorf("%d bytes, at most %d are allowed", len(text), size)
	case !utf8.ValidString(text):
		return errors.New("not valid UTF-8")
	case text[0] == ' ' || text[len(text)-1] == ' ':
		return errors.New("starts or ends with a blank")
	}
	marks := maxMarks // nothing is there that the first one could belong to
	for _, r := range text {
		if !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == brailleBlank {
			return fmt.Errorf("character %U is invisible or changes the display of other characters", r)
		}
		if marks++; !unicode.Is(unicode.M, r) {
			marks = 0
		}
		if marks > maxMarks {
			return fmt.Errorf("the combining mark %U follows %d other marks, or no character", r, maxMarks)
		}
	}
	return nil
}
