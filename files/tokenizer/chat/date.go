package chat

import (
	"fmt"
	"strings"
)

// dates are the parts of strftime in the words of Go.
var dates = map[byte]string{
	'd': "02", 'b': "Jan", 'h': "Jan", 'B': "January", 'Y': "2006", 'm': "01", 'y': "06", 'H': "15", 'I': "03", 'M': "04", 'S': "05",
	'a': "Mon", 'A': "Monday", 'p': "PM", 'e': "_2", 'j': "002",
	'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'x': "01/02/06", 'X': "15:04:05", 'c': "Mon Jan _2 15:04:05 2006",
}

// date is the function strftime_now.
func (r *renderer) date(format string) string {
	if r.now.IsZero() {
		r.unsupported("strftime_now")
	}
	b := r.buffer()
	for {
		text, rest, found := strings.Cut(format, "%")
		b.add(text)
		if !found {
			return b.String()
		}
		r.step(1)
		plain := strings.HasPrefix(rest, "-") // without zeros at the front, as in glibc
		if rest = strings.TrimPrefix(rest, "-"); rest == "" {
			r.unsupported("strftime_now with a %% at the end")
		}
		part := r.datePart(rest[0])
		if plain {
			if strings.IndexByte("deHIMmSyj", rest[0]) < 0 {
				r.unsupported("strftime_now with %%-%c", rest[0])
			}
			if part = strings.TrimLeft(part, "0 "); part == "" {
				part = "0"
			}
		}
		b.add(part)
		format = rest[1:]
	}
}

func (r *renderer) datePart(letter byte) string {
	switch letter {
	case '%':
		return "%"
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'w':
		return fmt.Sprint(int(r.now.Weekday()))
	case 'u':
		return fmt.Sprint((int(r.now.Weekday())+6)%7 + 1)
	case 'z', 'Z':
		return "" // transformers reads the clock without a zone
	case 'f':
		return fmt.Sprintf("%06d", r.now.Nanosecond()/1000)
	}
	if dates[letter] == "" {
		r.unsupported("strftime_now with %%%c", letter)
	}
	return r.now.Format(dates[letter])
}
