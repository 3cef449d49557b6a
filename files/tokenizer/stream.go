package tokenizer

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// Stream decodes IDs incrementally. It returns text as soon as that is certain. It holds back the
// bytes of an incomplete character; a run of byte tokens of a tokenizer.json until the run ends,
// because the run is valid or invalid as a whole; and everything if a decoder needs the whole text.
// A Stream is not safe for concurrent use.
type Stream struct {
	t      *Tokenizer
	ids    []int32    // IDs on which later text depends, without special ones
	shown  int        // number of first ids whose text was returned
	prefix []byte     // text of the first shown ids
	held   []byte     // start of a character, if each token has its own text
	pieces *pieceText // for a tokenizer.model; the other fields are then unused
}

// context is the maximum number of previous IDs on which the text of an ID depends. The first ID of
// all is decoded differently from later ones.
const context = utf8.UTFMax

// maxHeld is the maximum number of IDs that are held back for an incomplete character.
const maxHeld = 32

// NewStream returns a stream that continues after the given IDs, whose text was already returned.
func (t *Tokenizer) NewStream(after []int32) (*Stream, error) {
	s := &Stream{t: t}
	if t.pieces != nil {
		s.pieces = &pieceText{pieceDecoder: *t.pieces}
		for _, id := range after {
			if _, err := s.nextPiece(id); err != nil {
				return nil, err
			}
		}
		s.pieces.end()
		s.pieces.take()
		return s, nil
	}
	for _, id := range slices.Backward(after) {
		if !t.hidden[id] {
			s.ids = append(s.ids, id)
		}
		if len(s.ids) >= context && !t.atEnd && !t.isByte(s.ids[len(s.ids)-1]) {
			break
		}
	}
	slices.Reverse(s.ids)
	s.shown = len(s.ids)
	var err error
	s.prefix, err = t.DecodeSkipSpecial(s.ids)
	return s, err
}

// Next takes an ID and returns the text that it completes. Special tokens have no text.
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
	if s.pieces != nil {
		return s.nextPiece(id)
	}
	if s.t.hidden[id] || !s.t.has(id) {
		_, err := s.t.DecodeSkipSpecial([]int32{id})
		return nil, err
	}
	s.ids = append(s.ids, id)
	if s.t.atEnd {
		return nil, nil
	}
	if s.t.isByte(id) {
		return nil, nil
	}
	pending, err := s.t.pending(s.ids[s.shown:])
	if err != nil {
		s.ids = s.ids[:len(s.ids)-1]
		return nil, err
	}
	if pending && len(s.ids)-s.shown < maxHeld {
		return nil, nil
	}
	return s.Flush()
}

// nextPiece is Next for a tokenizer.model.
func (s *Stream) nextPiece(id int32) ([]byte, error) {
	if s.t.hidden[id] || !s.t.has(id) {
		_, err := s.t.DecodeSkipSpecial([]int32{id})
		return nil, err
	}
	s.pieces.add(s.t.model.tokens[id])
	return s.pieces.take(), nil
}

// Flush returns the text that was held back.
func (s *Stream) Flush() ([]byte, error) {
	if s.pieces != nil {
		s.pieces.end()
		return s.pieces.take(), nil
	}
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
	fresh, follows := bytes.CutPrefix(text, s.prefix)
	if !follows { // the IDs after shown would change the text that was already returned
		if fresh, err = s.t.DecodeSkipSpecial(s.ids[s.shown:]); err != nil {
			return nil, err
		}
	}
	if !s.t.atEnd {
		from := s.shown
		for from > 0 && s.t.isByte(s.ids[from]) {
			from--
		}
		s.ids = append(s.ids[:0], s.ids[from:]...)
	}
	s.shown = len(s.ids)
	s.prefix, err = s.t.DecodeSkipSpecial(s.ids)
	return fresh, err
}

// isByte reports whether a token is one of the bytes that a decoder joins.
func (t *Tokenizer) isByte(id int32) bool {
	if !t.has(id) {
		return false
	}
	_, ok := fallbackByte(t.model.tokens[id])
	return ok && slices.Contains(t.decoders, decoder(byteFallbackDecoder{}))
}

// pending reports whether ids end with an incomplete character.
func (t *Tokenizer) pending(ids []int32) (bool, error) {
	tokens := make([]string, len(ids))
	for i, id := range ids {
		tokens[i] = t.model.tokens[id]
	}
	for _, d := range t.decoders {
		if _, joins := d.(byteLevelDecoder); joins {
			var raw []byte
			for _, token := range tokens {
				var ok bool
				if raw, ok = alphabetBytes(raw, token); !ok {
					raw = append(raw, token...)
				}
			}
			return incomplete(raw) > 0, nil
		}
		var err error
		if tokens, err = d.decode(tokens); err != nil {
			return false, err
		}
	}
	return false, nil
}

// decidesAtEnd reports whether decoders may change the text of IDs depending on the IDs after them.
// This is so unless the decoders only replace single characters of a text.
func decidesAtEnd(decoders []decoder) bool {
	joined := false
	for _, d := range decoders {
		switch d := d.(type) {
		case fuseDecoder:
			joined = true
		case byteLevelDecoder:
			if joined {
				return true
			}
			joined = true
		case byteFallbackDecoder:
			if joined {
				return true
			}
		case wordPieceDecoder:
			if joined && d.cleanup {
				return true
			}
		case stripDecoder:
			if joined && (d.start > 1 || d.end > 0) {
				return true
			}
		case replaceDecoder:
			if of, isText := d.find.(literal); joined && (!isText || utf8.RuneCount(of) > 1) {
				return true
			}
		}
	}
	return false
}

// incomplete returns the length of an incomplete character at the end of a text.
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
