package chat

import (
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

// formatSpec is the specification of a field of str.format, behind its colon:
// [[fill]align][sign][z][#][0][width][grouping][.precision][verb].
type formatSpec struct {
	fill             string
	align            byte // < > = ^; 0: the default of the type
	sign             byte // + - or space
	noMinusZero      bool
	alternate        bool
	width, precision int  // -1: omitted
	grouping         byte // , or _; 0 means none
	verb             byte // 0: omitted
}

// parseSpec parses a format specification. left selects left alignment as the default.
func (r *renderer) parseSpec(text string, left bool) (f formatSpec) {
	f.width, f.precision, f.fill = -1, -1, " "
	_, n := utf8.DecodeRuneInString(text)
	filled := false
	if len(text) > n && strings.IndexByte("<>=^", text[n]) >= 0 {
		f.fill, f.align, text, filled = text[:n], text[n], text[n+1:], true
	} else if text != "" && strings.IndexByte("<>=^", text[0]) >= 0 {
		f.align, text = text[0], text[1:]
	}
	take := func(of string) byte {
		if text == "" || strings.IndexByte(of, text[0]) < 0 {
			return 0
		}
		c := text[0]
		text = text[1:]
		return c
	}
	f.sign = take("+- ")
	f.noMinusZero = take("z") != 0
	f.alternate = take("#") != 0
	if !filled && take("0") != 0 {
		if f.fill = "0"; f.align == 0 && !left {
			f.align = '='
		}
	}
	f.width, text = r.formatNumber(text)
	f.grouping = take(",_")
	if f.grouping != 0 && take(",_") != 0 {
		r.wrong("two separators in a format")
	}
	if take(".") != 0 {
		if f.precision, text = r.formatNumber(text); f.precision < 0 {
			r.wrong("a format without its precision")
		}
	}
	if len(text) > 1 {
		r.wrong("the format %.40q", text)
	}
	f.verb = take(text)
	return f
}

// inFormat returns a value in the format of a specification, like Python's format.
func (r *renderer) inFormat(value any, spec string) string {
	if spec == "" {
		return r.text(value)
	}
	if text, isText := str(value); isText {
		r.spend(4 * len(text))
		return r.textInFormat(text, r.parseSpec(spec, true))
	}
	n, isWhole := whole(value)
	real, isFloat := value.(float64)
	if !isWhole && !isFloat {
		r.wrong("the format %.40q of a value of the type %s", spec, typeName(value))
	}
	f := r.parseSpec(spec, false)
	if isFloat || f.verb != 0 && strings.IndexByte("eEfFgG%", f.verb) >= 0 {
		if !isFloat {
			real, _ = r.real(value)
		}
		return r.realInFormat(real, f)
	}
	return r.wholeInFormat(n, f)
}

func (r *renderer) textInFormat(text string, f formatSpec) string {
	if f.sign != 0 || f.alternate || f.noMinusZero || f.align == '=' || f.grouping != 0 || f.verb != 0 && f.verb != 's' {
		r.wrong("a format of numbers for a string")
	}
	if f.precision >= 0 && utf8.RuneCountInString(text) > f.precision {
		text = string([]rune(text)[:f.precision])
	}
	return r.filled(text, f, '<')
}

// filled adds the padding of a format around a text.
func (r *renderer) filled(text string, f formatSpec, align byte) string {
	if f.align != 0 {
		align = f.align
	}
	left := max(int64(f.width-utf8.RuneCountInString(text)), 0)
	switch align {
	case '<':
		return text + r.repeated(f.fill, left)
	case '^':
		return r.repeated(f.fill, left/2) + text + r.repeated(f.fill, left-left/2)
	}
	return r.repeated(f.fill, left) + text
}

func (r *renderer) wholeInFormat(n *big.Int, f formatSpec) string {
	base, prefix := 10, ""
	switch f.verb {
	case 0, 'd', 'n':
	case 'b':
		base, prefix = 2, "0b"
	case 'o':
		base, prefix = 8, "0o"
	case 'x', 'X':
		base, prefix = 16, "0"+string(f.verb)
	case 'c':
		return r.characterInFormat(n, f)
	default:
		r.wrong("the format %c of an integer", f.verb)
	}
	size := 3
	if base != 10 {
		size = 4
	}
	if f.precision >= 0 || f.noMinusZero || f.grouping != 0 && f.verb == 'n' || f.grouping == ',' && base != 10 {
		r.wrong("a format with a precision, z or a separator for this integer")
	}
	r.spend(n.BitLen())
	digits := new(big.Int).Abs(n).Text(base)
	if f.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	if !f.alternate {
		prefix = ""
	}
	return r.numberInFormat(n.Sign() < 0, prefix, digits, "", size, f)
}

// characterInFormat implements the verb c: the character of a code.
func (r *renderer) characterInFormat(n *big.Int, f formatSpec) string {
	if f.sign != 0 || f.alternate || f.precision >= 0 || f.grouping != 0 || f.noMinusZero {
		r.wrong("a format of numbers for a character")
	}
	return r.filled(r.character(n), f, '>')
}

// character returns the character of a code.
func (r *renderer) character(n *big.Int) string {
	if !n.IsInt64() || n.Int64() < 0 || n.Int64() > utf8.MaxRune {
		r.wrong("the character of the code %.40s", n)
	}
	if !utf8.ValidRune(rune(n.Int64())) {
		r.unsupported("the character of the code %s", n)
	}
	return string(rune(n.Int64()))
}

func (r *renderer) realInFormat(value float64, f formatSpec) string {
	if f.grouping != 0 && f.verb == 'n' {
		r.wrong("a format with a separator and the verb n")
	}
	text, percent := "", ""
	precision := f.precision
	if precision < 0 {
		precision = 6
	}
	r.spend(400 + precision)
	switch f.verb {
	case 'e', 'E', 'f', 'F', 'g', 'G':
		text = realText(value, f.verb, precision, f.alternate)
	case 'n':
		text = realText(value, 'g', precision, f.alternate)
	case '%':
		if value *= 100; math.IsInf(value, 0) {
			r.unsupported("numbers that are not finite")
		}
		text, percent = realText(value, 'f', precision, f.alternate), "%"
	case 0:
		switch {
		case f.precision < 0:
			if text = strings.TrimPrefix(floatText(value), "-"); f.alternate && !strings.Contains(text, ".") {
				text = strings.Replace(text, "e", ".e", 1)
			}
		default:
			text = generalText(math.Abs(value), max(precision, 1), f.alternate, true)
		}
	default:
		r.wrong("the format %c of a float", f.verb)
	}
	negative := math.Signbit(value)
	if mantissa, _, _ := strings.Cut(text, "e"); f.noMinusZero && strings.Trim(mantissa, "0.") == "" {
		negative = false
	}
	end := strings.IndexFunc(text, func(c rune) bool { return c < '0' || c > '9' })
	if end < 0 {
		end = len(text)
	}
	return r.numberInFormat(negative, "", text[:end], text[end:]+percent, 3, f)
}

// numberInFormat joins the parts of a number: its sign, prefix, digits and rest.
func (r *renderer) numberInFormat(negative bool, prefix, digits, rest string, size int, f formatSpec) string {
	sign := placeholder{plus: f.sign == '+', space: f.sign == ' '}.sign(negative) + prefix
	width := 0
	if f.fill == "0" && f.align == '=' {
		width = f.width - len(sign) - len(rest)
		r.spend(max(width, 0))
	}
	if f.grouping != 0 {
		digits = grouped(digits, f.grouping, size, width)
	}
	text := digits + rest
	if f.align == '=' {
		return sign + r.filled(text, formatSpec{fill: f.fill, width: f.width - len(sign)}, '>')
	}
	return r.filled(sign+text, f, '>')
}
