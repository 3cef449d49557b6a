package chat

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// parseInt parses an integer like Python's int, in a base of 2 to 36, or in the base of its prefix
// if base is 0.
func parseInt(text string, base int) (*big.Int, bool) {
	text = strings.TrimFunc(text, isSpace)
	digits := text
	if text != "" && (text[0] == '+' || text[0] == '-') {
		digits = text[1:]
	}
	given := base
	for of, prefix := range map[int]string{2: "0b", 8: "0o", 16: "0x"} {
		if (base == of || base == 0) && len(digits) > 2 && strings.EqualFold(digits[:2], prefix) {
			digits, given = strings.TrimPrefix(digits[2:], "_"), of
			break
		}
	}
	if given == 0 {
		if given = 10; strings.HasPrefix(digits, "0") && strings.Trim(digits, "0_") != "" {
			return nil, false
		}
	}
	if digits == "" || digits[0] == '_' || digits[0] == '+' || digits[0] == '-' || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") || len(digits) > 4300 {
		return nil, false
	}
	digits = strings.ReplaceAll(digits, "_", "")
	n, valid := new(big.Int).SetString(digits, given)
	if valid && text[0] == '-' {
		n.Neg(n)
	}
	return n, valid
}

// parseFloat parses a number like Python's float.
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

func intFilter(r *renderer, of any, g given) any {
	args := g.bind("default", "base")
	if text, isText := str(of); isText {
		text = r.asciiDigits(text)
		base, isNumber := number(or(args[1], int64(10)))
		if inside := base == 0 || base >= 2 && base <= 36; isNumber && inside {
			if n, valid := parseInt(text, int(base)); valid {
				return r.bounded(n)
			}
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
		if value, valid := r.parseFloat(r.asciiDigits(text)); valid {
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
	how, isText := str(or(args[1], "common"))
	if !isText || how != "common" && how != "ceil" && how != "floor" {
		r.wrong("round by %.40q, want common, ceil or floor", how)
	}
	value, isNumber := r.real(of)
	if !isNumber {
		r.wrong("round of a value of the type %s", typeName(of))
	}
	if how != "common" {
		if _, isWhole := whole(or(args[0], int64(0))); !isWhole {
			r.unsupported("round by %s to a value of the type %s", how, typeName(args[0]))
		}
		return r.roundedTo(of, value, g.whole(or(args[0], int64(0))), how)
	}
	if or(args[0], int64(0)) == nil { // Python's round without a precision
		if _, isFloat := of.(float64); isFloat {
			n, _ := new(big.Float).SetFloat64(math.RoundToEven(value)).Int(nil)
			return newInt(n)
		}
		args[0] = int64(0)
	}
	precision := g.whole(or(args[0], int64(0)))
	if n, isWhole := whole(of); isWhole {
		return r.roundedWhole(n, precision)
	}
	switch {
	case precision > 323:
		return value
	case precision < -308:
		return math.Copysign(0, value)
	case precision < 0:
		n := nearest(new(big.Rat).SetFloat64(value), tenTo(-precision))
		rounded, _ := new(big.Rat).SetInt(n).Float64()
		return math.Copysign(rounded, value)
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'f', int(precision), 64), 64)
	if err != nil {
		r.unsupported("round of this number")
	}
	return rounded
}

func tenTo(n int64) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil) }

// nearest returns the multiple of unit nearest to a number. If two are equally near, it returns the
// even multiple.
func nearest(n *big.Rat, unit *big.Int) *big.Int {
	scaled := new(big.Rat).Quo(n, new(big.Rat).SetInt(unit))
	scaled.Add(scaled, big.NewRat(1, 2))
	multiple := new(big.Int).Div(scaled.Num(), scaled.Denom())
	if scaled.IsInt() && multiple.Bit(0) == 1 {
		multiple.Sub(multiple, big.NewInt(1))
	}
	return multiple.Mul(multiple, unit)
}

// roundedWhole implements round of an integer, which changes it only for a negative precision.
func (r *renderer) roundedWhole(n *big.Int, precision int64) any {
	switch {
	case precision >= 0:
		return newInt(n)
	case -precision > maxBits/3: // more digits than an integer has
		return int64(0)
	}
	r.spend(int(-precision))
	return newInt(nearest(new(big.Rat).SetInt(n), tenTo(-precision)))
}

// roundedTo implements round by ceil or floor.
func (r *renderer) roundedTo(of any, value float64, precision int64, how string) any {
	if precision < 0 || precision > 22 {
		r.unsupported("round by %s to %d places", how, precision)
	}
	n, isWhole := whole(of)
	if isWhole {
		n = new(big.Int).Mul(n, tenTo(precision))
	} else {
		scale, _ := new(big.Float).SetInt(tenTo(precision)).Float64()
		if value *= scale; math.IsInf(value, 0) {
			r.wrong("round of a number that is too large")
		}
		n, _ = new(big.Float).SetFloat64(map[string]func(float64) float64{"ceil": math.Ceil, "floor": math.Floor}[how](value)).Int(nil)
	}
	return r.quotient(n, tenTo(precision))
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

// extreme implements min and max.
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
