package chat

import (
	"fmt"
	"math"
	"math/big"
)

const rangeType = "range"

// maxRange is the limit of jinja2's sandbox.
const maxRange = 100_000

// newRange returns the range of integers that starts at from and ends before to.
func (r *renderer) newRange(from, to, step int64) *view {
	v := &view{kind: rangeType, from: from, to: to, step: step}
	for at := from; step > 0 && at < to || step < 0 && at > to; at += step {
		if len(v.items) == maxRange {
			r.tooMuch("a range of more than %d numbers", maxRange)
		}
		v.items = append(v.items, at)
		if next := at + step; (next > at) != (step > 0) { // beyond an int64
			break
		}
	}
	r.spend(16 * len(v.items))
	return v
}

// span implements the function range.
func (r *renderer) span(g given) any {
	args := g.bind("", "", "")
	from, to, step := int64(0), g.whole(args[0]), int64(1)
	if len(g.placed) > 1 {
		from, to = to, g.whole(args[1])
	}
	if len(g.placed) > 2 {
		step = g.whole(args[2])
	}
	if step == 0 {
		r.wrong("a range in steps of 0")
	}
	return r.newRange(from, to, step)
}

// rangeText returns a range as Python shows it.
func (v *view) rangeText() string {
	if v.step == 1 {
		return fmt.Sprintf("range(%d, %d)", v.from, v.to)
	}
	return fmt.Sprintf("range(%d, %d, %d)", v.from, v.to, v.step)
}

// slicedRange returns a slice of a range, which is also a range.
func (r *renderer) slicedRange(v *view, from, to, by *int64) *view {
	first, end, step := r.sliceBounds(int64(len(v.items)), from, to, by)
	if step > maxRange || step < -maxRange {
		r.unsupported("a slice of a range in steps of %d", step)
	}
	for _, n := range []int64{v.from, v.to, v.step} {
		if n > math.MaxInt32 || n < math.MinInt32 {
			r.unsupported("a slice of a range with the number %d", n)
		}
	}
	return r.newRange(v.from+first*v.step, v.from+end*v.step, v.step*step)
}

// sliceBounds returns the first index of a slice of n items, the index after its last item, and its
// step. As in Python, indices outside of the list are clamped.
func (r *renderer) sliceBounds(n int64, from, to, by *int64) (first, end, step int64) {
	if step = 1; by != nil {
		step = *by
	}
	if step == 0 {
		r.wrong("a slice in steps of 0")
	}
	low, high := int64(0), n
	first, end = low, high
	if step < 0 {
		low, high = -1, n-1
		first, end = high, low
	}
	clamp := func(bound *int64, byDefault int64) int64 {
		if bound == nil {
			return byDefault
		}
		at := *bound
		if at < 0 {
			at += n
		}
		return min(max(at, low), high)
	}
	return clamp(from, first), clamp(to, end), step
}

// clamped returns an integer of any size as the nearest int64.
func clamped(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return math.MinInt64 + 1
	}
	return math.MaxInt64
}

// slice implements value[from:to:step].
func (r *renderer) slice(e slice, s *scope) any {
	of := r.eval(e.of, s)
	var bounds [3]*int64
	valid := true
	for i, bound := range []expression{e.from, e.to, e.step} {
		if bound == nil {
			continue
		}
		value := r.eval(bound, s)
		if n, isWhole := whole(value); isWhole {
			at := clamped(n)
			bounds[i] = &at
		} else if value != nil {
			valid = false
		}
	}
	_, isText := str(of)
	whole, isList := of.(*list)
	v, isView := of.(*view)
	isRange := isView && v.kind == rangeType
	if (!valid || !isText && !isList && !isRange) && e.constant { // depending on its place, jinja2 computes or refuses it
		r.unsupported("a slice of a constant of the type %s, or with bounds that are not integers", typeName(of))
	}
	if !valid || !isText && !isList && !isRange {
		r.wrong("a slice of a value of the type %s, or with bounds that are not integers", typeName(of))
	}
	if isRange {
		return r.slicedRange(v, bounds[0], bounds[1], bounds[2])
	}
	chosen := r.sliced(r.each(of), bounds[0], bounds[1], bounds[2])
	if isText {
		return like(of, r.joined(chosen, ""))
	}
	return &list{items: chosen, tuple: whole.tuple}
}

// sliced returns a slice of items.
func (r *renderer) sliced(items []any, from, to, by *int64) (chosen []any) {
	n := int64(len(items))
	first, end, step := r.sliceBounds(n, from, to, by)
	r.spend(16 * len(items))
	for at := first; step > 0 && at < end || step < 0 && at > end; at += step {
		r.step(1)
		chosen = append(chosen, items[at])
		if step > n || step < -n {
			break
		}
	}
	return chosen
}
