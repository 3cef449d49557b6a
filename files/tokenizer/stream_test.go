package tokenizer

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// streamed returns the output of a stream for ids after earlier ids, including Flush.
func streamed(t interface{ Fatal(...any) }, tokenizer *Tokenizer, after, ids []int32) (parts []string) {
	stream, err := tokenizer.NewStream(after)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		part, err := stream.Next(id)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, string(part))
	}
	last, err := stream.Flush()
	if err != nil {
		t.Fatal(err)
	}
	return append(parts, string(last))
}

// streamers have the decoders of known families, and rarer decoders. Ids 0 to 5 are text, 6 and 7
// are special, and 8 to 15 are the bytes of U+1FABF, 0xFF, and the bytes of л and A.
func streamers(t *testing.T) map[string]*Tokenizer {
	const vocab = `{"a": 0, "▁b": 1, "\ufffd": 2, "▁": 3, "Ġ": 4, "ab": 5, "<s>": 6, "</s>": 7,
		"<0xF0>": 8, "<0x9F>": 9, "<0xAA>": 10, "<0xBF>": 11, "<0xFF>": 12, "<0xD0>": 13, "<0xBB>": 14, "<0x41>": 15}`
	const special = `[{"id": 6, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
		{"id": 7, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}]`
	const toBlank = `{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}`
	decoders := map[string]string{
		"none":                  `null`,
		"Llama":                 `{"type": "Sequence", "decoders": [` + toBlank + `, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}`,
		"Metaspace":             `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}`,
		"ByteLevel and Replace": `{"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Replace", "pattern": {"Regex": "a+ ?"}, "content": "X"}]}`,
		"WordPiece":             `{"type": "WordPiece", "prefix": "a", "cleanup": true}`,
		"WordPiece at the end":  `{"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "WordPiece", "prefix": "a", "cleanup": true}]}`,
		"Strip at the end":      `{"type": "Sequence", "decoders": [` + toBlank + `, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 1}]}`,
	}
	all := map[string]*Tokenizer{}
	for name, text := range decoders {
		parsed, err := Parse([]byte(small("vocab", vocab, "merges", "[]", "added", special, "decoder", text)))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = parsed
	}
	for name, pieces := range map[string][]byte{"pieces with a prefix": message(3, 1, 4, 0), "trimmed pieces": message(3, 0, 4, 1), "bare pieces": message(3, 0, 4, 0)} {
		parsed, err := ParseSentencePiece(piecesOf(pieces))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = parsed
	}
	return all
}

// piecesOf returns a tokenizer.model with the same ids as streamers, with the given normalizer
// settings.
func piecesOf(normalizer []byte) []byte {
	all := []any{2, message(35, 1), 3, normalizer}
	for _, text := range []string{"a", "▁b", "\ufffd", "▁", "▁▁", "ab"} {
		all = append(all, 1, message(1, text, 2, uint32(0)))
	}
	all = append(all, 1, message(1, "<s>", 3, pieceControl), 1, message(1, "<unk>", 3, pieceUnknown))
	first := []byte{0xF0, 0x9F, 0xAA, 0xBF, 0xFF, 0xD0, 0xBB, 0x41}
	for _, b := range first {
		all = append(all, 1, message(1, fmt.Sprintf("<0x%02X>", b), 3, pieceByte))
	}
	for b := range 256 {
		if !slices.Contains(first, byte(b)) {
			all = append(all, 1, message(1, fmt.Sprintf("<0x%02X>", b), 3, pieceByte))
		}
	}
	return message(all...)
}

// TestStreamOfPieces streams pieces of a tokenizer.model: a character appears when its last byte
// arrives.
func TestStreamOfPieces(t *testing.T) {
	for _, test := range []struct {
		name string
		ids  []int32
		want string // parts with | between
	}{
		{"pieces with a prefix", []int32{6, 3, 3, 0, 8, 9, 10, 11, 0}, "|| |a||||\U0001FABF|a|"},
		{"trimmed pieces", []int32{3, 3, 3, 0, 3}, "|||a| |"},
		{"trimmed pieces", []int32{3, 4, 3, 0}, "| | |a|"},
		{"bare pieces", []int32{3, 9, 13, 14, 15, 12, 13}, " |\uFFFD||л|A|\uFFFD||\uFFFD"},
		{"bare pieces", []int32{8, 9, 0, 13, 15}, "||\uFFFD\uFFFDa||\uFFFDA|"},
	} {
		tokenizer := streamers(t)[test.name]
		if parts := strings.Join(streamed(t, tokenizer, nil, test.ids), "|"); parts != test.want {
			t.Errorf("%s, %v: got %q, want %q", test.name, test.ids, parts, test.want)
		}
		text, err := tokenizer.DecodeSkipSpecial(test.ids)
		if err != nil || string(text) != strings.ReplaceAll(test.want, "|", "") {
			t.Errorf("%s, %v: decoded at once %q, %v", test.name, test.ids, text, err)
		}
	}
}

// TestStreamWithoutEndIsLinear streams a repeating output: the total memory of all tokens grows
// with their number, not with its square.
func TestStreamWithoutEndIsLinear(t *testing.T) {
	for name, tokenizer := range streamers(t) {
		for _, id := range []int32{0, 3, 4, 9, 13} {
			took := func(count int) uint64 {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				ids := slices.Repeat([]int32{id}, count)
				got := streamed(t, tokenizer, ids, ids)
				runtime.ReadMemStats(&after)
				if whole, err := tokenizer.DecodeSkipSpecial(ids); err != nil || name == "bare pieces" && strings.Join(got, "") != string(whole) {
					t.Errorf("%s, id %d: %v, or the stream differs from the text", name, id, err)
				}
				return after.TotalAlloc - before.TotalAlloc
			}
			if few, many := took(500), took(4000); many > 16*few {
				t.Errorf("%s, id %d: 500 tokens took %d bytes, 4000 took %d", name, id, few, many)
			}
		}
	}
}

// TestStreamOfAReplacementCharacter streams a U+FFFD that is part of a token, not a U+FFFD for the
// start of a character.
func TestStreamOfAReplacementCharacter(t *testing.T) {
	tokenizer := streamers(t)["Llama"]
	for _, test := range []struct {
		ids  []int32
		want string // parts with | between
	}{
		{[]int32{6, 3, 2, 8, 9, 10, 11, 0}, "||\uFFFD|||||\U0001FABFa|"},
		{[]int32{8, 6, 9, 7, 10, 11}, "||||||\U0001FABF"},
		{[]int32{2, 8, 9, 0}, "\uFFFD|||\uFFFD\uFFFDa|"},
		{[]int32{0, 8, 9, 10}, "a||||\uFFFD\uFFFD\uFFFD"},
		{[]int32{9, 13, 14}, "|||\uFFFD\uFFFD\uFFFD"},                  // a run of bytes is text as a whole or not at all
		{[]int32{9, 15, 0}, "||\uFFFD\uFFFDa|"},                        // also if it contains ASCII
		{[]int32{13, 14, 15, 12, 0}, "||||\uFFFD\uFFFD\uFFFD\uFFFDa|"}, // whatever its beginning
	} {
		parts := strings.Join(streamed(t, tokenizer, nil, test.ids), "|")
		if parts != test.want {
			t.Errorf("%v: got %q, want %q", test.ids, parts, test.want)
		}
		text, err := tokenizer.DecodeSkipSpecial(test.ids)
		if err != nil || string(text) != strings.ReplaceAll(test.want, "|", "") {
			t.Errorf("%v: decoded at once %q, %v", test.ids, text, err)
		}
	}
}

// TestStreamOfManyBytes streams a run of bytes that is longer than the held-back text of other
// decoders.
func TestStreamOfManyBytes(t *testing.T) {
	tokenizer := streamers(t)["Llama"]
	whole := slices.Repeat([]int32{13, 14}, 1000)
	for last, want := range map[int32]string{0: strings.Repeat("л", 1000) + "a", 12: strings.Repeat("\uFFFD", 2001)} {
		if got := strings.Join(streamed(t, tokenizer, nil, append(slices.Clone(whole), last)), ""); got != want {
			t.Errorf("the last is %d: got %d bytes, %.20q", last, len(got), got)
		}
		// The earlier part has already appeared, so the rest is the same as in the whole run.
		got := strings.Join(streamed(t, tokenizer, append([]int32{12}, whole...), []int32{14, last}), "")
		if last == 12 && got != "\uFFFD\uFFFD" || last == 0 && got != "\uFFFDa" {
			t.Errorf("after invalid text, last byte %d: got %.20q", last, got)
		}
	}
}

// TestStreamGoesOn checks that the text after any ids, including special ids, is the rest of the
// decoded text of all ids.
func TestStreamGoesOn(t *testing.T) {
	for name, tokenizer := range streamers(t) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				id := rapid.SampledFrom([]int32{0, 1, 2, 3, 4, 5, 6, 6, 6, 6, 7, 7, 7, 7, 7, // often several special ids in a row
					8, 9, 10, 11, 12, 13, 14, 15})
				after, ids := rapid.SliceOfN(id, 0, 40).Draw(t, "after"), rapid.SliceOfN(id, 0, 40).Draw(t, "ids")
				before, err := tokenizer.DecodeSkipSpecial(after)
				if err != nil {
					t.Fatal(err)
				}
				whole, err := tokenizer.DecodeSkipSpecial(append(append([]int32{}, after...), ids...))
				if err != nil {
					t.Fatal(err)
				}
				want, follows := bytes.CutPrefix(whole, before)
				if !follows {
					t.Skip("a later token changes the earlier text")
				}
				if got := strings.Join(streamed(t, tokenizer, after, ids), ""); got != string(want) {
					t.Fatalf("got %q, want %q", got, want)
				}
			})
		})
	}
}
