package openai

import "strings"

// stopper cuts a text where the first of some strings is complete, of those that are complete at the
// same place before the longest. However the text is cut into pieces, the outcome is the same.
type stopper struct {
	stops []string
	held  string // what may be the beginning of one of them
}

// next takes a piece and returns what comes certainly before any of the strings, and whether one
// was found, after which there is no more text.
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

// rest returns what was held back, at the end.
func (s *stopper) rest() string {
	text := s.held
	s.held = ""
	return text
}

// unfinished returns the length of the longest beginning of word, short of the whole, that ends text.
func unfinished(text, word string) int {
	for n := min(len(word)-1, len(text)); n > 0; n-- {
		if strings.HasSuffix(text, word[:n]) {
			return n
		}
	}
	return 0
}
