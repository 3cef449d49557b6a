package tokenizer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestPartsAreTheIDs compares EncodeParts with Encode, for every kind of model.
func TestPartsAreTheIDs(t *testing.T) {
	all := map[string]*Tokenizer{"bytes": Bytes()}
	for _, name := range families {
		all[name] = family(t, name)
	}
	for _, name := range pieceModels {
		all["piece model "+name] = pieceModel(t, name)
	}
	long := ""
	for i := 0; i < len(corpus(t)); i += 29 {
		long += corpus(t)[i] + " \n"[i%2:i%2+1]
	}
	for name, tokenizer := range all {
		for i := 0; i < len(corpus(t)); i += 499 {
			checkParts(t, name, tokenizer, corpus(t)[i], 1+i%5)
		}
		if parts := checkParts(t, name, tokenizer, long, 100); parts < 2 {
			t.Errorf("%s: %d parts of a text of %d bytes", name, parts, len(long))
		}
	}
}

func checkParts(t *testing.T, name string, tokenizer *Tokenizer, text string, size int) (parts int) {
	t.Helper()
	want := encode(t, tokenizer, text)
	var got []int32
	err := tokenizer.EncodeParts([]byte(text), size, func(part []int32) error {
		parts++
		got = append(got, part...)
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: %+.80q in parts of %d: %v, %v, want %v", name, text, size, got, err, want)
	}
	return parts
}

func TestPartsEndWithTheFirstError(t *testing.T) {
	stop := errors.New("stop")
	for name, tokenizer := range map[string]*Tokenizer{"bytes": Bytes(), "gpt2": family(t, "gpt2")} {
		parts := 0
		err := tokenizer.EncodeParts([]byte("some words of a text"), 1, func([]int32) error {
			parts++
			return stop
		})
		if !errors.Is(err, stop) || parts != 1 {
			t.Errorf("%s: %v after %d parts", name, err, parts)
		}
		if again := encode(t, tokenizer, "some words"); len(again) == 0 {
			t.Errorf("%s: no ids after an error", name)
		}
	}
}

// TestLongWordsOfScores compares encode with one segment for a long word.
func TestLongWordsOfScores(t *testing.T) {
	for _, name := range pieceModels {
		tokenizer := pieceModel(t, name)
		u, scored := tokenizer.model.instead.(*unigram)
		if !scored {
			continue
		}
		for start := range 40 {
			var text strings.Builder
			for i := start; i < len(corpus(t)) && text.Len() < 5*segmentBytes; i += 41 {
				text.WriteString(corpus(t)[i])
			}
			word, err := tokenizer.normalizers.normalize([]byte(text.String()))
			if err != nil {
				t.Fatal(err)
			}
			var s scratch
			got := u.encode(tokenizer.model, &s, nil, word)
			if len(s.ends) > 2*segmentBytes {
				t.Errorf("%s: a segment of %d bytes", name, len(s.ends)-1)
			}
			if want := inOneSegment(u, tokenizer.model, word); !slices.Equal(got, want) {
				t.Errorf("%s: text %d has other ids", name, start)
			}
		}
	}
}

// inOneSegment is encode of a unigram without segments.
func inOneSegment(u *unigram, m *bpe, word []byte) []int32 {
	ends := make([]end, len(word)+1)
	for i := range ends {
		ends[i].start = -1
	}
	for at := 0; at < len(word); {
		_, size := utf8.DecodeRune(word[at:])
		alone := false
		u.index.each(word[at:], func(id int32, length int) {
			u.offer(&ends[at+length], ends[at].score+u.scores[id], at, id)
			alone = alone || length == size
		})
		if !alone {
			u.offer(&ends[at+size], u.kept(ends[at].score+u.missing), at, m.unknown)
		}
		at += size
	}
	return u.chosen(m, ends, nil, word)
}
