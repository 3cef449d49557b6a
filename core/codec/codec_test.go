package codec

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

// anyLayouts draws the tensors of a small model.
func anyLayouts() *rapid.Generator[[]TensorLayout] {
	one := rapid.Custom(func(t *rapid.T) TensorLayout {
		size := rapid.SampledFrom([]int{1, 2, 3, 29, 64, 2500, 4096, maxChunkSize}).Draw(t, "chunk size")
		return TensorLayout{
			Chunks:    rapid.IntRange(1, 5).Draw(t, "chunks"),
			ChunkSize: size,
			K:         rapid.IntRange(1, min(size, 9)).Draw(t, "k"),
		}
	})
	return rapid.SliceOfN(one, 0, 4)
}

// anyResult draws a random result. About half of the tensors are full, or have empty and full
// chunks.
func anyResult(t *rapid.T, l TensorLayout, quantized bool) TensorResult {
	r := l.NewResult()
	full, either := rapid.Bool().Draw(t, "full"), rapid.Bool().Draw(t, "either")
	for c := range l.Chunks {
		count := l.K
		if !full && either {
			count *= rapid.IntRange(0, 1).Draw(t, "sends")
		} else if !full {
			count = rapid.IntRange(0, l.K).Draw(t, "count")
		}
		r.Counts[c] = uint16(count)
		drawn := map[int]bool{}
		for len(drawn) < count {
			drawn[rapid.IntRange(0, l.ChunkSize-1).Draw(t, "index")] = true
		}
		at := c * l.K
		for index := range l.ChunkSize {
			if !drawn[index] {
				continue
			}
			r.Indices[at] = uint16(index)
			r.Values[at] = 1
			if !quantized {
				r.Values[at] = rapid.SampledFrom([]float32{math.MaxFloat32, math.SmallestNonzeroFloat32, 0.1, 1}).Draw(t, "value")
			}
			if rapid.Bool().Draw(t, "negative") {
				r.Values[at] = -r.Values[at]
			}
			at++
		}
	}
	return r
}

var someHeader = Header{
	RunHash: [32]byte{1, 2, 3}, Step: 0x01020304, BatchStart: 5, BatchEnd: 1 << 40, Trainer: [32]byte{31: 9},
	Momentum: [32]byte{4, 31: 7}, Previous: 0x01020302, Precision: 2, Batch: [32]byte{6, 31: 5},
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layouts := anyLayouts().Draw(t, "layouts")
		quantized := rapid.Bool().Draw(t, "quantized")
		results := make([]TensorResult, len(layouts))
		full := true
		for i, l := range layouts {
			results[i] = anyResult(t, l, quantized)
			full = full && spell(l, results[i].Counts).full
		}
		b, err := Encode(someHeader, layouts, quantized, results)
		if err != nil {
			t.Fatal(err)
		}
		if size := fullSize(layouts, quantized); full && len(b) != size {
			t.Fatalf("%d bytes, FullSize is %d", len(b), size)
		}
		if size := MaxSize(layouts, quantized); len(b) > size {
			t.Fatalf("%d bytes, MaxSize is %d", len(b), size)
		}
		h, got, err := Decode(b, layouts, quantized)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(someHeader, h) + cmp.Diff(results, got); diff != "" {
			t.Fatalf("(-encoded +decoded):\n%s", diff)
		}
		if alone, _, err := decodeHeader(b); err != nil || alone != someHeader {
			t.Fatalf("header alone: %v, %v", alone, err)
		}
	})
}

// TestChangedBytes flips a bit, cuts the bytes or adds some. It checks that the bytes are refused,
// or decode to a different value with exactly these bytes as its encoding.
func TestChangedBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layouts := anyLayouts().Draw(t, "layouts")
		quantized := rapid.Bool().Draw(t, "quantized")
		results := make([]TensorResult, len(layouts))
		for i, l := range layouts {
			results[i] = anyResult(t, l, quantized)
		}
		b, err := Encode(someHeader, layouts, quantized, results)
		if err != nil {
			t.Fatal(err)
		}
		checkCanonical(t, changed(t, b), layouts, formOf(quantized))
	})
}

// changed flips a bit of b, cuts b, or makes it longer.
func changed(t *rapid.T, b []byte) []byte {
	switch at := rapid.IntRange(0, len(b)-1).Draw(t, "at"); rapid.IntRange(0, 2).Draw(t, "change") {
	case 0:
		b[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		return b
	case 1:
		return b[:at]
	default:
		return append(b, 0)
	}
}

func checkCanonical(t interface{ Fatalf(string, ...any) }, b []byte, layouts []TensorLayout, f form) {
	h, results, err := decode(b, layouts, f)
	if err != nil {
		if !errors.Is(err, errInvalid) || results != nil {
			t.Fatalf("results %v with error %v", results, err)
		}
		return
	}
	again, err := encode(h, layouts, f, results)
	if err != nil || !bytes.Equal(again, b) {
		t.Fatalf("decoded bytes encode differently (%v):\n%x\n%x", err, b, again)
	}
}

// fuzzLayouts has sets of zero bits, one word and two words, and indices that are written one
// by one.
var fuzzLayouts = []TensorLayout{{1, 1, 1}, {3, 29, 4}, {2, 4096, 8}, {1, maxChunkSize, 3}}

func FuzzDecode(f *testing.F) {
	for _, quantized := range []bool{false, true} {
		for _, g := range goldens() {
			b, err := Encode(someHeader, fuzzLayouts, quantized, g.results)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, quantized)
		}
	}
	fuzztest.Run(f, func(t *testing.T, b []byte, quantized bool) { checkCanonical(t, b, fuzzLayouts, formOf(quantized)) })
}

type kept struct {
	name    string
	results []TensorResult
}

// goldens returns an empty, a partly filled and a full result of fuzzLayouts.
func goldens() []kept {
	var all []kept
	for _, g := range []struct {
		name  string
		count func(c, k int) int
	}{
		{"empty", func(c, k int) int { return 0 }},
		{"partial", func(c, k int) int { return (c + 1) % (k + 1) }},
		{"full", func(c, k int) int { return k }},
	} {
		next := kept{name: g.name}
		for _, l := range fuzzLayouts {
			r := l.NewResult()
			for c := range l.Chunks {
				count := g.count(c, l.K)
				r.Counts[c] = uint16(count)
				for i := range count {
					r.Indices[c*l.K+i] = uint16((i+1)*l.ChunkSize/l.K - 1)
					r.Values[c*l.K+i] = float32(1-2*(i&1)) * (1 + float32(c))
				}
			}
			next.results = append(next.results, r)
		}
		all = append(all, next)
	}
	return all
}

// TestGoldenBytes checks the bytes of version 2. Existing files must remain readable, or be refused
// by their version number.
func TestGoldenBytes(t *testing.T) {
	for _, quantized := range []bool{true, false} {
		for _, g := range goldens() {
			kind := map[bool]string{true: "signs", false: "values"}[quantized]
			got, err := Encode(someHeader, fuzzLayouts, quantized, g.results)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, "v3-"+g.name+"-"+kind+".golden", got)
			checkCanonical(t, got, fuzzLayouts, formOf(quantized))
			old, err := os.ReadFile(filepath.Join("testdata", "v2-"+g.name+"-"+kind+".golden"))
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = Decode(old, fuzzLayouts, quantized)
			if !errors.Is(err, errInvalid) {
				t.Errorf("%s of version 2: error %v", g.name, err)
			}
			golden.Message(t, g.name+" "+kind+" of version 2", err)
		}
	}
}

// TestNothingTakesABit checks that a chunk without sent coefficients takes one bit.
func TestNothingTakesABit(t *testing.T) {
	l := []TensorLayout{{Chunks: 8000, ChunkSize: 4096, K: 8}}
	r := l[0].NewResult()
	b, err := Encode(someHeader, l, true, []TensorResult{r})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(b) - HeaderSize; got > 1001 {
		t.Errorf("%d bytes for 8000 empty chunks", got)
	}
	r.Counts[7], r.Indices[7*8], r.Values[7*8] = 1, 5, 1
	if b, err = Encode(someHeader, l, true, []TensorResult{r}); err != nil {
		t.Fatal(err)
	}
	if got := len(b) - HeaderSize; got > 1003 {
		t.Errorf("%d bytes for 7999 empty chunks and one of one entry", got)
	}
}

// TestHeaderWithoutAudits checks that the header of a run without audits contains zeros in the
// fields for audits.
func TestHeaderWithoutAudits(t *testing.T) {
	h := someHeader
	h.Momentum, h.Previous, h.Precision, h.Batch = [32]byte{}, 0, 0, [32]byte{}
	b, err := Encode(h, nil, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := decodeHeader(b); err != nil || got != h {
		t.Errorf("%v, error %v", got, err)
	}
}

// tensorBits writes pairs of value and width in bits and pads them to a byte.
func tensorBits(fields ...[2]int) []byte {
	var w bitWriter
	for _, f := range fields {
		w.write(uint64(f[0]), f[1])
	}
	w.align()
	return w.bytes
}

func TestRefusedBytes(t *testing.T) {
	ranked := []TensorLayout{{Chunks: 1, ChunkSize: 8, K: 2}}            // counts of 2 bits, sets of 2 of 5
	listed := []TensorLayout{{Chunks: 1, ChunkSize: maxChunkSize, K: 3}} // counts of 2 bits, indices of 16
	if !ranked[0].ranked() || listed[0].ranked() {
		t.Fatal("the layouts do not have the encodings that the cases expect")
	}
	head, err := Encode(someHeader, nil, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	good := tensorBits([2]int{0, 1}, [2]int{27, 5}, [2]int{1, 2})
	header := func(at int, changed ...byte) []byte {
		b := append(bytes.Clone(head), good...)
		copy(b[at:], changed)
		return b
	}
	tensor := func(b ...byte) []byte { return append(bytes.Clone(head), b...) }
	if _, _, err := Decode(tensor(good...), ranked, true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		layouts []TensorLayout
		bytes   []byte
	}{
		{"nothing", ranked, nil},
		{"short header", ranked, head[:HeaderSize-1]},
		{"magic", ranked, header(0, 'X')},
		{"version", ranked, header(4, 4)},
		{"flags", ranked, header(5, byte(lastForm)+1)},
		{"levels for signs", ranked, header(5, 3)},
		{"values for signs", ranked, header(5, 0)},
		{"empty batch", ranked, header(42, make([]byte, 16)...)},
		{"previous without root", ranked, header(90, make([]byte, 32)...)},
		{"previous not before", ranked, header(122, 4, 3, 2, 1)},
		{"root without type", ranked, header(126, 0)},
		{"another type", ranked, header(126, 3)},
		{"no tensor", ranked, head},
		{"cut", listed, tensor(make([]byte, 6)...)},
		{"too long", ranked, tensor(append(good, 0, 0)...)},
		{"trailing byte", ranked, tensor(append(good, 0)...)},
		{"padding", ranked, tensor(0b1000_0001)},
		{"rank", ranked, tensor(tensorBits([2]int{0, 1}, [2]int{28, 5}, [2]int{1, 2})...)},
		{"descending", listed, tensor(tensorBits([2]int{0, 1}, [2]int{3, 16}, [2]int{2, 16}, [2]int{4, 16}, [2]int{0, 3})...)},
		{"repeated", listed, tensor(tensorBits([2]int{0, 1}, [2]int{3, 16}, [2]int{3, 16}, [2]int{4, 16}, [2]int{0, 3})...)},
		{"count above k", listed, tensor(tensorBits([2]int{0b111, 3}, [2]int{3, 2}, [2]int{0, 32}, [2]int{0, 8})...)},
		{"full and said to be full or empty", ranked, tensor(tensorBits([2]int{0b101, 3}, [2]int{3, 5}, [2]int{2, 2})...)},
		{"full and spelled out", ranked, tensor(tensorBits([2]int{0b111, 3}, [2]int{1, 1}, [2]int{3, 5}, [2]int{2, 2})...)},
		{"empty and spelled out", ranked, tensor(tensorBits([2]int{0b011, 3})...)},
	} {
		_, _, err := Decode(c.bytes, c.layouts, true)
		if !errors.Is(err, errInvalid) {
			t.Errorf("%s: error %v", c.name, err)
		}
		golden.Message(t, c.name, err)
	}
}

func TestRefusedValuesAndResults(t *testing.T) {
	l := TensorLayout{Chunks: 1, ChunkSize: 4, K: 2}
	for _, v := range []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN()} {
		r := l.NewResult()
		r.Counts[0], r.Values[0] = 1, float32(v)
		if _, err := Encode(someHeader, []TensorLayout{l}, false, []TensorResult{r}); !errors.Is(err, errInvalid) {
			t.Errorf("encode %v: error %v", v, err)
		}
		r.Values[0] = 1
		b, err := Encode(someHeader, []TensorLayout{l}, false, []TensorResult{r})
		if err != nil {
			t.Fatal(err)
		}
		// The value follows three flags, a count of 1 bit and an index of 2 bits.
		w := bitWriter{bytes: bytes.Clone(b[:HeaderSize])}
		w.write(0b111, 3)
		w.write(0, 1)
		w.write(0, 2)
		w.write(uint64(math.Float32bits(float32(v))), 32)
		w.align()
		if _, _, err := Decode(w.bytes, []TensorLayout{l}, false); !errors.Is(err, errInvalid) {
			t.Errorf("decode %v: error %v", v, err)
		}
	}
	for name, r := range map[string]TensorResult{
		"none":            {},
		"few places":      {Counts: []uint16{1}, Indices: []uint16{0}, Values: []float32{1}},
		"count above k":   {Counts: []uint16{3}, Indices: []uint16{0, 1}, Values: []float32{1, 1}},
		"index past end":  {Counts: []uint16{1}, Indices: []uint16{4, 0}, Values: []float32{1, 0}},
		"not ascending":   {Counts: []uint16{2}, Indices: []uint16{1, 1}, Values: []float32{1, 1}},
		"place not empty": {Counts: []uint16{1}, Indices: []uint16{1, 2}, Values: []float32{1, 0}},
		"value not empty": {Counts: []uint16{1}, Indices: []uint16{1, 0}, Values: []float32{1, 1}},
	} {
		if _, err := Encode(someHeader, []TensorLayout{l}, true, []TensorResult{r}); !errors.Is(err, errInvalid) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for _, bad := range []TensorLayout{{}, {1, 0, 1}, {1, 4, 5}, {1, maxChunkSize + 1, 1}, {1, maxChunkSize, maxChunkSize}, {math.MaxInt32, 4, 4}} {
		if _, _, err := Decode(make([]byte, HeaderSize), []TensorLayout{bad}, true); !errors.Is(err, errInvalid) {
			t.Errorf("layout %v: error %v", bad, err)
		}
	}
	if _, err := Encode(Header{}, nil, true, nil); !errors.Is(err, errInvalid) {
		t.Error("an empty batch was encoded")
	}
	if _, err := Encode(someHeader, []TensorLayout{l}, true, nil); !errors.Is(err, errInvalid) {
		t.Error("no result for a layout was encoded")
	}
}

// fullSize returns the size in bytes of a result with K entries in every chunk, the usual case.
func fullSize(layouts []TensorLayout, quantized bool) int {
	total := HeaderSize
	for _, l := range layouts {
		total += l.fullSize(formOf(quantized))
	}
	return total
}
