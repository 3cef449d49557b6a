package chat

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// numberFilter returns a filter of numbers.
func numberFilter(name string) filterFunc {
	switch name {
	case "int":
		return intFilter
	case "float":
		return floatFilter
	case "abs":
		return absFilter
	case "round":
		return roundFilter
	case "sum":
		return sumFilter
	case "min", "max":
		return func(r *renderer, of any, g given) any { return r.extreme(name, of, g) }
	}
	return nil
}

// parseInt reads an integer as int of Python does, in a base of 2 to 36.
func parseInt(text string, base int) (*big.Int, bool) {
	text = strings.TrimFunc(text, isSpace)
	digits := strings.TrimLeft(text, "+-")
	if len(text)-len(digits) > 1 {
		return nil, false
	}
	if prefix := map[int]string{2: "0b", 8: "0o", 16: "0x"}[base]; prefix != "" && len(digits) > 2 && strings.EqualFold(digits[:2], prefix) {
		digits = strings.TrimPrefix(digits[2:], "_")
	}
	if digits == "" || digits[0] == '_' || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") || len(digits) > 4300 {
		return nil, false
	}
	digits = strings.ReplaceAll(digits, "_", "")
	n, valid := new(big.Int).SetString(digits, base)
	if valid && text[0] == '-' {
		n.Neg(n)
	}
	return n, valid
}

// parseFloat reads a number as float of Python does.
func (r *renderer) parseFloat(text string) (float64, bool) {
	text = strings.TrimFunc(text, isSpace)
	if strings.HasPrefix(text, "_") || strings.HasSuffix(text, "_") || strings.Contains(text, "__") || strings.ContainsAny(text, "xXpP") {
		return 0, false
	}
	value, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	if math.IsInf(value, 0) || math.IsNaN(value) {
		r.unsupported("numbers that are not finite")
	}
	return value, err == nil
}

func (r *renderer) foreignDigits(text string) {
	r.spend(len(text))
	for _, c := range text {
		if c > '~' && unicode.IsDigit(c) {
			r.unsupported("a number with the character %U", c)
		}
	}
}

func intFilter(r *renderer, of any, g given) any {
	args := g.bind("default", "base")
	if text, isText := str(of); isText {
		r.foreignDigits(text)
		base := g.whole(or(args[1], int64(10)))
		if base < 2 || base > 36 {
			r.unsupported("int with the base %d", base)
		}
		if n, valid := parseInt(text, int(base)); valid {
			return r.bounded(n)
		}
		value, valid := r.parseFloat(text)
		if !valid {
			return or(args[0], int64(0))
		}
		of = value
	}
	switch v := of.(type) {
	case float64:
		n, _ := new(big.Float).SetFloat64(math.Trunc(v)).Int(nil)
		return newInt(n)
	case bool, int64, *big.Int:
		n, _ := whole(of)
		return newInt(n)
	case undefined:
		r.wrong("%s is undefined", v.name)
	}
	return or(args[0], int64(0))
}

func floatFilter(r *renderer, of any, g given) any {
	args := g.bind("default")
	if missing, isUndefined := of.(undefined); isUndefined {
		r.wrong("%s is undefined", missing.name)
	}
	if text, isText := str(of); isText {
		r.foreignDigits(text)
		if value, valid := r.parseFloat(text); valid {
			return value
		}
	} else if value, isNumber := r.real(of); isNumber {
		return value
	}
	return or(args[0], 0.0)
}

func absFilter(r *renderer, of any, g given) any {
	g.bind()
	if f, isFloat := of.(float64); isFloat {
		return math.Abs(f)
	}
	n, isWhole := whole(of)
	if !isWhole {
		r.wrong("abs of a value of the type %s", typeName(of))
	}
	return newInt(new(big.Int).Abs(n))
}

func roundFilter(r *renderer, of any, g given) any {
	args := g.bind("precision", "method")
	precision := g.whole(or(args[0], int64(0)))
	how := g.text(or(args[1], "common"))
	value, isNumber := r.real(of)
	_, isFloat := of.(float64)
	switch {
	case !isNumber:
		r.wrong("round of a value of the type %s", typeName(of))
	case precision < 0 || precision > 16:
		r.unsupported("round to %d places", precision)
	case how == "ceil" || how == "floor":
		scale := math.Pow(10, float64(precision))
		if value *= scale; math.IsInf(value, 0) {
			r.wrong("round of a number that is too large")
		}
		n, _ := new(big.Float).SetFloat64(map[string]func(float64) float64{"ceil": math.Ceil, "floor": math.Floor}[how](value)).Int(nil)
		return r.quotient(n, big.NewInt(int64(scale)))
	case how != "common":
		r.wrong("round by %.40q, want common, ceil or floor", how)
	case !isFloat:
		n, _ := whole(of)
		return newInt(n)
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'f', int(precision), 64), 64)
	if err != nil {
		r.unsupported("round of this number")
	}
	return rounded
}

func sumFilter(r *renderer, of any, g given) any {
	args := g.bind("attribute", "start")
	get := r.getter(or(args[0], nil), nil, true)
	sum := or(args[1], int64(0))
	if _, isText := str(sum); isText {
		r.wrong("sum of texts")
	}
	next := r.iterate(of)
	for item, more := next(); more; item, more = next() {
		sum = r.operate("+", sum, get(item))
	}
	return sum
}

// extreme is min and max.
func (r *renderer) extreme(name string, of any, g given) any {
	args := g.bind("case_sensitive", "attribute")
	key := r.getter(or(args[1], nil), nil, truth(or(args[0], false)))
	next := r.iterate(of)
	best, found := next()
	if !found {
		return undefined{"the " + name + " of an empty list"}
	}
	bestKey := key(best)
	for item, more := next(); more; item, more = next() {
		itemKey := key(item)
		if n := r.order("<", itemKey, bestKey, 0); name == "min" && n < 0 || name == "max" && n > 0 {
			best, bestKey = item, itemKey
		}
	}
	return best
}
