package chat

import (
	"cmp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// dates maps codes of strftime to equivalent codes.
var dates = map[byte]string{
	'F': "%Y-%m-%d", 'T': "%H:%M:%S", 'R': "%H:%M", 'D': "%m/%d/%y", 'x': "%m/%d/%y", 'X': "%H:%M:%S", 'r': "%I:%M:%S %p",
	'c': "%a %b %e %H:%M:%S %Y",
}

// date implements the function strftime_now, with the codes of glibc in the locale C.
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
		if after, isZone := strings.CutPrefix(rest, ":z"); isZone { // handled by Python itself
			format = after
			continue
		}
		code, size := r.dateCode(rest)
		b.add(r.datePart(code))
		format = rest[size:]
	}
}

// dateCode is a code of strftime: %-d or %_3j.
type dateCode struct {
	pad         byte // one of - _ 0; the zero byte means none
	upper, swap bool // ^ and #
	width       int
	modifier    byte // E or O; 0 means none
	letter      byte // 0 means a code that strftime does not know
	text        string
}

// dateCode reads the code after a percent sign.
func (r *renderer) dateCode(text string) (code dateCode, size int) {
	rest := text
	for ; rest != "" && strings.IndexByte("-_0^#", rest[0]) >= 0; rest = rest[1:] {
		switch rest[0] {
		case '^':
			code.upper = true
		case '#':
			code.swap = true
		default:
			code.pad = rest[0]
		}
	}
	code.width, rest = r.formatNumber(rest)
	if rest != "" && (rest[0] == 'E' || rest[0] == 'O') {
		code.modifier, rest = rest[0], rest[1:]
	}
	if rest != "" {
		_, n := utf8.DecodeRuneInString(rest)
		if wrong := map[byte]string{'E': "aAbBdDeFgGhHIjklmMSUVwW", 'O': "aAcDFxXY"}[code.modifier]; n == 1 && strings.IndexByte(wrong, rest[0]) < 0 {
			code.letter = rest[0]
		}
		rest = rest[n:]
	}
	size = len(text) - len(rest)
	code.text = "%" + text[:size]
	return code, size
}

func (r *renderer) datePart(code dateCode) string {
	if text, isNumber := dateNumber(r.now, code.letter); isNumber {
		return r.dateDigits(code, text)
	}
	text := code.text // of a code that strftime does not know
	switch code.letter {
	case 'a', 'A', 'b', 'B', 'h', 'p', 'P':
		return r.dateFilled(code, dateName(r.now, code))
	case '%':
		text = "%"
	case 'n':
		text = "\n"
	case 't':
		text = "\t"
	case 's':
		r.unsupported("strftime_now with %%s, which depends on the zone")
	case 'z': // transformers reads the clock without a zone
		return ""
	case 'Z':
		text = ""
	case 'f':
		if code.text == "%f" {
			return strconv.Itoa(1e6 + r.now.Nanosecond()/1000)[1:]
		}
	default:
		if dates[code.letter] != "" {
			text = r.date(dates[code.letter])
		}
	}
	if code.upper {
		text = strings.Map(unicode.ToUpper, text)
	}
	return r.dateFilled(code, text)
}

// dateName returns the name of a day or a month, or the half of a day.
func dateName(now time.Time, code dateCode) string {
	text := now.Format(map[byte]string{'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'p': "PM", 'P': "pm"}[code.letter])
	switch {
	case code.swap && code.letter == 'p':
		return strings.ToLower(text)
	case code.letter != 'P' && (code.upper || code.swap):
		return strings.ToUpper(text)
	}
	return text
}

// dateFilled pads a text to the width of its code.
func (r *renderer) dateFilled(code dateCode, text string) string {
	fill := " "
	if code.pad == '0' {
		fill = "0"
	}
	return r.repeated(fill, int64(code.width-utf8.RuneCountInString(text))) + text
}

// dateNumber returns the digits of a numeric code, with the spaces or zeros that glibc writes.
func dateNumber(now time.Time, letter byte) (text string, isNumber bool) {
	year, week := now.ISOWeek()
	day, hour12 := int(now.Weekday()), (now.Hour()+11)%12+1
	number, isNumber := map[byte]struct {
		value, width int
		fill         string
	}{
		'd': {now.Day(), 2, "0"},
		'e': {now.Day(), 2, " "},
		'H': {now.Hour(), 2, "0"},
		'k': {now.Hour(), 2, " "},
		'I': {hour12, 2, "0"},
		'l': {hour12, 2, " "},
		'j': {now.YearDay(), 3, "0"},
		'm': {int(now.Month()), 2, "0"},
		'M': {now.Minute(), 2, "0"},
		'S': {now.Second(), 2, "0"},
		'y': {now.Year() % 100, 2, "0"},
		'Y': {now.Year(), 1, "0"},
		'C': {now.Year() / 100, 2, "0"},
		'G': {year, 1, "0"},
		'g': {year % 100, 2, "0"},
		'V': {week, 2, "0"},
		'U': {(now.YearDay() + 6 - day) / 7, 2, "0"},
		'W': {(now.YearDay() + 6 - (day+6)%7) / 7, 2, "0"},
		'w': {day, 1, "0"},
		'u': {(day+6)%7 + 1, 1, "0"},
	}[letter]
	digits := strconv.Itoa(number.value)
	return strings.Repeat(number.fill, max(number.width-len(digits), 0)) + digits, isNumber
}

// dateDigits returns a number in the format of its code's flag and width.
func (r *renderer) dateDigits(code dateCode, text string) string {
	digits := strings.TrimLeft(text, "0 ")
	digits = cmp.Or(digits, "0")
	width, fill := max(code.width, len(text)), "0"
	if code.pad == '-' {
		width = code.width
	}
	if code.pad == '-' || code.pad == '_' || code.pad == 0 && strings.IndexByte("ekl", code.letter) >= 0 {
		fill = " "
	}
	return r.repeated(fill, int64(width-len(digits))) + digits
}
