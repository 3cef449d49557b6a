package openai

import "strings"

// stopper cuts a text where the first stop string is complete. If several are complete at the same
// position, it cuts before the longest. The result does not depend on how the text is split into
// pieces.
type stopper struct {
	stops []string
	held  string // possible start of a stop string
}

// next processes a piece and returns the text that certainly comes before a stop string. If found
// is true, the text has ended.
func (s *stopper) next(piece string) (text string, found bool) {
	s.held += piece
	start, end := -1, len(s.held)+1
	for _, stop := range s.stops {
		at := strings.Index(s.held, stop)
		if at >= 0 && (at+len(stop) < end || at+len(stop) == end && at < start) {
			start, end = at, at+len(stop)
		}
	}
	if start >= 0 {
		text, s.held = s.held[:start], ""
		return text, true
	}
	keep := 0
	for _, stop := range s.stops {
		keep = max(keep, unfinished(s.held, stop))
	}
	text, s.held = s.held[:len(s.held)-keep], s.held[len(s.held)-keep:]
	return text, false
}

// rest returns the text that was held back. It is called at the end of the text.
func (s *stopper) rest() string {
	text := s.held
	s.held = ""
	return text
}

// unfinished returns the length of the longest proper prefix of word that ends text.
func unfinished(text, word string) int {
	for n := min(len(word)-1, len(text)); n > 0; n-- {
		if strings.HasSuffix(text, word[:n]) {
			return n
		}
	}
	return 0
}
