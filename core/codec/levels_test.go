package codec

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

// anyLevels draws a random result with levels.
func anyLevels(t *rapid.T, l TensorLayout, levelBits int) TensorResult {
	r := anyResult(t, l, true)
	r.Units = make([]uint8, l.Chunks)
	for c, count := range r.Counts {
		if count > 0 {
			r.Units[c] = rapid.Uint8Range(0, MaxUnit).Draw(t, "unit")
		}
		for i := c * l.K; i < c*l.K+int(count); i++ {
			r.Values[i] *= float32(rapid.IntRange(1, 1<<(levelBits-1)).Draw(t, "level"))
		}
	}
	return r
}

func anyLevelsOf(t *rapid.T, layouts []TensorLayout, levelBits int) []TensorResult {
	results := make([]TensorResult, len(layouts))
	for i, l := range layouts {
		results[i] = anyLevels(t, l, levelBits)
	}
	return results
}

func TestLevelsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layouts := anyLayouts().Draw(t, "layouts")
		levelBits := rapid.IntRange(1, MaxLevelBits).Draw(t, "bits")
		results := anyLevelsOf(t, layouts, levelBits)
		for i, l := range layouts {
			if err := l.CheckLevels(results[i], levelBits); err != nil {
				t.Fatal(err)
			}
		}
		b, err := EncodeLevels(someHeader, layouts, levelBits, results)
		if err != nil {
			t.Fatal(err)
		}
		if size := MaxLevelsSize(layouts, levelBits); len(b) > size {
			t.Fatalf("%d bytes, MaxLevelsSize is %d", len(b), size)
		}
		h, got, err := DecodeLevels(b, layouts, levelBits)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(someHeader, h) + cmp.Diff(results, got); diff != "" {
			t.Fatalf("(-encoded +decoded):\n%s", diff)
		}
	})
}

// TestChangedLevels flips a bit, cuts the bytes or adds some. It checks that the bytes are refused,
// or decode to a different result with exactly these bytes as its encoding.
func TestChangedLevels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layouts := anyLayouts().Draw(t, "layouts")
		levelBits := rapid.IntRange(1, MaxLevelBits).Draw(t, "bits")
		results := anyLevelsOf(t, layouts, levelBits)
		b, err := EncodeLevels(someHeader, layouts, levelBits, results)
		if err != nil {
			t.Fatal(err)
		}
		checkCanonicalLevels(t, changed(t, b), layouts, levelBits)
	})
}

func checkCanonicalLevels(t interface{ Fatalf(string, ...any) }, b []byte, layouts []TensorLayout, levelBits int) {
	f, err := formOfLevels(levelBits)
	if err != nil {
		t.Fatalf("%v", err)
	}
	checkCanonical(t, b, layouts, f)
}

// levelGoldens are goldens of results with levels of the given number of bits, and with units that
// rise and fall.
func levelGoldens(levelBits int) []kept {
	all := goldens()
	for _, g := range all {
		for i, l := range fuzzLayouts {
			r := &g.results[i]
			r.Units = make([]uint8, l.Chunks)
			for c, count := range r.Counts {
				if count > 0 {
					r.Units[c] = [...]uint8{0, MaxUnit, 31}[c%3]
				}
				for j := range int(count) {
					r.Values[c*l.K+j] = float32(1-2*(j&1)) * float32(1+j%(1<<(levelBits-1)))
				}
			}
		}
	}
	return all
}

func FuzzDecodeLevels(f *testing.F) {
	for levelBits := 1; levelBits <= MaxLevelBits; levelBits++ {
		for _, g := range levelGoldens(levelBits) {
			b, err := EncodeLevels(someHeader, fuzzLayouts, levelBits, g.results)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, uint8(levelBits))
		}
	}
	fuzztest.Run(f, func(t *testing.T, b []byte, levelBits uint8) {
		checkCanonicalLevels(t, b, fuzzLayouts, 1+int(levelBits)%MaxLevelBits)
	})
}

func TestGoldenLevels(t *testing.T) {
	for levelBits := 1; levelBits <= 2; levelBits++ {
		for _, g := range levelGoldens(levelBits) {
			got, err := EncodeLevels(someHeader, fuzzLayouts, levelBits, g.results)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, fmt.Sprintf("v3-%s-levels%d.golden", g.name, levelBits), got)
			checkCanonicalLevels(t, got, fuzzLayouts, levelBits)
			if _, _, err := Decode(got, fuzzLayouts, true); !errors.Is(err, errInvalid) {
				t.Errorf("levels were decoded as signs: error %v", err)
			}
		}
	}
}

// TestUnitsAreNear checks that a unit takes one bit if it equals the previous unit.
func TestUnitsAreNear(t *testing.T) {
	l := TensorLayout{Chunks: 800, ChunkSize: 4096, K: 1}
	r := l.NewLevels()
	for c := range r.Counts {
		r.Counts[c], r.Values[c], r.Units[c] = 1, 1, 20
	}
	b, err := EncodeLevels(someHeader, []TensorLayout{l}, 1, []TensorResult{r})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(b) - HeaderSize; got > 800*(1+12+1)/8+3 {
		t.Errorf("%d bytes for 800 chunks of the same unit", got)
	}
}

func TestRefusedLevels(t *testing.T) {
	l := TensorLayout{Chunks: 2, ChunkSize: 8, K: 2}
	good := func(change func(r *TensorResult)) TensorResult {
		r := l.NewLevels()
		r.Counts[0], r.Indices[1], r.Values[0], r.Values[1], r.Units[0] = 2, 5, 2, -1, 7
		change(&r)
		return r
	}
	if err := l.CheckLevels(good(func(*TensorResult) {}), 2); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]TensorResult{
		"no units":                 good(func(r *TensorResult) { r.Units = nil }),
		"unit out of range":        good(func(r *TensorResult) { r.Units[0] = MaxUnit + 1 }),
		"unit of an empty chunk":   good(func(r *TensorResult) { r.Units[1] = 1 }),
		"level out of range":       good(func(r *TensorResult) { r.Values[0] = 3 }),
		"level between two levels": good(func(r *TensorResult) { r.Values[1] = -1.5 }),
		"no level":                 good(func(r *TensorResult) { r.Values[1] = 0 }),
		"more units than chunks":   good(func(r *TensorResult) { r.Units = make([]uint8, 3) }),
	} {
		if _, err := EncodeLevels(someHeader, []TensorLayout{l}, 2, []TensorResult{r}); !errors.Is(err, errInvalid) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := Encode(someHeader, []TensorLayout{l}, true, []TensorResult{good(func(*TensorResult) {})}); !errors.Is(err, errInvalid) {
		t.Error("a result with units was encoded as signs")
	}
	for _, levelBits := range []int{-1, 0, MaxLevelBits + 1} {
		if _, _, err := DecodeLevels(nil, nil, levelBits); !errors.Is(err, errInvalid) {
			t.Errorf("levels of %d bits: error %v", levelBits, err)
		}
	}
	head, err := EncodeLevels(someHeader, nil, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, fields := range map[string][][2]int{
		"distance of a unit": {{0, 1}, {0, 8}, {0, 15}},
		"unit above 127":     {{0, 1}, {1 << 7, 8}, {0b111_1111, 7}, {0, 16}},
		"cut in chunk 1":     {{0, 1}, {1 << 5, 6}, {31, 5}, {0, 5}, {0, 4}, {1, 1}},
	} {
		b := append(bytes.Clone(head), tensorBits(fields...)...)
		_, _, err := DecodeLevels(b, []TensorLayout{l}, 2)
		if !errors.Is(err, errInvalid) {
			t.Errorf("%s: error %v", name, err)
		}
		golden.Message(t, name, err)
	}
}
