package tokenizer

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// families are the tokenizers in testdata; scripts/reference/tokenizer_vectors.py makes them.
var families = []string{
	"gpt2", "roberta", "llama2", "mistral", "gemma", "llama3", "qwen2", "deepseek2", "deepseek3", "o200k", "falcon", "bloom", "kimi", "unigram", "words",
	"t5", "xlmr", "bert", "bertcased", "odd1", "odd2", "odd3", "odd4", "odd5",
}

func unpack(t testing.TB, name string) []byte {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	reader, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func family(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tokenizer, err := Parse(unpack(t, name+".json.gz"))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return tokenizer
}

var corpusOnce = sync.OnceValues(func() ([]string, error) {
	file, err := os.Open(filepath.Join("testdata", "corpus.jsonl.gz"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	reader, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	var all []string
	for decoder := json.NewDecoder(reader); ; {
		var text string
		if err := decoder.Decode(&text); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
})

func corpus(t testing.TB) []string {
	t.Helper()
	all, err := corpusOnce()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func idsDigest(lists ...[]int32) []byte {
	hash := sha256.New()
	for _, ids := range lists {
		_ = binary.Write(hash, binary.LittleEndian, uint32(len(ids)))
		_ = binary.Write(hash, binary.LittleEndian, ids)
	}
	return hash.Sum(nil)[:4]
}

func textDigest(texts ...[]byte) []byte {
	hash := sha256.New()
	for _, text := range texts {
		_ = binary.Write(hash, binary.LittleEndian, uint32(len(text)))
		hash.Write(text)
	}
	return hash.Sum(nil)[:4]
}

// TestReference compares with the reference implementation, string by string.
func TestReference(t *testing.T) {
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokenizer := family(t, name)
			want, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
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
			for i, text := range corpus(t) {
				if i%stride != 0 {
					continue
				}
				ok := checkString(t, tokenizer, name, i, text, want[8*i:8*i+8])
				if !ok {
					if bad++; bad > 8 {
						t.Fatal("and perhaps more")
					}
				}
			}
		})
	}
}

func checkString(t *testing.T, tokenizer *Tokenizer, name string, i int, text string, want []byte) bool {
	t.Helper()
	plain, err := tokenizer.Encode([]byte(text))
	if err != nil {
		t.Errorf("string %d %+q: %v", i, text, err)
		return false
	}
	special, err := tokenizer.EncodeWithSpecial([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(idsDigest(plain, special), want[:4]) {
		t.Errorf("string %d %+q: ids %v, with special tokens %v, differ from the reference; see: tokenizer_vectors.py --show %s %d", i, text, plain, special, name, i)
		return false
	}
	backwards := slices.Clone(plain)
	slices.Reverse(backwards)
	var decoded [3][]byte
	for j, decode := range []func() ([]byte, error){
		func() ([]byte, error) { return tokenizer.Decode(special) },
		func() ([]byte, error) { return tokenizer.DecodeSkipSpecial(special) },
		func() ([]byte, error) { return tokenizer.Decode(backwards) },
	} {
		text, err := decode()
		if err != nil {
			t.Fatal(err)
		}
		decoded[j] = lossy(text)
	}
	if !bytes.Equal(textDigest(decoded[:]...), want[4:]) {
		t.Errorf("string %d %+q: ids %v decode to %+q, which differs from the reference; see: tokenizer_vectors.py --show %s %d", i, text, plain, decoded, name, i)
		return false
	}
	return true
}

// TestStreamsAreDecodedTexts streams the ids of the reference vectors, forwards and in reverse. The
// reversed text is mostly broken.
func TestStreamsAreDecodedTexts(t *testing.T) {
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokenizer := family(t, name)
			for i := 0; i < len(corpus(t)); i += 16 {
				ids, err := tokenizer.EncodeWithSpecial([]byte(corpus(t)[i]))
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					want, err := tokenizer.DecodeSkipSpecial(ids)
					if err != nil {
						t.Fatal(err)
					}
					if got := strings.Join(streamed(t, tokenizer, nil, ids), ""); got != string(want) {
						t.Fatalf("string %d, ids %v: streamed %+q, decoded %+q", i, ids, got, want)
					}
					slices.Reverse(ids)
				}
			}
		})
	}
}

// TestScannersAreTheirPatterns compares scanners with the regular expressions that they replace.
func TestScannersAreTheirPatterns(t *testing.T) {
	for expression, scan := range scanners {
		slow, err := compilePattern("pattern", expression)
		if err != nil {
			t.Fatal(err)
		}
		matches := func(f finder, text string) (all [][2]int) {
			if err := f.each([]byte(text), func(start, end int) error {
				all = append(all, [2]int{start, end})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return all
		}
		joined := strings.Join(corpus(t), "")
		for _, text := range append(corpus(t), joined) {
			if got, want := matches(scan, text), matches(slow, text); !slices.Equal(got, want) {
				t.Fatalf("%s in %.200q:\n got %v\nwant %v", expression, text, got[:min(20, len(got))], want[:min(20, len(want))])
			}
		}
	}
}
