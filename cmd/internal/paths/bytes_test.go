package paths

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/golden"
)

// bytesLine is a command line with every kind of text.
type bytesLine struct {
	Text  string   `short:"t" env:"PSYCHE_TEST_TEXT"`
	Path  string   `type:"path"`
	File  string   `type:"existingfile"`
	Dir   string   `type:"existingdir"`
	Many  []string `sep:"none"`
	Comma []string
	Paths []string `type:"path" sep:"none"`
	All   []string `arg:"" optional:"" type:"existingfile"`
}

// TestBytes wants arguments that are not UTF-8 to keep their bytes, or to be refused by name.
func TestBytes(t *testing.T) {
	const odd = "caf\xe9"
	dir := t.TempDir()
	file, folder := filepath.Join(dir, odd+".txt"), filepath.Join(dir, odd)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Skipf("needs a file system that takes any bytes: %v", err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	here := kong.ExpandPath(odd)
	for _, test := range []struct {
		args []string
		got  func(l bytesLine) []string
		want []string
	}{
		{[]string{"--text", odd}, func(l bytesLine) []string { return []string{l.Text} }, []string{odd}},
		{[]string{"--text=\xff\xfe"}, func(l bytesLine) []string { return []string{l.Text} }, []string{"\xff\xfe"}},
		{[]string{"-t" + odd}, func(l bytesLine) []string { return []string{l.Text} }, []string{odd}},
		{[]string{"--path", odd}, func(l bytesLine) []string { return []string{l.Path} }, []string{here}},
		{[]string{"--path", "a\xc3/\xed\xa0\x80"}, func(l bytesLine) []string { return []string{l.Path} }, []string{kong.ExpandPath("a\xc3/\xed\xa0\x80")}},
		{[]string{"--file", file, "--dir", folder}, func(l bytesLine) []string { return []string{l.File, l.Dir} }, []string{file, folder}},
		{[]string{"--many", odd, "--many", "é,b"}, func(l bytesLine) []string { return l.Many }, []string{odd, "é,b"}},
		{[]string{"--paths", odd, "--paths", "/b"}, func(l bytesLine) []string { return l.Paths }, []string{here, "/b"}},
		{[]string{"--text", "a", file, file}, func(l bytesLine) []string { return l.All }, []string{file, file}},
		{[]string{"--comma", "é,b"}, func(l bytesLine) []string { return l.Comma }, []string{"é", "b"}},
		{args: []string{"--comma", odd + ",b"}},
		{args: []string{"--file", folder}},
		{args: []string{"--dir", file}},
		{args: []string{"--dir", folder + "\xe9"}},
		{args: []string{"--none\xe9"}},
	} {
		var l bytesLine
		parser, err := kong.New(&l, Option())
		if err != nil {
			t.Fatal(err)
		}
		_, err = parser.Parse(test.args)
		if test.got == nil {
			golden.Message(t, strings.ReplaceAll(strings.Join(test.args, " "), dir, "DIR"), err)
		} else if err != nil || !slices.Equal(test.got(l), test.want) {
			t.Errorf("%q: %q, %v; want %q", test.args, l, err, test.want)
		}
	}
	t.Setenv("PSYCHE_TEST_TEXT", odd)
	var l bytesLine
	parser, err := kong.New(&l, Option())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(nil); err != nil || l.Text != odd {
		t.Errorf("of a variable: %q, %v", l.Text, err)
	}
}
