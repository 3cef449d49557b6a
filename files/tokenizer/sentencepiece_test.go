package tokenizer

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"google.golang.org/protobuf/encoding/protowire"
)

// pieceModels are in testdata; scripts/reference/sentencepiece_vectors.py makes them.
var pieceModels = []string{
	"unigram", "unigram-bytes", "unigram-defined", "unigram-drawn", "bpe", "bpe-llama", "bpe-gemma", "bpe-words", "bpe-drawn",
}

func pieceModel(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tokenizer, err := ParseSentencePiece(unpack(t, "spm-"+name+".model.gz"))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return tokenizer
}

// TestSentencePiece compares with the library, string by string.
func TestSentencePiece(t *testing.T) {
	for _, name := range pieceModels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokenizer := pieceModel(t, name)
			want, err := os.ReadFile(filepath.Join("testdata", "spm-"+name+".bin"))
			if err != nil {
				t.Fatal(err)
			}
			if len(want) != 8*len(corpus(t)) || len(corpus(t)) < 10_000 {
				t.Fatalf("%d bytes of vectors for %d strings", len(want), len(corpus(t)))
			}
			bad, stride := 0, 1
			if testing.Short() {
				stride = 16
			}
			for i := 0; i < len(corpus(t)) && bad < 8; i += stride {
				if !checkPieces(t, tokenizer, name, i, want[8*i:8*i+8]) {
					bad++
				}
			}
		})
	}
}

func checkPieces(t *testing.T, tokenizer *Tokenizer, name string, i int, want []byte) bool {
	t.Helper()
	text := corpus(t)[i]
	ids, err := tokenizer.EncodeWithSpecial([]byte(text))
	if err != nil {
		t.Errorf("string %d %+q: %v", i, text, err)
		return false
	}
	if !bytes.Equal(idsDigest(ids), want[:4]) {
		t.Errorf("string %d %+q: ids %v differ from the library; see: sentencepiece_vectors.py --show %s %d", i, text, ids, name, i)
		return false
	}
	var decoded [2][]byte
	for j := range decoded {
		if decoded[j], err = tokenizer.Decode(ids); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(streamed(t, tokenizer, nil, ids), ""); got != string(decoded[j]) {
			t.Errorf("string %d, ids %v: streamed %+q, decoded %+q", i, ids, got, decoded[j])
			return false
		}
		slices.Reverse(ids)
	}
	if !bytes.Equal(textDigest(decoded[:]...), want[4:]) {
		t.Errorf("string %d %+q: ids %v decode to %+q, which differs from the library; see: sentencepiece_vectors.py --show %s %d", i, text, ids, decoded, name, i)
		return false
	}
	return true
}

// message writes a message: numbers of fields, each followed by its value.
func message(fields ...any) []byte {
	var raw []byte
	for i := 0; i < len(fields); i += 2 {
		number := protowire.Number(fields[i].(int))
		switch value := fields[i+1].(type) {
		case int:
			raw = protowire.AppendVarint(protowire.AppendTag(raw, number, protowire.VarintType), uint64(value))
		case uint32:
			raw = protowire.AppendFixed32(protowire.AppendTag(raw, number, protowire.Fixed32Type), value)
		case string:
			raw = protowire.AppendString(protowire.AppendTag(raw, number, protowire.BytesType), value)
		case []byte:
			raw = protowire.AppendBytes(protowire.AppendTag(raw, number, protowire.BytesType), value)
		}
	}
	return raw
}

// smallModel is a model with the given pieces and additional fields.
func smallModel(more ...any) []byte {
	const minusOne = uint32(0xbf800000)
	return message(append([]any{
		1, message(1, "<unk>", 3, pieceUnknown), 1, message(1, "<s>", 3, pieceControl), 1, message(1, "▁", 2, minusOne),
		1, message(1, "a", 2, minusOne), 1, message(1, "b", 2, minusOne), 1, message(1, "ab", 2, minusOne), 1, message(1, "x y", 3, pieceDefined),
	}, more...)...)
}

func TestSentencePieceRefusesUnsupportedModels(t *testing.T) {
	bpe := []any{2, message(3, modelBPE)}
	for _, test := range []struct {
		name string
		raw  []byte
	}{
		{"nothing", nil},
		{"pointer", []byte("version https://git-lfs.github.com/spec/v1\n")},
		{"JSON", []byte(small())},
		{"cut", smallModel()[:30]},
		{"another field", smallModel(9, 1)},
		{"wire type", smallModel(3, 1)},
		{"words", smallModel(2, message(3, 3))},
		{"suffix", smallModel(2, message(24, 1))},
		{"blanks", smallModel(3, message(5, 0))},
		{"normalizer field", smallModel(3, message(9, 0))},
		{"charsmap", smallModel(3, message(2, "abc"))},
		{"denormalizer", smallModel(5, message(2, "abc"))},
		{"bytes", smallModel(2, message(35, 1))},
		{"byte", smallModel(1, message(1, "<0x41>", 3, pieceByte))},
		{"no byte", smallModel(1, message(1, "<0x4g>", 3, pieceByte))},
		{"twice", smallModel(1, message(1, "a"))},
		{"unknown twice", smallModel(1, message(1, "?", 3, pieceUnknown))},
		{"empty", smallModel(1, message(2, uint32(0)))},
		{"no text", smallModel(1, message(1, "\xff"))},
		{"score", smallModel(1, message(1, "c", 2, uint32(0x7fc00000)))},
		{"unused", smallModel(1, message(1, "c", 3, pieceUnused))},
		{"type", smallModel(1, message(1, "c", 3, 77))},
		{"piece field", smallModel(1, message(1, "c", 4, 77))},
		{"merge of strangers", smallModel(append(bpe, 1, message(1, "ac"))...)},
		{"merge of many", smallModel(append(bpe, 1, message(1, strings.Repeat("a", 513)))...)},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseSentencePiece(test.raw)
			if !errors.Is(err, errUnsupported) {
				t.Errorf("got %v, want errUnsupported", err)
			}
			golden.Message(t, test.name, err)
		})
	}
}

// TestSentencePieceNames looks up pieces by name.
func TestSentencePieceNames(t *testing.T) {
	tokenizer, err := ParseSentencePiece(smallModel())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int32{"<s>": 1, "a": 3, "x y": 6} {
		if id, found := tokenizer.ID(name); !found || id != want {
			t.Errorf("%s: got %d, %v", name, id, found)
		}
	}
	if added, special := tokenizer.Added(1); !added || !special {
		t.Errorf("<s> is added: %v, special: %v", added, special)
	}
	if ids := encode(t, tokenizer, " <s>  abx  yb"); !slices.Equal(ids, []int32{2, 0, 2, 5, 0, 2, 0, 4}) {
		t.Errorf("got %v; want []int32{2, 0, 2, 5, 0, 2, 0, 4}", ids)
	}
}

// FuzzSentencePiece checks that invalid models are errors and never panics, and that all ids are in
// the model.
func FuzzSentencePiece(f *testing.F) {
	f.Add(smallModel(), "ab  x y c")
	f.Add(smallModel(2, message(3, modelBPE, 44, "?"), 3, message(2, charsmapOf(letterUnits(2), "A\x00bc\x00"), 3, 0, 4, 0)), "abc x yab")
	fuzztest.Run(f, func(t *testing.T, raw []byte, text string) {
		tokenizer, err := ParseSentencePiece(raw)
		if err != nil || len(text) > 1000 {
			return
		}
		ids, err := tokenizer.Encode([]byte(text))
		if err != nil {
			return
		}
		want, err := tokenizer.Decode(ids)
		if err != nil {
			t.Fatalf("ids %v of %q: %v", ids, text, err)
		}
		if got := strings.Join(streamed(t, tokenizer, nil, ids), ""); got != string(want) {
			t.Fatalf("ids %v: streamed %+q, decoded %+q", ids, got, want)
		}
	})
}
