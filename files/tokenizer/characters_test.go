package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// page is the number of characters that share a digest.
const page = 0x4000

// checkClass compares the result of a Split by a class of characters, for all of Unicode.
func checkClass(t *testing.T, expression string, digests []string) {
	t.Helper()
	class, err := compilePattern("here", expression)
	if err != nil {
		t.Error(err)
		return
	}
	for i, digest := range digests {
		var text strings.Builder
		for r := rune(i * page); r < rune(i+1)*page; r++ {
			if r < 0xd800 || r >= 0xe000 {
				text.WriteRune(r)
			}
		}
		hash := sha256.New()
		if text.Len() > 0 {
			for _, piece := range pieces(t, []stage{&splitStage{find: class, mode: isolated}}, text.String()) {
				hash.Write([]byte(piece + "\x00"))
			}
		}
		if got := hex.EncodeToString(hash.Sum(nil)[:3]); got != digest {
			t.Errorf("%s: a character between U+%04X and U+%04X differs from the reference", expression, i*page, (i+1)*page-1)
		}
	}
}

// TestEveryCharacterIsNormalizedAsByTheReference compares all of Unicode with the output of
// scripts/reference/tokenizer_characters.py.
func TestEveryCharacterIsNormalizedAsByTheReference(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "characters.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string][]string
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	with := func(n normalizer) func(string) string {
		return func(text string) string {
			out, err := n.normalize([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return string(out)
		}
	}
	bert, err := parsePreTokenizer([]byte(`{"type": "BertPreTokenizer"}`))
	if err != nil {
		t.Fatal(err)
	}
	rules := family(t, "xlmr").normalizers
	kinds := map[string]func(string) string{
		"clean_text": with(cleanText{}), "handle_chinese_chars": with(spaceIdeographs{}), "strip_accents": with(normalizers{unicodeForms["NFD"], stripNonspacing{}}),
		"Precompiled": func(text string) string { return with(rules)("e" + text + "e") },
		"Lowercase":   with(lowercase{}), "StripAccents": with(stripAccents{}), "Nmt": with(nmt{}),
		"BertPreTokenizer": func(text string) string { return strings.Join(pieces(t, bert.stages, "a"+text+"a"), "|") },
	}
	for name, digests := range want {
		answer := kinds[name]
		if answer == nil {
			checkClass(t, name, digests)
			continue
		}
		if len(digests) != 0x110000/page {
			t.Errorf("%s: %d digests", name, len(digests))
			continue
		}
		for i, digest := range digests {
			hash := sha256.New()
			for r := rune(i * page); r < rune(i+1)*page; r++ {
				if r < 0xd800 || r >= 0xe000 {
					hash.Write([]byte(answer(string(r)) + "\n"))
				}
			}
			if got := hex.EncodeToString(hash.Sum(nil)[:3]); got != digest {
				t.Errorf("%s: a character between U+%04X and U+%04X differs from the reference", name, i*page, (i+1)*page-1)
			}
		}
	}
}

// pieces returns the pieces into which stages split a text.
func pieces(t *testing.T, stages []stage, text string) []string {
	var all []string
	collect := stageFunc(func(p piece) { all = append(all, string(p.text)) })
	e := &encoder{t: &Tokenizer{pre: preTokenizer{stages: append(append([]stage{}, stages...), collect)}}}
	if err := e.next(0, piece{text: []byte(text)}); err != nil {
		t.Fatal(err)
	}
	return all
}

// stageFunc is a last stage.
type stageFunc func(piece)

func (f stageFunc) split(_ *encoder, _ int, p piece) error {
	f(p)
	return nil
}
