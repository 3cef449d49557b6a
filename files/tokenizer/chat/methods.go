package chat

import (
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// plainAttribute returns an attribute of a number or a range that is not a method.
func plainAttribute(of any, name string) (value any, found bool) {
	if v, isView := of.(*view); isView && v.kind == rangeType {
		value, found = map[string]any{"start": v.from, "stop": v.to, "step": v.step}[name]
		return value, found
	}
	n, isWhole := whole(of)
	f, isFloat := of.(float64)
	switch {
	case isWhole && (name == "real" || name == "numerator"):
		return newInt(n), true
	case isWhole && name == "imag":
		return int64(0), true
	case isWhole && name == "denominator":
		return int64(1), true
	case isFloat && name == "real":
		return f, true
	case isFloat && name == "imag":
		return 0.0, true
	}
	return nil, false
}

// method calls a method of a value.
func (r *renderer) method(m method, g given) any {
	switch v := m.of.(type) {
	case string:
		return r.stringMethod(v, m.name, g)
	case markup:
		return r.markupMethod(v, m.name, g)
	case *dict:
		return r.dictMethod(v, m.name, g)
	case *list:
		return r.listMethod(v, m.name, g)
	case *loop:
		return r.loopMethod(v, m.name, g)
	case *view:
		return r.viewMethod(v, m.name, g)
	case float64:
		return r.floatMethod(v, m.name, g)
	case bool, int64, *big.Int:
		n, _ := whole(v)
		return r.intMethod(n, m.name, g)
	case *cycler:
		g.bind()
		if v.at++; m.name == "reset" {
			v.at = 0
			return nil
		}
		return v.items[(v.at-1)%len(v.items)]
	}
	r.unsupported("the method %s of a value of the type %s", m.name, typeName(m.of))
	return nil
}

// listMethod calls a method that does not change the list. The sandbox of transformers hides the
// other methods.
func (r *renderer) listMethod(l *list, name string, g given) any {
	switch name {
	case "copy":
		g.bind()
		r.spend(16 * len(l.items))
		return &list{items: slices.Clone(l.items), tuple: l.tuple}
	case "count":
		return r.counted(l.items, g.one())
	}
	args := g.bind("", "", "")
	return r.indexWithin(l.items, g, args)
}

func (r *renderer) counted(items []any, wanted any) int64 {
	count := int64(0)
	for _, item := range items {
		if r.equal(item, wanted, 0) {
			count++
		}
	}
	return count
}

// indexWithin returns the index of a value, optionally between two indices.
func (r *renderer) indexWithin(items []any, g given, args []any) int64 {
	wanted, n := g.need(args[0]), int64(len(items))
	bounds := [2]int64{0, n}
	for i, arg := range args[1:] {
		if _, missing := arg.(absent); missing {
			continue
		}
		at, isWhole := whole(arg)
		if !isWhole {
			r.wrong("%s with an index of the type %s", g.call, typeName(arg))
		}
		if bounds[i] = clamped(at); bounds[i] < 0 {
			bounds[i] = max(bounds[i]+n, 0)
		}
	}
	for at := bounds[0]; at < min(bounds[1], n); at++ {
		if r.equal(items[at], wanted, 0) {
			return at
		}
	}
	r.wrong("index of a value that is not in the list")
	return 0
}

// viewMethod calls a method of a range, or of the keys, values or items of a dict.
func (r *renderer) viewMethod(v *view, name string, g given) any {
	switch name {
	case "count":
		return r.counted(v.items, g.one())
	case "index":
		return r.indexWithin(v.items, g, g.bind(""))
	case "isdisjoint":
		mine := map[any]bool{}
		for _, item := range v.items {
			r.spend(64)
			mine[r.hash(item, 0)] = true
		}
		return !slices.ContainsFunc(r.each(g.one()), func(item any) bool { return mine[r.hash(item, 0)] })
	}
	r.unsupported("the method %s of a value of the type %s", name, v.kind)
	return nil
}

// intMethod calls a method of an integer or a bool.
func (r *renderer) intMethod(n *big.Int, name string, g given) any {
	switch name {
	case "bit_length":
		g.bind()
		return int64(n.BitLen())
	case "bit_count":
		g.bind()
		count := 0
		for _, word := range n.Bits() {
			count += bits.OnesCount(uint(word))
		}
		return int64(count)
	case "conjugate":
		g.bind()
		return newInt(n)
	case "is_integer":
		g.bind()
		return true
	case "as_integer_ratio":
		g.bind()
		return tupleOf(newInt(n), int64(1))
	}
	r.unsupported("the method %s of an integer", name)
	return nil
}

// floatMethod calls a method of a float.
func (r *renderer) floatMethod(f float64, name string, g given) any {
	switch name {
	case "conjugate":
		g.bind()
		return f
	case "is_integer":
		g.bind()
		return f == math.Trunc(f)
	case "as_integer_ratio":
		g.bind()
		ratio := new(big.Rat).SetFloat64(f)
		return tupleOf(newInt(ratio.Num()), newInt(ratio.Denom()))
	case "hex":
		g.bind()
		return r.floatHex(f)
	}
	r.unsupported("the method %s of a float", name)
	return nil
}

// floatHex implements Python's float.hex.
func (r *renderer) floatHex(f float64) string {
	if f == 0 {
		return map[bool]string{false: "0x0.0p+0", true: "-0x0.0p+0"}[math.Signbit(f)]
	}
	if math.Abs(f) < 0x1p-1022 {
		r.unsupported("hex of a subnormal float")
	}
	digits, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'x', 13, 64), "p")
	return digits + "p" + exponent[:1] + strings.TrimPrefix(exponent[1:], "0")
}
