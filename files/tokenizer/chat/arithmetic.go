package chat

import (
	"math"
	"math/big"
	"slices"
	"strings"
)

// maxBits limits integers. Python shows integers of up to 4300 digits.
const maxBits = 14_000

// decimal returns the digits of an integer.
func (r *renderer) decimal(n *big.Int) string {
	r.spend(n.BitLen())
	return n.String()
}

// bounded returns an integer, or an error if it exceeds the bounds.
func (r *renderer) bounded(n *big.Int) any {
	if n.BitLen() > maxBits {
		r.tooMuch("an integer of more than %d bits", maxBits)
	}
	r.spend(n.BitLen() / 8)
	return newInt(n)
}

func (r *renderer) binary(e binary, s *scope) any {
	left := r.eval(e.left, s)
	switch e.op {
	case "and":
		if !truth(left) {
			return left
		}
		return r.eval(e.right, s)
	case "or":
		if truth(left) {
			return left
		}
		return r.eval(e.right, s)
	}
	return r.operate(e.op, left, r.eval(e.right, s))
}

// operate computes the Python operators that jinja2 supports.
func (r *renderer) operate(op string, left, right any) any {
	if a, isWhole := whole(left); isWhole {
		if b, too := whole(right); too {
			return r.arithmetic(op, a, b)
		}
	}
	if a, isNumber := r.real(left); isNumber {
		if b, too := r.real(right); too {
			return r.realArithmetic(op, a, b)
		}
	}
	for _, one := range []any{left, right} {
		if v, isView := one.(*view); op == "-" && isView && v.isSet() {
			r.unsupported("the operator - of a value of the type %s, whose result is a set", v.kind)
		}
	}
	switch op {
	case "+":
		if sum, found := r.joinedPair(left, right); found {
			return sum
		}
	case "*":
		for _, pair := range [][2]any{{left, right}, {right, left}} {
			if n, isWhole := whole(pair[1]); isWhole {
				if product, found := r.multiple(pair[0], n); found {
					return product
				}
			}
		}
	case "%":
		switch format := left.(type) {
		case string:
			return r.formatted(format, right, false)
		case markup:
			return markup(r.formatted(string(format), right, true))
		}
	}
	r.wrong("%s between values of the types %s and %s", op, typeName(left), typeName(right))
	return nil
}

// joinedPair returns the sum of two texts or two lists.
func (r *renderer) joinedPair(left, right any) (sum any, found bool) {
	a, isText := str(left)
	if b, too := str(right); isText && too {
		_, safeLeft := left.(markup)
		_, safeRight := right.(markup)
		if safeLeft || safeRight {
			x, y := r.escaped(left), r.escaped(right)
			r.spend(len(x) + len(y))
			return x + y, true
		}
		r.spend(len(a) + len(b))
		return a + b, true
	}
	x, isList := left.(*list)
	if y, too := right.(*list); isList && too && x.tuple == y.tuple {
		r.spend(16 * (len(x.items) + len(y.items)))
		return &list{items: slices.Concat(x.items, y.items), tuple: x.tuple}, true
	}
	return nil, false
}

// multiple returns a text or list n times.
func (r *renderer) multiple(of any, times *big.Int) (product any, found bool) {
	n := times.Int64()
	if !times.IsInt64() {
		n = int64(times.Sign()) * math.MaxInt64
	}
	switch v := of.(type) {
	case string:
		return r.repeated(v, n), true
	case markup:
		return markup(r.repeated(string(v), n)), true
	case *list:
		if n = max(n, 0); len(v.items) == 0 {
			n = 0
		}
		if n > maxWork {
			r.tooMuch("a list %d times", n)
		}
		r.spend(16 * len(v.items) * int(n))
		return &list{items: slices.Repeat(v.items, int(n)), tuple: v.tuple}, true
	}
	return nil, false
}

// repeated returns a text n times.
func (r *renderer) repeated(text string, n int64) string {
	if n = max(n, 0); text == "" {
		return ""
	}
	if n > maxWork {
		r.tooMuch("a text %d times", n)
	}
	r.spend(len(text) * int(n))
	return strings.Repeat(text, int(n))
}

func (r *renderer) unary(e unary, s *scope) any {
	value := r.eval(e.of, s)
	if e.op == "not" {
		return !truth(value)
	}
	if f, isFloat := value.(float64); isFloat {
		if e.op == "-" {
			return -f
		}
		return f
	}
	n, isNumber := whole(value)
	if !isNumber {
		r.wrong("%s before a value of the type %s", e.op, typeName(value))
	}
	if e.op == "-" {
		n = new(big.Int).Neg(n)
	}
	return newInt(n)
}

// arithmetic implements the arithmetic of Python's integers.
func (r *renderer) arithmetic(op string, a, b *big.Int) any {
	result := new(big.Int)
	switch op {
	case "+":
		return r.bounded(result.Add(a, b))
	case "-":
		return r.bounded(result.Sub(a, b))
	case "*":
		r.spend(a.BitLen() + b.BitLen())
		return r.bounded(result.Mul(a, b))
	case "//", "%":
		if b.Sign() == 0 {
			r.wrong("division by zero")
		}
		r.spend(a.BitLen() + b.BitLen())
		rest := new(big.Int)
		if result.QuoRem(a, b, rest); rest.Sign() != 0 && rest.Sign() != b.Sign() {
			result.Sub(result, big.NewInt(1))
			rest.Add(rest, b)
		}
		if op == "%" {
			return newInt(rest)
		}
		return newInt(result)
	case "/":
		return r.quotient(a, b)
	}
	return r.power(a, b)
}

// quotient implements / of integers: the float nearest to the fraction.
func (r *renderer) quotient(a, b *big.Int) any {
	if b.Sign() == 0 {
		r.wrong("division by zero")
	}
	if a.IsInt64() && b.IsInt64() && max(a.BitLen(), b.BitLen()) <= 53 {
		return r.realArithmetic("/", float64(a.Int64()), float64(b.Int64()))
	}
	r.spend(a.BitLen() + b.BitLen())
	f, _ := new(big.Rat).SetFrac(a, b).Float64()
	if math.IsInf(f, 0) {
		r.wrong("the quotient is too large for a float")
	}
	return f
}

// power implements ** of integers. A negative exponent gives a float.
func (r *renderer) power(a, b *big.Int) any {
	if b.Sign() < 0 {
		base, _ := r.real(newInt(a))
		exponent, _ := r.real(newInt(b))
		return r.realArithmetic("**", base, exponent)
	}
	if a.BitLen() <= 1 { // -1, 0 and 1
		switch {
		case b.Sign() == 0 || a.Sign() < 0 && b.Bit(0) == 0:
			return int64(1)
		default:
			return newInt(a)
		}
	}
	if b.BitLen() > 16 || (a.BitLen()-1)*int(b.Int64()) > maxBits {
		r.tooMuch("an integer of more than %d bits", maxBits)
	}
	r.spend(a.BitLen() * int(b.Int64()))
	return r.bounded(new(big.Int).Exp(a, b, nil))
}

// realArithmetic implements the arithmetic of Python's floats.
func (r *renderer) realArithmetic(op string, a, b float64) any {
	var result float64
	switch op {
	case "+":
		result = a + b
	case "-":
		result = a - b
	case "*":
		result = a * b
	case "**":
		if a == 0 && b < 0 {
			r.wrong("0 cannot be raised to a negative power")
		}
		result = r.realPower(a, b)
	default:
		if b == 0 {
			r.wrong("division by zero")
		}
		if result = a / b; op != "/" {
			quotient, rest := floorDivision(a, b)
			result = map[string]float64{"//": quotient, "%": rest}[op]
		}
	}
	if math.IsInf(result, 0) || math.IsNaN(result) {
		r.unsupported("numbers that are not finite")
	}
	return result
}

// realPower implements ** of floats. It refuses exponents for which math.Pow rounds differently
// from C.
func (r *renderer) realPower(a, b float64) float64 {
	if b == 0.5 && a >= 0 {
		return math.Sqrt(a)
	}
	const most, precision = 1 << 16, 256
	if b != math.Trunc(b) || math.Abs(b) > most {
		r.unsupported("** with the exponent %v", b)
	}
	power, square := big.NewFloat(1).SetPrec(precision), big.NewFloat(a).SetPrec(precision)
	for n := int(math.Abs(b)); n > 0; n >>= 1 {
		r.step(1)
		if n&1 == 1 {
			power.Mul(power, square)
		}
		square.Mul(square, square)
	}
	if b < 0 {
		if power.Sign() == 0 {
			r.unsupported("numbers that are not finite")
		}
		power.Quo(big.NewFloat(1).SetPrec(precision), power)
	}
	result, _ := power.Float64()
	return result
}

// floorDivision implements Python's divmod: the remainder has the sign of b, even if it is 0.
func floorDivision(a, b float64) (quotient, rest float64) {
	rest = math.Mod(a, b)
	quotient = (a - rest) / b
	switch {
	case rest == 0:
		rest = math.Copysign(0, b)
	case (b < 0) != (rest < 0):
		rest += b
		quotient--
	}
	if quotient == 0 {
		return math.Copysign(0, a/b), rest
	}
	whole := math.Floor(quotient)
	if quotient-whole > 0.5 {
		whole++
	}
	return whole, rest
}
