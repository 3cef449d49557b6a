package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

func encode(t testing.TB, tokenizer *Tokenizer, text string) []int32 {
	t.Helper()
	ids, err := tokenizer.Encode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestBytesAreTheIDs(t *testing.T) {
	if ids, want := encode(t, Bytes(), "Go \x00ÿ\xff"), []int32{'G', 'o', ' ', 0, 0xc3, 0xbf, 0xff}; !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
}

func TestDecodeUndoesEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "text")
		ids, err := Bytes().Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Bytes().Decode(ids); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("got %q, %v, want %q", got, err, text)
		}
	})
	for _, name := range []string{"gpt2", "llama3", "deepseek3", "o200k"} {
		tokenizer := family(t, name)
		rapid.Check(t, func(t *rapid.T) {
			text := rapid.String().Draw(t, "text")
			ids, err := tokenizer.Encode([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := tokenizer.Decode(ids); err != nil || string(got) != text {
				t.Fatalf("%s: got %q, %v, want %q", name, got, err, text)
			}
		})
	}
}

func TestDecodeRefusesForeignIDs(t *testing.T) {
	for _, id := range []int32{-1, 256} {
		if _, err := Bytes().Decode([]int32{id}); err == nil {
			t.Errorf("id %d was decoded", id)
		}
	}
}

func TestEncodeRefusesInvalidText(t *testing.T) {
	_, err := family(t, "gpt2").Encode([]byte("ab\xffc"))
	if !errors.Is(err, errNotUTF8) {
		t.Errorf("got %v, want errNotUTF8", err)
	}
	golden.Message(t, "byte 2", err)
}

// TestJSONIsStable pins the file, because its hash is part of checkpoints.
func TestJSONIsStable(t *testing.T) {
	golden.Compare(t, "bytes.json", Bytes().JSON())
}

func TestIDsMayBePermuted(t *testing.T) {
	text := string(Bytes().JSON())
	text = strings.Replace(text, `"A": 65`, `"A": 66`, 1)
	text = strings.Replace(text, `"B": 66`, `"B": 65`, 1)
	tokenizer, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if ids := encode(t, tokenizer, "AB\xff"); !slices.Equal(ids, []int32{66, 65, 255}) {
		t.Errorf("got %v; want []int32{66, 65, 255}", ids)
	}
	if back, err := tokenizer.Decode([]int32{66, 65}); err != nil || string(back) != "AB" {
		t.Errorf("got %q, %v; want nil error and string(back) == \"AB\"", back, err)
	}
}

// small returns a tokenizer.json with some parts replaced.
func small(parts ...string) string {
	file := map[string]string{
		"added": "[]", "normalizer": "null", "pre": "null", "post": "null", "decoder": "null", "extra": "",
		"vocab": `{"a": 0, "b": 1, "ab": 2, "<unk>": 3}`, "merges": `["a b"]`, "model": "",
	}
	for i := 0; i < len(parts); i += 2 {
		file[parts[i]] = parts[i+1]
	}
	return fmt.Sprintf(`{"version": "1.0", %s"truncation": null, "padding": null, "added_tokens": %s, "normalizer": %s, "pre_tokenizer": %s,
		"post_processor": %s, "decoder": %s, "model": {"type": "BPE", %s"vocab": %s, "merges": %s}}`,
		file["extra"], file["added"], file["normalizer"], file["pre"], file["post"], file["decoder"], file["model"], file["vocab"], file["merges"])
}

// unigramFile returns a tokenizer.json with a unigram model.
func unigramFile(model string) string {
	return fmt.Sprintf(`{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
		"post_processor": null, "decoder": null, "model": {"type": "Unigram", %s}}`, model)
}

// wordPieceFile returns a tokenizer.json with a WordPiece model.
func wordPieceFile(model string) string {
	return strings.Replace(unigramFile(model), `"Unigram"`, `"WordPiece"`, 1)
}

func token(id int, content, more string) string {
	return fmt.Sprintf(`[{"id": %d, "content": %q, "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": true%s}]`, id, content, more)
}

func TestParseRefusesUnsupportedTokenizers(t *testing.T) {
	split := func(expression string) string {
		return fmt.Sprintf(`{"type": "Split", "pattern": {"Regex": %q}, "behavior": "Isolated", "invert": false}`, expression)
	}
	deep := strings.Repeat(`{"type": "Sequence", "pretokenizers": [`, 12) + strings.Repeat(`]}`, 12)
	tests := []struct{ name, text string }{
		{"pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:00\n"},
		{"unknown key", small("extra", `"magic": 1, `)},
		{"key twice", small("extra", `"padding": null, `)},
		{"truncation", strings.Replace(small(), `"truncation": null`, `"truncation": {"max_length": 5}`, 1)},
		{"word level", strings.Replace(small(), `"BPE"`, `"WordLevel"`, 1)},
		{"word pieces without unknown", wordPieceFile(`"vocab": {"a": 0}, "continuing_subword_prefix": "##", "max_input_chars_per_word": 9`)},
		{"unknown word pieces", wordPieceFile(`"vocab": {"a": 0}, "unk_token": "?", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9`)},
		{"endless word pieces", wordPieceFile(`"vocab": {"a": 0}, "unk_token": "a", "continuing_subword_prefix": "##", "max_input_chars_per_word": -1`)},
		{"word piece of nothing", wordPieceFile(`"vocab": {"": 0}, "unk_token": "a", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9`)},
		{"word piece option", wordPieceFile(`"vocab": {"a": 0}, "unk_token": "a", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9, "x": 1`)},
		{"unigram without unknown", unigramFile(`"vocab": [["a", -1]]`)},
		{"unknown beyond", unigramFile(`"unk_id": 1, "vocab": [["a", -1]]`)},
		{"unigram token twice", unigramFile(`"unk_id": 0, "vocab": [["a", -1], ["a", -2]]`)},
		{"unigram token of nothing", unigramFile(`"unk_id": 0, "vocab": [["", -1]]`)},
		{"unigram without score", unigramFile(`"unk_id": 0, "vocab": [["a", null]]`)},
		{"unigram of three", unigramFile(`"unk_id": 0, "vocab": [["a", -1, 2]]`)},
		{"unigram option", unigramFile(`"unk_id": 0, "vocab": [["a", -1]], "alpha": 0.1`)},
		{"dropout", small("model", `"dropout": 0.1, `)},
		{"prefix", small("model", `"continuing_subword_prefix": "##", `)},
		{"unknown token", small("model", `"unk_token": "?", `)},
		{"model option", small("model", `"magic": true, `)},
		{"id twice", small("vocab", `{"a": 0, "b": 0, "ab": 2}`)},
		{"token twice", small("vocab", `{"a": 0, "a": 1, "b": 3, "ab": 2}`)},
		{"huge id", small("vocab", `{"a": 0, "b": 1, "ab": 99999999}`)},
		{"negative id", small("vocab", `{"a": 0, "b": 1, "ab": -1}`)},
		{"fraction", small("vocab", `{"a": 0.5, "b": 1, "ab": 2}`)},
		{"empty token", small("vocab", `{"": 4, "a": 0, "b": 1, "ab": 2}`)},
		{"merge of strangers", small("merges", `["a c"]`)},
		{"merge to a stranger", small("merges", `[["b", "a"]]`)},
		{"half a merge", small("merges", `["a b", "ab"]`)},
		{"three in a merge", small("merges", `[["a", "b", "a"]]`)},
		{"merges of numbers", small("merges", `[1]`)},
		{"added id", small("added", token(9, "<s>", ""))},
		{"added option", small("added", token(4, "<s>", `, "magic": 1`))},
		{"added nothing", small("added", token(4, "", ""))},
		{"normalizer", small("normalizer", `{"type": "Magic"}`)},
		{"inner normalizer", small("normalizer", `{"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Magic"}]}`)},
		{"BERT without case", small("normalizer", `{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true}`)},
		{"normalizer option", small("normalizer", `{"type": "NFC", "strict": true}`)},
		{"nothing to replace", small("normalizer", `{"type": "Replace", "pattern": {"String": ""}, "content": "x"}`)},
		{"pre-tokenizer", small("pre", `{"type": "Magic"}`)},
		{"behaviour", small("pre", strings.Replace(split("a"), "Isolated", "Exploded", 1))},
		{"no invert", small("pre", strings.Replace(split("a"), `, "invert": false`, "", 1))},
		{"byte level", small("pre", `{"type": "ByteLevel"}`)},
		{"metaspace", small("pre", `{"type": "Metaspace", "replacement": "__"}`)},
		{"metaspace contradicts", small("pre", `{"type": "Metaspace", "replacement": "_", "add_prefix_space": false, "prepend_scheme": "always"}`)},
		{"alike once normalized", small("normalizer", `{"type": "Lowercase"}`, "added", `[`+strings.Trim(token(4, "S", ""), "[]")+`, `+strings.Trim(token(5, "s", ""), "[]")+`]`)},
		{"added beyond a gap", small("vocab", `{"a": 0, "b": 1, "ab": 2, "<unk>": 9}`, "added", `[`+strings.Trim(token(9, "<unk>", ""), "[]")+`, `+strings.Trim(token(10, "<s>", ""), "[]")+`]`)},
		{"charsmap", small("normalizer", `{"type": "Precompiled"}`)},
		{"charsmap of nothing", small("normalizer", `{"type": "Precompiled", "precompiled_charsmap": ""}`)},
		{"charsmap of another kind", small("normalizer", `{"type": "Precompiled", "precompiled_charsmap": "äöü"}`)},
		{"depth", small("pre", deep)},
		{"range to a set", small("pre", split(`[a-[bc]]`))},
		{"range from a set", small("pre", split(`[[bc]-z]`))},
		{"deep sets", small("pre", split(strings.Repeat("[a", 12)+strings.Repeat("]", 12)))},
		{"nothing in common", small("pre", split(`[a&&]`))},
		{"named set", small("pre", split(`[[:graph:]]`))},
		{"open set", small("pre", split(`[a[b]`))},
		{"line start", small("pre", split(`^`))},
		{"edge of a word", small("pre", split(`\b|a`))},
		{"edges of a word", small("pre", split(`a\b+`))},
		{"range of words", small("pre", split(`[\w-z]`))},
		{"range to words", small("pre", split(`[a-\w]`))},
		{"grapheme", small("pre", split(`\X`))},
		{"back reference", small("pre", split(`(a)\1`))},
		{"options", small("pre", split(`(?m)a`))},
		{"property", small("pre", split(`\p{Emoji}`))},
		{"nothing to repeat", small("pre", split(`a|*`))},
		{"nothing to match", small("pre", split(`a?`))},
		{"between letters", small("pre", split(`(?<=[a-z])(?=[A-Z])`))},
		{"one of several", small("pre", split(`a|(?:b|c*)`))},
		{"an end", small("pre", split(`a|$`))},
		{"an edge", small("pre", split(`\A|b`))},
		{"none of a group", small("normalizer", `{"type": "Replace", "pattern": {"Regex": "(ab){0,3}(?!c)"}, "content": "x"}`)},
		{"unbalanced", small("pre", split(`(a`))},
		{"post-processor", small("post", `{"type": "Magic"}`)},
		{"marker", small("post", `{"type": "BertProcessing", "sep": ["a", 0], "cls": ["b", 77]}`)},
		{"half a marker", small("post", `{"type": "BertProcessing", "sep": ["a"], "cls": ["b", 1]}`)},
		{"two around", small("post", `{"type": "Sequence", "processors": [{"type": "BertProcessing", "sep": ["a", 0], "cls": ["b", 1]}, {"type": "BertProcessing", "sep": ["a", 0], "cls": ["b", 1]}]}`)},
		{"template", small("post", `{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}}], "pair": [], "special_tokens": {}}`)},
		{"template without text", small("post", `{"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}`)},
		{"template id", small("post", `{"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"x": {"id": "x", "ids": [77], "tokens": ["x"]}}}`)},
		{"decoder", small("decoder", `{"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Magic"}]}`)},
		{"strip", small("decoder", `{"type": "Strip", "content": " ", "start": -1, "stop": 0}`)},
	}
	if _, err := Parse([]byte(small())); err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse([]byte(test.text))
			if !errors.Is(err, errUnsupported) {
				t.Errorf("got %v, want errUnsupported", err)
			}
			golden.Message(t, test.name, err)
		})
	}
	for _, text := range []string{"", "[]", "{", small() + "{}", small()[:80], "\xff", small("vocab", `{"\ud800": 0}`), small("vocab", `{"\ud800\u0041": 0}`)} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%.300q was parsed", text)
		}
	}
}

// TestHostilePatternEnds checks that a pattern with an extremely long search is an error.
func TestHostilePatternEnds(t *testing.T) {
	slow, err := compilePattern("here", `(?:a|b|ab)*c`)
	if err != nil {
		t.Fatal(err)
	}
	slow.expr.MatchTimeout = 50_000_000 // ns
	err = slow.each([]byte(strings.Repeat("ab", 40)), func(int, int) error { return nil })
	if !errors.Is(err, errPatternCost) || !strings.Contains(err.Error(), "here") {
		t.Errorf("got %v; want error errPatternCost and text with \"here\"", err)
	}
}

// TestNormalFormsAreThoseOfUnicode compares with package norm if both have the same result: for
// short sequences of characters that are not inert.
func TestNormalFormsAreThoseOfUnicode(t *testing.T) {
	character := rapid.OneOf(
		rapid.SampledFrom([]rune("aeiouAns\u0301\u0308\u0323\u0327\u0345\u05b0\u093c\u3099가각각Åéﬁ①ｶﾞ")),
		rapid.Rune(),
	)
	forms := map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}
	rapid.Check(t, func(t *rapid.T) {
		runes := rapid.SliceOfN(character, 0, 20).Draw(t, "text")
		if slices.ContainsFunc(runes, isInert) {
			t.Skip()
		}
		text := []byte(string(runes))
		for name, form := range forms {
			got, err := unicodeForms[name].normalize(text)
			if err != nil || !bytes.Equal(got, form.Bytes(text)) {
				t.Fatalf("%s of %+q is %+q, %v, want %+q", name, text, got, err, form.Bytes(text))
			}
		}
	})
}

// TestUnicodeVersion fails when the standard library's tables are newer than the tables that
// unicode16 complements.
func TestUnicodeVersion(t *testing.T) {
	if unicode.Version != "15.0.0" {
		t.Errorf("package unicode has Unicode %s: check unicode16, which complements 15.0.0", unicode.Version)
	}
}

// TestStreamIsDecode checks that the text of a stream equals the text of all ids at once.
func TestStreamIsDecode(t *testing.T) {
	for _, name := range families {
		tokenizer := family(t, name)
		for i, text := range corpus(t)[:3000] {
			ids := encode(t, tokenizer, text)
			if len(ids) > 200 {
				continue
			}
			want, err := tokenizer.DecodeSkipSpecial(ids)
			if err != nil {
				t.Fatal(err)
			}
			if !utf8.Valid(want) {
				continue // an added token that a byte-level decoder treats as a byte
			}
			stream, err := tokenizer.NewStream(nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			for _, id := range ids {
				part, err := stream.Next(id)
				if err != nil {
					t.Fatal(err)
				}
				if !utf8.Valid(part) {
					t.Fatalf("%s: string %d %+q: a part is %+q", name, i, text, part)
				}
				got = append(got, part...)
			}
			part, err := stream.Flush()
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, part...); !bytes.Equal(got, want) {
				t.Fatalf("%s: string %d %+q: got %+q, want %+q", name, i, text, got, want)
			}
		}
	}
}

func TestStreamOfBrokenText(t *testing.T) {
	stream, err := Bytes().NewStream([]int32{'x'})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range []byte("é\xe4\xb8a\xff") {
		part, err := stream.Next(int32(b))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(part))
	}
	last, err := stream.Flush()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"", "é", "", "", "\xe4\xb8a", "\xff"}; !slices.Equal(got, want) || len(last) != 0 {
		t.Errorf("got %q and %q, want %q", got, last, want)
	}
}

// FuzzParse checks that invalid files are errors and never panics, and that all ids are in the
// vocabulary.
func FuzzParse(f *testing.F) {
	f.Add([]byte(small()), "ab c")
	f.Add([]byte(small("normalizer", `{"type": "NFKC"}`, "pre", `{"type": "Metaspace", "replacement": "▁"}`)), "a ﬁ b")
	f.Add([]byte(small("normalizer", `{"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"Regex": "ab|\\s+"}, "content": "é"}, {"type": "Strip", "strip_left": true, "strip_right": true}, {"type": "NFD"}, {"type": "Prepend", "prepend": "b"}, {"type": "NFKC"}]}`,
		"pre", `{"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": true}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}]}`)), "  ab e\u0301\u0323 ﬁ")
	f.Add([]byte(small("pre", `{"type": "ByteLevel", "add_prefix_space": true}`, "model", `"ignore_merges": true, "unk_token": "<unk>", `, "added", token(4, "<s>", ""))), "<s>ab é")
	f.Add([]byte(small("pre", `{"type": "Split", "pattern": {"Regex": "\\p{L}{1,3}|\\s+(?!\\S)"}, "behavior": "MergedWithNext", "invert": true}`)), "ab  ab")
	f.Add([]byte(small("decoder", `{"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Strip", "content": "a", "start": 1, "stop": 1}]}`)), "abab")
	f.Add([]byte(unigramFile(`"unk_id": 0, "byte_fallback": true, "vocab": [["<unk>", 0], ["a", -1.5], ["ab", -3], ["b", -2], ["<0x63>", -9]]`)), "abcab é")
	f.Add([]byte(strings.Replace(wordPieceFile(`"unk_token": "?", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9, "vocab": {"?": 0, "a": 1, "##b": 2, "##": 3}`),
		`"normalizer": null`, `"normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true}`, 1)), "Ab ább 中")
	f.Add([]byte(small("pre", `{"type": "BertPreTokenizer"}`, "decoder", `{"type": "WordPiece", "prefix": "a", "cleanup": true}`, "normalizer", `{"type": "Sequence", "normalizers": [{"type": "StripAccents"}, {"type": "Nmt"}, {"type": "ByteLevel"}]}`)), "ab, é")
	f.Add([]byte(small("pre", `{"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Whitespace"}, {"type": "Split", "pattern": {"Regex": "[^a[b\\d]&&[^c]]+"}, "behavior": "Isolated", "invert": false}]}`,
		"post", `{"type": "RobertaProcessing", "sep": ["a", 0], "cls": ["b", 1], "trim_offsets": true, "add_prefix_space": true}`)), "ab, c. 1b")
	fuzztest.Run(f, func(t *testing.T, file []byte, text string) {
		tokenizer, err := Parse(file)
		if err != nil || len(text) > 1000 {
			return
		}
		ids, err := tokenizer.EncodeWithSpecial([]byte(text))
		if err != nil {
			return
		}
		if _, err := tokenizer.Decode(ids); err != nil {
			t.Fatalf("ids %v of %q: %v", ids, text, err)
		}
	})
}

// FuzzEncode checks that a byte-level tokenizer returns the bytes of any text.
func FuzzEncode(f *testing.F) {
	tokenizer := family(f, "deepseek3")
	f.Add("a  b\r\n1234 é 中文")
	fuzztest.Run(f, func(t *testing.T, text string) {
		ids, err := tokenizer.Encode([]byte(text))
		if !utf8.ValidString(text) {
			if !errors.Is(err, errNotUTF8) {
				t.Fatalf("got %v; want error errNotUTF8", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tokenizer.Decode(ids); err != nil || string(got) != text {
			t.Fatalf("%q is decoded as %q, %v", text, got, err)
		}
	})
}
