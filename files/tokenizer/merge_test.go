package tokenizer

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestFewAndManySymbolsMergeAlike compares the two ways of merging, also with a heap that holds only
// a few pairs at a time.
func TestFewAndManySymbolsMergeAlike(t *testing.T) {
	model := family(t, "gpt2").model
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SliceOfN(rapid.SampledFrom([]byte("theinratos  \n(){}._=")), 1, fewSymbols).Draw(t, "word")
		few := model.symbols(nil, word)
		many, limited := slices.Clone(few), slices.Clone(few)
		few = few[:model.mergeFew(few)]
		many = many[:model.mergeMany(&scratch{}, many)]
		limit := rapid.IntRange(2, 8).Draw(t, "heap")
		limited = limited[:model.mergeWithin(&scratch{}, limited, limit)]
		if !slices.Equal(few, many) || !slices.Equal(few, limited) {
			t.Fatalf("%q: %v, %v and, with a heap of %d, %v", word, few, many, limit, limited)
		}
	})
}

// mergeSlowly merges in place by the definition: the lowest rank first, and among equal ranks the
// leftmost pair. It returns the number of remaining symbols.
func mergeSlowly(m *bpe, ids []int32) int {
	for {
		best, at, product := int32(noRank), 0, int32(0)
		for i := range len(ids) - 1 {
			if rank, id := m.merges.get(ids[i], ids[i+1]); rank < best {
				best, at, product = rank, i, id
			}
		}
		if best == noRank {
			return len(ids)
		}
		ids[at] = product
		ids = slices.Delete(ids, at+1, at+2)
	}
}

// TestLongWordsMergeByTheDefinition compares long words with the definition, for several sizes of
// the heap and for words in which most pairs have the same rank.
func TestLongWordsMergeByTheDefinition(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for _, name := range []string{"gpt2", "llama2", "bloom"} {
		model := family(t, name).model
		for _, letters := range []string{"e", "te", " e", "etaoinshr", "abcdefghijklmnopqrstuvwxyz \n"} {
			word := make([]byte, 700)
			for i := range word {
				word[i] = letters[random.IntN(len(letters))]
			}
			symbols := model.symbols(nil, word)
			want := slices.Clone(symbols)
			want = want[:mergeSlowly(model, want)]
			for _, limit := range []int{2, 3, 20, 100, 10_000} {
				got := slices.Clone(symbols)
				if got = got[:model.mergeWithin(&scratch{}, got, limit)]; !slices.Equal(got, want) {
					t.Errorf("%s, %q, a heap of %d: %v, want %v", name, letters, limit, got, want)
				}
			}
		}
	}
}

// TestLongWordsTakeLittleMemory checks that a long word takes at most 6 bytes of memory for each of
// its bytes: 4 for the symbols, which become the IDs, and 1 for the heap.
func TestLongWordsTakeLittleMemory(t *testing.T) {
	const size = 2 << 20
	random := rand.New(rand.NewPCG(9, 10))
	word := make([]byte, size)
	for i := range word {
		word[i] = byte('a' + random.IntN(26))
	}
	for _, name := range []string{"gpt2", "llama2"} {
		model := family(t, name).model
		for kind, word := range map[string][]byte{"random": word, "the same": bytes.Repeat([]byte("e"), size)} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			ids := model.encode(&scratch{}, nil, word)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 6*size || len(ids) == 0 {
				t.Errorf("%s, %s: allocated %d bytes for %d", name, kind, took, size)
			}
		}
	}
}
