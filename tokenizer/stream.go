package tokenizer

import (
	"bytes"
	"unicode/utf8"
)

// Stream decodes ids as they come. Text appears as soon as it is certain: bytes of a
// character that is not complete yet are held back. It is not safe for concurrent use.
type Stream struct {
	t      *Tokenizer
	ids    []int32 // that the text to come depends on
	shown  int     // of these, whose text has appeared
	prefix []byte  // the text of shown ids
	held   []byte  // the start of a character, where tokens have texts of their own
}

// maxHeld is the number of ids that are held back at most: as many as a character has
// bytes. What is no character by then becomes none.
const maxHeld = utf8.UTFMax

// maxContext is the number of ids without text that are kept before those with text.
const maxContext = 32

// NewStream returns a stream that goes on after the given ids, whose text has appeared.
func (t *Tokenizer) NewStream(after []int32) (*Stream, error) {
	s := &Stream{t: t, ids: append([]int32{}, after[max(0, len(after)-maxHeld):]...)}
	s.shown = len(s.ids)
	var err error
	s.prefix, err = t.DecodeSkipSpecial(s.ids)
	return s, err
}

// Next takes an id and returns the text that it completes; special tokens have none.
func (s *Stream) Next(id int32) ([]byte, error) {
	if s.t.texts != nil {
		text, err := s.t.DecodeSkipSpecial([]int32{id})
		if err != nil {
			return nil, err
		}
		text = append(s.held, text...)
		whole := len(text) - incomplete(text)
		s.held = append([]byte{}, text[whole:]...)
		return text[:whole], nil
	}
	s.ids = append(s.ids, id)
	text, err := s.t.DecodeSkipSpecial(s.ids)
	if err != nil {
		s.ids = s.ids[:len(s.ids)-1]
		return nil, err
	}
	if len(s.ids)-s.shown < maxHeld && (incomplete(text) > 0 || bytes.HasSuffix(text, []byte("\uFFFD"))) {
		return nil, nil
	}
	return s.emit(text)
}

// Flush returns the text that was held back.
func (s *Stream) Flush() ([]byte, error) {
	if held := s.held; len(held) > 0 {
		s.held = nil
		return held, nil
	}
	if s.shown == len(s.ids) {
		return nil, nil
	}
	text, err := s.t.DecodeSkipSpecial(s.ids)
	if err != nil {
		return nil, err
	}
	return s.emit(text)
}

// emit returns what is new in the text of all ids, and forgets the ids before these.
func (s *Stream) emit(text []byte) (fresh []byte, err error) {
	fresh = bytes.TrimPrefix(text, s.prefix)
	if len(fresh) > 0 || len(s.ids) > maxContext {
		s.ids = append(s.ids[:0], s.ids[s.shown:]...)
	}
	s.shown = len(s.ids)
	s.prefix, err = s.t.DecodeSkipSpecial(s.ids)
	return fresh, err
}

// incomplete returns the length of the beginning of a character that a text ends with.
func incomplete(text []byte) int {
	for n := 1; n <= min(len(text), utf8.UTFMax-1); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
