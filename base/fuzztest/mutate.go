package fuzztest

import (
	"encoding/binary"
	"math"
	"reflect"
)

const (
	mostNew   = 256     // bytes of a random text
	mostBytes = 1 << 20 // bytes of a mutated text
)

// edges are numbers at which decoders tend to fail: limits of types, and lengths beyond the end.
var edges = []uint64{
	0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 1023, 1024, 4095, 4096, math.MaxInt16, math.MaxInt16 + 1, math.MaxUint16,
	math.MaxUint16 + 1, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64,
}

// next returns a new input: in four of five cases a seed with some values changed, otherwise random
// values.
func (g *generator) next() []reflect.Value {
	var from []reflect.Value
	if len(g.seeds) > 0 && g.random.IntN(5) > 0 {
		from = g.seeds[g.random.IntN(len(g.seeds))]
	}
	chosen := g.random.IntN(len(g.types))
	input := make([]reflect.Value, len(g.types))
	for i, t := range g.types {
		switch {
		case from != nil && i != chosen && g.random.IntN(3) > 0:
			input[i] = from[i]
		case isText(t):
			input[i] = reflect.ValueOf(g.text(i, from)).Convert(t)
		default:
			input[i] = g.number(t)
		}
	}
	return input
}

// text returns a random text, or the text of a seed after one to four mutations.
func (g *generator) text(argument int, from []reflect.Value) []byte {
	if from == nil {
		return g.bytes(g.random.IntN(1 + g.random.IntN(mostNew)))
	}
	b := []byte(textOf(from[argument]))
	for range 1 + g.random.IntN(4) {
		b = g.mutate(b, argument)
	}
	return b[:min(len(b), mostBytes)]
}

func textOf(v reflect.Value) string {
	if v.Kind() == reflect.String {
		return v.String()
	}
	return string(v.Bytes())
}

func (g *generator) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.random.Uint32())
	}
	return b
}

// mutate makes one change to a text.
func (g *generator) mutate(b []byte, argument int) []byte {
	at := g.random.IntN(len(b) + 1)
	end := at + g.random.IntN(len(b)-at+1)
	if g.random.IntN(2) == 0 {
		end = min(len(b), at+g.random.IntN(9))
	}
	switch g.random.IntN(8) {
	case 0: // flip a bit
		if at < len(b) {
			b[at] ^= 1 << g.random.IntN(8)
		}
	case 1: // overwrite a byte
		if at < len(b) {
			b[at] = byte(g.random.Uint32())
		}
	case 2: // overwrite a number
		var number [8]byte
		width := 1 << g.random.IntN(4)
		binary.LittleEndian.PutUint64(number[:], edges[g.random.IntN(len(edges))])
		if g.random.IntN(2) == 0 {
			binary.BigEndian.PutUint64(number[:], edges[g.random.IntN(len(edges))])
			copy(number[:], number[8-width:])
		}
		copy(b[at:], number[:width])
	case 3: // cut the end off
		b = b[:at]
	case 4: // remove a part
		b = append(b[:at:at], b[end:]...)
	case 5: // repeat a part
		b = append(b[:end:end], b[at:]...)
	case 6: // insert random bytes
		b = append(append(b[:at:at], g.bytes(1+g.random.IntN(8))...), b[at:]...)
	case 7: // append the end of another seed
		other := textOf(g.seeds[g.random.IntN(len(g.seeds))][argument])
		b = append(b[:at:at], other[g.random.IntN(len(other)+1):]...)
	}
	return b
}

// number returns a value at an edge of its type or a random one.
func (g *generator) number(t reflect.Type) reflect.Value {
	n := edges[g.random.IntN(len(edges))]
	switch g.random.IntN(4) {
	case 0:
		n = g.random.Uint64()
	case 1:
		n = g.random.Uint64N(100)
	case 2:
		n = -n
	}
	v := reflect.New(t).Elem()
	switch {
	case t.Kind() == reflect.Bool:
		v.SetBool(n&1 == 1)
	case v.CanInt():
		v.SetInt(int64(n) << (64 - t.Bits()) >> (64 - t.Bits()))
	case v.CanUint():
		v.SetUint(n << (64 - t.Bits()) >> (64 - t.Bits()))
	case t.Kind() == reflect.Float32:
		v.SetFloat(float64(math.Float32frombits(uint32(n))))
	case t.Kind() == reflect.Float64:
		v.SetFloat(math.Float64frombits(n))
	}
	return v
}
