package filestart

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/fuzztest"
)

// wide16 encodes a text in UTF-16, big-endian if big is set.
func wide16(text string, big bool) string {
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		pair := []byte{byte(unit), byte(unit >> 8)}
		if big {
			pair[0], pair[1] = pair[1], pair[0]
		}
		out = append(out, pair...)
	}
	return string(out)
}

const pointerFile = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"

func TestStarts(t *testing.T) {
	const said = "id,text\n1,béta 🙂 and more than the first bytes\n"
	for name, test := range map[string]struct {
		file  string
		check error  // result of Check
		text  string // result of Text
		err   error  // error of Text
	}{
		"UTF-8":              {said, nil, said, nil},
		"empty":              {"", nil, "", nil},
		"one byte":           {"a", nil, "a", nil},
		"mark":               {"\ufeff" + said, ErrMark, said, nil},
		"mark only":          {"\ufeff", ErrMark, "", nil},
		"second mark":        {"\ufeff\ufeffa", ErrMark, "\ufeffa", nil},
		"UTF-16LE":           {wide16("\ufeff"+said, false), ErrUTF16, said, nil},
		"UTF-16BE":           {wide16("\ufeff"+said, true), ErrUTF16, said, nil},
		"UTF-16 mark only":   {"\xff\xfe", ErrUTF16, "", nil},
		"unmarked UTF-16LE":  {wide16(said, false), ErrUTF16, "", ErrUTF16},
		"unmarked UTF-16BE":  {wide16(said, true), ErrUTF16, "", ErrUTF16},
		"odd UTF-16":         {wide16("\ufeffab", false) + "c", ErrUTF16, "ab", errDamaged},
		"high surrogate":     {wide16("\ufeffab", false) + "\x3d\xd8", ErrUTF16, "ab", errDamaged},
		"low surrogate":      {wide16("\ufeffa", false) + "\x42\xdea\x00", ErrUTF16, "a", errDamaged},
		"half, then a":       {wide16("\ufeffa", false) + "\x3d\xd8a\x00", ErrUTF16, "a", errDamaged},
		"UTF-32LE":           {"\xff\xfe\x00\x00a\x00\x00\x00", ErrUTF32, "", ErrUTF32},
		"UTF-32BE":           {"\x00\x00\xfe\xff\x00\x00\x00a", ErrUTF32, "", ErrUTF32},
		"pointer":            {pointerFile, ErrPointer, "", ErrPointer},
		"gzip":               {"\x1f\x8b\x08\x00\x00", ErrPacked, "", ErrPacked},
		"zstd":               {"\x28\xb5\x2f\xfd\x04", ErrPacked, "", ErrPacked},
		"zip":                {"PK\x03\x04\x14\x00", ErrPacked, "", ErrPacked},
		"xz":                 {"\xfd7zXZ\x00\x00", ErrPacked, "", ErrPacked},
		"bzip2":              {"BZh91AY&SY\x00", ErrPacked, "", ErrPacked},
		"text that looks so": {"version https://example.org", nil, "version https://example.org", nil},
		"Latin-1":            {"\xe9t\xe9", nil, "\xe9t\xe9", nil},
		"NUL":                {"a\x00bc", nil, "a\x00bc", nil},
	} {
		if err := Check([]byte(test.file)); !errors.Is(err, test.check) {
			t.Errorf("%s: Check: %v, want %v", name, err, test.check)
		}
		for how, from := range map[string]io.Reader{
			"whole": strings.NewReader(test.file), "bytes": iotest.OneByteReader(strings.NewReader(test.file)), "early end": iotest.DataErrReader(strings.NewReader(test.file)),
		} {
			for size, read := range map[string]func(io.Reader) io.Reader{"all": func(r io.Reader) io.Reader { return r }, "one": iotest.OneByteReader} {
				got, err := io.ReadAll(read(Text(from)))
				if string(got) != test.text || !errors.Is(err, test.err) {
					t.Errorf("%s, %s, %s: %q, %v; want %q, %v", name, how, size, got, err, test.text, test.err)
				}
				from = strings.NewReader(test.file)
			}
		}
	}
}

// TestTextKeepsErrors checks that Text returns the text before an error, then the error.
func TestTextKeepsErrors(t *testing.T) {
	gone := errors.New("gone")
	for _, start := range []string{"a", "\ufeffa", strings.Repeat("a", 2*Size), wide16("\ufeffa", true), wide16("\ufeff"+strings.Repeat("a", Size), false)} {
		got, err := io.ReadAll(Text(io.MultiReader(strings.NewReader(start), iotest.ErrReader(gone))))
		if !errors.Is(err, gone) || strings.Trim(string(got), "a") != "" || len(got) == 0 {
			t.Errorf("%q: got %q, %v; want error %v and strings.Trim(string(got), \"a\") == \"\" and len(got) != 0", start, got, err, gone)
		}
	}
}

// FuzzText checks that Text does not change UTF-8, and that it decodes UTF-16.
func FuzzText(f *testing.F) {
	f.Add("a,b\n1,é🙂")
	f.Add(pointerFile)
	f.Add("\xff\xfe\x3d\xd8")
	fuzztest.Run(f, func(t *testing.T, file string) {
		got, err := io.ReadAll(Text(strings.NewReader(file)))
		if Check([]byte(file)) == nil && (err != nil || string(got) != file) {
			t.Fatalf("%q: %q, %v", file, got, err)
		}
		if !utf8.ValidString(file) || strings.HasPrefix(file, "\x00\x00") {
			return
		}
		for _, big := range []bool{false, true} {
			if got, err := io.ReadAll(Text(strings.NewReader(wide16("\ufeff"+file, big)))); err != nil && !errors.Is(err, ErrUTF32) || err == nil && string(got) != file {
				t.Fatalf("%q in UTF-16: %q, %v", file, got, err)
			}
		}
	})
}
