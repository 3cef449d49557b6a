package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// answer is the reference implementation's result for a text.
type answer struct {
	text             string
	ids, special     []int32
	decoded, skipped string  // of special
	others           []int32 // ids in another order
	othersSkipped    string
}

func (a *answer) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&a.text, &a.ids, &a.special, &a.decoded, &a.skipped, &a.others, &a.othersSkipped})
}

// configuration is a tokenizer.json with answers.
type configuration struct {
	name, file string
	answers    []answer
}

func (c *configuration) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&c.name, &c.file, &c.answers})
}

// tally counts the outcomes of a comparison.
type tally struct {
	configurations, pairs, equal, differing int
	refused                                 map[string]int // pairs by reason
}

// varying are the parts of a refusal that are not part of its reason.
var varying = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\[\d*\]|\d+`)

func (c *tally) refuse(err error, pairs int) {
	reason, _, _ := strings.Cut(varying.ReplaceAllString(strings.TrimPrefix(err.Error(), errUnsupported.Error()+": "), "…"), "\n")
	c.refused[reason] += pairs
}

// differ counts a difference, and reports the first ones.
func (c *tally) differ(t *testing.T, format string, args ...any) {
	t.Helper()
	if c.differing++; c.differing <= 12 {
		t.Errorf(format, args...)
	}
}

func (c *tally) log(t *testing.T) {
	t.Logf("%d configurations, %d pairs: %d equal, %d differing", c.configurations, c.pairs, c.equal, c.differing)
	for _, reason := range slices.Sorted(maps.Keys(c.refused)) {
		t.Logf("%d refused: %s", c.refused[reason], reason)
	}
}

// compareFile compares with the answers in a file of scripts/reference/tokenizer_random.py.
func compareFile(t *testing.T, path string, counts *tally) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	reader, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := json.NewDecoder(reader); ; {
		var c configuration
		if err := decoder.Decode(&c); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		counts.compare(t, c)
	}
}

func (c *tally) compare(t *testing.T, of configuration) {
	t.Helper()
	c.configurations++
	c.pairs += len(of.answers)
	tokenizer, err := Parse([]byte(of.file))
	if errors.Is(err, errUnsupported) {
		c.refuse(err, len(of.answers))
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", of.name, err)
	}
	for _, want := range of.answers {
		got, err := answerOf(tokenizer, want.text, want.others)
		switch {
		case errors.Is(err, errUnsupported):
			c.refuse(err, 1)
		case err != nil:
			c.differ(t, "%s: %q: %v\n%s", of.name, want.text, err, of.file)
		case fmt.Sprint(got) == fmt.Sprint(want):
			c.equal++
		default:
			c.differ(t, "%s: got  %+q\nwant %+q\n%s", of.name, got, want, of.file)
		}
	}
}

// answerOf returns a tokenizer's result for a text and other ids. It is an error if streaming and
// decoding give different texts.
func answerOf(tokenizer *Tokenizer, text string, others []int32) (a answer, err error) {
	a.text, a.others = text, others
	if a.ids, err = tokenizer.Encode([]byte(text)); err != nil {
		return a, err
	}
	if a.special, err = tokenizer.EncodeWithSpecial([]byte(text)); err != nil {
		return a, err
	}
	for _, way := range []struct {
		to     *string
		decode func([]int32) ([]byte, error)
		ids    []int32
	}{{&a.decoded, tokenizer.Decode, a.special}, {&a.skipped, tokenizer.DecodeSkipSpecial, a.special}, {&a.othersSkipped, tokenizer.DecodeSkipSpecial, others}} {
		decoded, err := way.decode(way.ids)
		if err != nil {
			return a, err
		}
		*way.to = string(lossy(decoded))
	}
	for _, stream := range []struct {
		ids  []int32
		want string
	}{{a.special, a.skipped}, {others, a.othersSkipped}} {
		got, err := streamAll(tokenizer, stream.ids)
		if err != nil {
			return a, err
		}
		if string(lossy(got)) != stream.want {
			return a, fmt.Errorf("ids %v are streamed as %q, and decoded as %q", stream.ids, got, stream.want)
		}
	}
	return a, nil
}

func streamAll(tokenizer *Tokenizer, ids []int32) ([]byte, error) {
	stream, err := tokenizer.NewStream(nil)
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for _, id := range ids {
		part, err := stream.Next(id)
		if err != nil {
			return nil, err
		}
		all.Write(part)
	}
	part, err := stream.Flush()
	all.Write(part)
	return all.Bytes(), err
}

// TestUnusualConfigurations compares settings that rarely meet with the reference implementation.
// scripts/reference/tokenizer_unusual.py makes the answers.
func TestUnusualConfigurations(t *testing.T) {
	counts := tally{refused: map[string]int{}}
	compareFile(t, filepath.Join("testdata", "unusual.jsonl.gz"), &counts)
	counts.log(t)
	if counts.configurations != 35 || len(counts.refused) > 0 {
		t.Errorf("%d configurations, refused: %v", counts.configurations, counts.refused)
	}
}

// TestRandomConfigurations compares a sample of random configurations with the reference implementation.
// scripts/reference/tokenizer_random.py makes the answers.
func TestRandomConfigurations(t *testing.T) {
	counts := tally{refused: map[string]int{}}
	compareFile(t, filepath.Join("testdata", "random.jsonl.gz"), &counts)
	counts.log(t)
	if want := 1219; counts.equal != want {
		t.Errorf("%d pairs are equal, want %d", counts.equal, want)
	}
}

// TestMoreRandomConfigurations is TestRandomConfigurations with the files of the folder that
// PSYCHE_TOKENIZER_VECTORS names.
func TestMoreRandomConfigurations(t *testing.T) {
	folder := os.Getenv("PSYCHE_TOKENIZER_VECTORS")
	if folder == "" {
		t.Skip("PSYCHE_TOKENIZER_VECTORS does not name a folder of files that scripts/reference/tokenizer_random.py wrote")
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files *.jsonl.gz in %s, %v", len(files), folder, err)
	}
	counts := tally{refused: map[string]int{}}
	for _, file := range files {
		compareFile(t, file, &counts)
	}
	counts.log(t)
}
