package tokenizer

import (
	"bytes"
	"errors"
	"unicode/utf8"
)

// The reference implementation records the source of every character of a normalized text: one
// character of the original text. Only the prepend_scheme "first" of Metaspace depends on this: it
// adds a mark to pieces if the source of the first character is the first character of the text.
// The sources can be surprising. For example, the source of a replacement is the last character of
// the match.

// follower is a normalizer that does not treat every character separately.
type follower interface {
	// origin takes a text, and the number of bytes at its start that come from the first character
	// of the original text. It returns this number for the normalized text.
	origin(text []byte, origin int) (int, error)
}

// follow normalizes a text. It also converts origin, the number of bytes at the start of the text
// that come from the first character of the original text, to this number for the result.
func (all normalizers) follow(text []byte, origin int) ([]byte, int, error) {
	limit := growthLimit(text)
	for _, n := range all {
		after, err := normalizers{n}.within(text, limit)
		if err != nil {
			return nil, 0, err
		}
		if f, ok := n.(follower); ok {
			origin, err = f.origin(text, origin)
		} else {
			var head []byte
			head, err = n.normalize(text[:origin])
			origin = len(head)
		}
		if err != nil {
			return nil, 0, err
		}
		text = after
	}
	return text, origin, nil
}

func (p prepend) origin(text []byte, origin int) (int, error) {
	if origin == 0 {
		return 0, nil
	}
	return len(p) + origin, nil
}

func (s strip) origin(text []byte, origin int) (int, error) {
	kept, err := s.normalize(text)
	if err != nil || len(kept) == 0 {
		return 0, err
	}
	removed, _ := strip{left: s.left}.normalize(text)
	return min(max(origin-(len(text)-len(removed)), 0), len(kept)), nil
}

// errPast ends a search for matches.
var errPast = errors.New("match past the origin")

func (r replace) origin(text []byte, origin int) (int, error) {
	growth := 0
	err := r.find.each(text, func(start, end int) error {
		switch {
		case start >= origin:
			return errPast
		case end <= origin:
			growth += len(r.with) - (end - start)
		default:
			origin = start
		}
		return nil
	})
	if errors.Is(err, errPast) {
		err = nil
	}
	return origin + growth, err
}

func (f unicodeForm) origin(text []byte, origin int) (int, error) {
	// An ASCII character is not reordered and does not compose with an earlier character.
	end := origin + bytes.IndexFunc(text[origin:], func(r rune) bool { return r < utf8.RuneSelf })
	if end < origin {
		end = len(text)
	}
	var segment []classedRune
	for rest := text[:end]; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		segment = f.decompose(segment, rest[:size], r)
		rest = rest[size:]
	}
	return originOf(text, origin, f.order(segment)), nil
}

func (p precompiled) origin(text []byte, origin int) (int, error) {
	var all []classedRune
	enough := utf8.RuneCount(text[:origin]) + 1
	changed := false
	p.each(text, func(old, with []byte, replaced bool) bool {
		changed = changed || replaced
		first := len(all)
		for rest := with; len(rest) > 0; {
			r, size := utf8.DecodeRune(rest)
			all = append(all, classedRune{r: r})
			rest = rest[size:]
		}
		switch more := len(all) - first - utf8.RuneCount(old); {
		case !replaced:
		case more > 0:
			for i := range more {
				all[len(all)-1-i].change = 1
			}
		case more < 0 && len(all) > 0:
			all[len(all)-1].change += more
		}
		return len(all) <= enough || taken(all[:len(all)-1]) <= enough
	})
	if !changed {
		return origin, nil
	}
	return originOf(text, origin, all), nil
}

// taken returns the number of characters that are not inserted.
func taken(all []classedRune) (count int) {
	for _, c := range all {
		if c.change <= 0 {
			count++
		}
	}
	return count
}

// originOf converts the origin of text (see follow) to the origin of changed, which a normalizer
// made from text.
func originOf(text []byte, origin int, changed []classedRune) (bytes int) {
	at := 0 // end of the part of text that the earlier characters replace
	next := func() {
		_, size := utf8.DecodeRune(text[at:])
		at += size
	}
	for _, c := range changed {
		if inserted := c.change > 0; at > origin || at == origin && !inserted {
			return bytes
		}
		bytes += utf8.RuneLen(c.r)
		for range 1 - c.change {
			next()
		}
	}
	return bytes
}
