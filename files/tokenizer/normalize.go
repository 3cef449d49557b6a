package tokenizer

import (
	"bytes"
	"fmt"
	"unicode"
)

// normalizer changes text before it is split. It must not change its argument.
type normalizer interface {
	normalize(text []byte) ([]byte, error)
}

type normalizers []normalizer

// maxGrowth limits the growth of a text by normalizers.
const maxGrowth = 64

func (all normalizers) normalize(text []byte) ([]byte, error) {
	return all.within(text, growthLimit(text))
}

// growthLimit returns the maximum number of bytes of a normalized text.
func growthLimit(text []byte) int { return maxGrowth * (len(text) + 1024) }

// within is normalize with a limit on the bytes of each result.
func (all normalizers) within(text []byte, limit int) ([]byte, error) {
	for _, n := range all {
		var err error
		if text, err = n.normalize(text); err != nil {
			return nil, err
		}
		if len(text) > limit {
			return nil, fmt.Errorf("the normalizer makes the text more than %d times as long", maxGrowth)
		}
	}
	return text, nil
}

// prepend adds text before any nonempty text.
type prepend []byte

func (p prepend) normalize(text []byte) ([]byte, error) {
	if len(text) == 0 {
		return text, nil
	}
	return append(append(make([]byte, 0, len(p)+len(text)), p...), text...), nil
}

// strip removes white space at the ends.
type strip struct{ left, right bool }

func (s strip) normalize(text []byte) ([]byte, error) {
	if s.left {
		text = bytes.TrimLeftFunc(text, unicode.IsSpace)
	}
	if s.right {
		text = bytes.TrimRightFunc(text, unicode.IsSpace)
	}
	return text, nil
}

// replace replaces every match by other text.
type replace struct {
	find finder
	with []byte
}

func (r replace) normalize(text []byte) ([]byte, error) {
	if literal, ok := r.find.(literal); ok {
		if !bytes.Contains(text, literal) {
			return text, nil
		}
		if len(literal)*maxGrowth < len(r.with) {
			return nil, fmt.Errorf("the normalizer makes the text more than %d times as long", maxGrowth)
		}
		return bytes.ReplaceAll(text, literal, r.with), nil
	}
	var out []byte
	last := 0
	limit := maxGrowth * (len(text) + 1024)
	err := r.find.each(text, func(start, end int) error {
		out = append(append(out, text[last:start]...), r.with...)
		last = end
		if len(out) > limit {
			return fmt.Errorf("the normalizer makes the text more than %d times as long", maxGrowth)
		}
		return nil
	})
	return append(out, text[last:]...), err
}

// parseNormalizers parses normalizer.
func parseNormalizers(raw []byte) (all normalizers, err error) {
	walk := components{list: "normalizers", add: func(kind string, o *object) error {
		switch kind {
		case "NFC", "NFD", "NFKC", "NFKD":
			all = append(all, unicodeForms[kind])
		case "Prepend":
			text := o.text("prepend")
			if o.err == nil && (text == "" || len(text) > maxTokenBytes) {
				o.fail("%s has %d bytes, want 1 to %d", o.path("prepend"), len(text), maxTokenBytes)
			}
			all = append(all, prepend(text))
		case "Strip":
			all = append(all, strip{left: o.flag("strip_left"), right: o.flag("strip_right")})
		case "Lowercase":
			all = append(all, lowercase{})
		case "StripAccents":
			all = append(all, stripAccents{})
		case "Nmt":
			all = append(all, nmt{})
		case "ByteLevel":
			all = append(all, byteCharacters{})
		case "BertNormalizer":
			all = append(all, parseBert(o)...)
		case "Precompiled":
			n, err := parsePrecompiled(o)
			if err != nil {
				return err
			}
			all = append(all, n)
		case "Replace":
			n, err := parseReplace(o)
			if err != nil {
				return err
			}
			all = append(all, n)
		default:
			return unknownKind(o, kind)
		}
		return o.err
	}}
	return all, walk.walk("normalizer", raw, 0)
}

// parseReplace parses the pattern and the replacement of a normalizer or decoder.
func parseReplace(o *object) (replace, error) {
	find, err := parsePattern(o, "pattern")
	if err != nil {
		return replace{}, err
	}
	with := o.text("content")
	if len(with) > maxTokenBytes {
		o.fail("%s has %d bytes, the limit is %d", o.path("content"), len(with), maxTokenBytes)
	}
	return replace{find, []byte(with)}, o.err
}
