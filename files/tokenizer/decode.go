package tokenizer

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoder transforms the texts of tokens. The joined results of the last decoder are the text.
type decoder interface {
	decode(tokens []string) ([]string, error)
}

// alphabetBytes appends the bytes of a token of a byte-level vocabulary. ok is false for a token
// with other characters.
func alphabetBytes(to []byte, token string) (raw []byte, ok bool) {
	start := len(to)
	for _, r := range token {
		b, found := byteOf[r]
		if !found {
			return to[:start], false
		}
		to = append(to, b)
	}
	return to, true
}

// byteOf is the inverse of alphabet.
var byteOf = func() map[rune]byte {
	all := make(map[rune]byte, len(alphabet))
	for b, r := range alphabet {
		all[r] = byte(b)
	}
	return all
}()

type byteLevelDecoder struct{ last bool } // last: bytes that are not UTF-8 may stay

func (d byteLevelDecoder) decode(tokens []string) ([]string, error) {
	var raw []byte
	for _, token := range tokens {
		var ok bool
		if raw, ok = alphabetBytes(raw, token); !ok {
			raw = append(raw, token...)
		}
	}
	if !d.last {
		raw = lossy(raw)
	}
	return []string{string(raw)}, nil
}

// lossy replaces invalid UTF-8 as the Unicode standard recommends: one U+FFFD for every maximal
// subpart of a character (section 3.9, U+FFFD Substitution of Maximal Subparts).
func lossy(raw []byte) []byte {
	if utf8.Valid(raw) {
		return raw
	}
	out := make([]byte, 0, len(raw)+16)
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		if r == utf8.RuneError && size == 1 {
			out = append(out, "\uFFFD"...)
			raw = raw[maximalSubpart(raw):]
			continue
		}
		out = append(out, raw[:size]...)
		raw = raw[size:]
	}
	return out
}

// maximalSubpart returns the length of the longest valid start of a character, at least 1.
func maximalSubpart(raw []byte) int {
	for n := min(len(raw), utf8.UTFMax-1); n > 1; n-- {
		if !utf8.FullRune(raw[:n]) { // true also for bytes that cannot become a character
			return n
		}
	}
	return 1
}

// byteFallbackDecoder joins tokens <0x00> to <0xFF>.
type byteFallbackDecoder struct{}

func fallbackByte(token string) (b byte, ok bool) {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	value, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(value), err == nil
}

func (byteFallbackDecoder) decode(tokens []string) ([]string, error) {
	out := make([]string, 0, len(tokens))
	var raw []byte
	flush := func() {
		if utf8.Valid(raw) {
			if len(raw) > 0 {
				out = append(out, string(raw))
			}
		} else {
			for range raw {
				out = append(out, "\uFFFD")
			}
		}
		raw = raw[:0]
	}
	for _, token := range tokens {
		if b, ok := fallbackByte(token); ok {
			raw = append(raw, b)
			continue
		}
		flush()
		out = append(out, token)
	}
	flush()
	return out, nil
}

type fuseDecoder struct{}

func (fuseDecoder) decode(tokens []string) ([]string, error) {
	return []string{strings.Join(tokens, "")}, nil
}

// stripDecoder removes a limited number of a character at the ends of every token.
type stripDecoder struct {
	content    string
	start, end int
}

func (d stripDecoder) decode(tokens []string) ([]string, error) {
	out := make([]string, len(tokens))
	for i, token := range tokens {
		for n := 0; n < d.start && strings.HasPrefix(token, d.content); n++ {
			token = token[len(d.content):]
		}
		for n := 0; n < d.end && strings.HasSuffix(token, d.content); n++ {
			token = token[:len(token)-len(d.content)]
		}
		out[i] = token
	}
	return out, nil
}

type metaspaceDecoder struct {
	mark   string
	prefix bool // the first token loses its marks
}

func (d metaspaceDecoder) decode(tokens []string) ([]string, error) {
	out := make([]string, len(tokens))
	for i, token := range tokens {
		with := " "
		if i == 0 && d.prefix {
			with = ""
		}
		out[i] = strings.ReplaceAll(token, d.mark, with)
	}
	return out, nil
}

type replaceDecoder struct{ replace }

func (d replaceDecoder) decode(tokens []string) ([]string, error) {
	out := make([]string, len(tokens))
	for i, token := range tokens {
		text, err := normalizers{d.replace}.normalize([]byte(token))
		if err != nil {
			return nil, err
		}
		out[i] = string(text)
	}
	return out, nil
}

// parseDecoders parses decoder.
func parseDecoders(raw []byte) (all []decoder, err error) {
	walk := components{list: "decoders", add: func(kind string, o *object) error {
		var d decoder
		switch kind {
		case "ByteLevel":
			o.flag("add_prefix_space", true)
			o.flag("trim_offsets", true)
			o.flag("use_regex", true)
			d = byteLevelDecoder{}
		case "ByteFallback":
			d = byteFallbackDecoder{}
		case "Fuse":
			d = fuseDecoder{}
		case "Strip":
			d = stripDecoder{string(o.character("content")), o.count("start", maxTokenBytes), o.count("stop", maxTokenBytes)}
		case "Metaspace":
			mark, scheme, _ := o.metaspace()
			d = metaspaceDecoder{string(mark), scheme != "never"}
		case "WordPiece":
			d = wordPieceDecoder{o.text("prefix"), o.flag("cleanup")}
		case "Replace":
			r, err := parseReplace(o)
			if err != nil {
				return err
			}
			d = replaceDecoder{r}
		default:
			return unknownKind(o, kind)
		}
		all = append(all, d)
		return o.err
	}}
	if err := walk.walk("decoder", raw, 0); err != nil {
		return nil, err
	}
	if n := len(all); n > 0 {
		if _, ok := all[n-1].(byteLevelDecoder); ok {
			all[n-1] = byteLevelDecoder{last: true}
		}
	}
	return all, nil
}

// decode returns the text of tokens.
func (t *Tokenizer) decode(tokens []string) ([]byte, error) {
	if t.decoders == nil {
		return []byte(strings.Join(tokens, " ")), nil
	}
	for _, d := range t.decoders {
		var err error
		if tokens, err = d.decode(tokens); err != nil {
			return nil, err
		}
	}
	var text bytes.Buffer
	for _, token := range tokens {
		text.WriteString(token)
	}
	return text.Bytes(), nil
}
