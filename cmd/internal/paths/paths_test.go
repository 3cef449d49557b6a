package paths

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestEmptyNames: a flag that a shell gave nothing for is refused, and does not mean the present folder; a variable
// that holds nothing, and --flag=, are as none.
func TestEmptyNames(t *testing.T) {
	for _, test := range []struct {
		args    []string
		env     string
		want    string
		problem string
	}{
		{[]string{"--data", ""}, "", "", "want a file or folder name"},
		{[]string{"--data="}, "", "", ""},
		{nil, "", "", ""},
		{nil, "set", "", ""},
		{[]string{"--data", "x"}, "", "x", ""},
		{[]string{"--more", "a", "--more", "b"}, "", "", ""},
		{[]string{"--there", ""}, "", "", "want a file or folder name"},
		{[]string{"--there", "none"}, "", "", "no such file"},
		{[]string{"a", "b"}, "", "", ""},
	} {
		var line struct {
			Data  string   `type:"path" env:"PSYCHE_TEST_DATA"`
			More  []string `type:"path" sep:"none"`
			There string   `type:"existingdir"`
			All   []string `arg:"" optional:"" type:"path"`
		}
		if test.env != "" {
			t.Setenv("PSYCHE_TEST_DATA", "")
		}
		parser, err := kong.New(&line, Option())
		if err != nil {
			t.Fatal(err)
		}
		_, err = parser.Parse(test.args)
		if (err != nil) != (test.problem != "") || err != nil && !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%q: %v", test.args, err)
		}
		if err == nil && (test.want == "" && line.Data != "" || test.want != "" && (filepath.Base(line.Data) != test.want || !filepath.IsAbs(line.Data))) {
			t.Errorf("%q: --data is %q", test.args, line.Data)
		}
	}
}
