package tokenizer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

// charsmapOf returns the bytes of a charsmap.
func charsmapOf(units []uint32, texts string) []byte {
	raw := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, unit := range units {
		raw = binary.LittleEndian.AppendUint32(raw, unit)
	}
	return append(raw, texts...)
}

// letterUnits returns the units of a trie with the single key a, whose text is at position at.
func letterUnits(at uint32) []uint32 {
	units := make([]uint32, 512)
	units[0] = 1 << 10                                 // the children of the root are at 1 exclusive-or the byte
	units[1^'a'] = 'a' | unitHasLeaf | (1^'a'^256)<<10 // the children of a are at 256
	units[256] = unitIsValue | at
	return units
}

func TestCharsmapsThatDoNotHold(t *testing.T) {
	outside := letterUnits(0)
	outside[7] = 512 << 10
	far := letterUnits(0)
	far[7] = 1<<9 | (1<<20)<<10
	for name, raw := range map[string][]byte{
		"no size":           {1, 2},
		"no trie":           charsmapOf(nil, ""),
		"half a unit":       []byte("\x05\x00\x00\x00abcdefgh"),
		"size of more":      []byte("\xfc\xff\xff\xffabcd"),
		"not UTF-8":         charsmapOf(letterUnits(0), "\xff"),
		"text beyond":       charsmapOf(letterUnits(5), "A\x00"),
		"within a letter":   charsmapOf(letterUnits(1), "é\x00"),
		"unit outside":      charsmapOf(outside, "A"),
		"unit far outside":  charsmapOf(far, "A"),
		"cut off":           charsmapOf(letterUnits(0)[:255], "A"),
		"more than allowed": make([]byte, maxCharsmap+1),
	} {
		_, err := parseCharsmap(raw)
		golden.Message(t, name, err)
	}
	found, err := parseCharsmap(charsmapOf(letterUnits(2), "A\x00bc\x00"))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := (precompiled{found}).normalize([]byte("bab\u0301a\u0301c")); err != nil || string(text) != "bbcb\u0301bcc" {
		t.Errorf("got %q, %v; want nil error and string(text) == \"bbcb\\u0301bcc\"", text, err)
	}
	found, err = parseCharsmap(charsmapOf(letterUnits(0), strings.Repeat("A", 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := (precompiled{found}).normalize([]byte("ba")); err == nil {
		t.Errorf("2 bytes became %d", len(text))
	}
}

// TestEndlessRule has a trie that leads back to itself, so that a search would continue to the end
// of the text.
func TestEndlessRule(t *testing.T) {
	units := make([]uint32, 512)
	units[0] = 256 << 10                   // children from 256 on
	units[256^'a'] = 'a'<<10 | uint32('a') // its only child is the node itself
	found, err := parseCharsmap(charsmapOf(units, ""))
	if err != nil {
		t.Fatal(err)
	}
	n := pieceNormalizer{rules: found}
	if text, err := n.normalize([]byte("ba" + strings.Repeat("a", maxRuleBytes-2) + "b")); err != nil || len(text) != maxRuleBytes+1 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if _, err := n.normalize(bytes.Repeat([]byte("a"), 1<<20)); !errors.Is(err, errDeepRule) {
		t.Errorf("%v, want %v", err, errDeepRule)
	}
}

// FuzzCharsmap checks that invalid charsmaps are errors, and that searches end within the charsmap.
func FuzzCharsmap(f *testing.F) {
	f.Add(charsmapOf(letterUnits(2), "A\x00bc\x00"), "aa\u0301b")
	f.Add(charsmapOf(letterUnits(0), ""), "a")
	f.Add(charsmapOf(make([]uint32, 256), ""), "\x01")
	fuzztest.Run(f, func(t *testing.T, raw []byte, text string) {
		found, err := parseCharsmap(raw)
		if err != nil {
			return
		}
		found.find([]byte(text), func(at uint32, length int) bool {
			if length < 1 || length > len(text) {
				t.Fatalf("%d bytes of %d", length, len(text))
			}
			_ = found.text(at)
			return true
		})
		_, _ = precompiled{found}.normalize([]byte(strings.ToValidUTF8(text, "")))
	})
}
