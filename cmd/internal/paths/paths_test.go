package paths

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/golden"
)

// TestEmptyNames: a flag that a shell gave nothing for is refused, and does not mean the present folder; a variable
// that holds nothing, and --flag=, are as none.
func TestEmptyNames(t *testing.T) {
	for _, test := range []struct {
		args []string
		env  string
		want string
		ok   bool
	}{
		{[]string{"--data", ""}, "", "", false},
		{[]string{"--data="}, "", "", true},
		{nil, "", "", true},
		{nil, "set", "", true},
		{[]string{"--data", "x"}, "", "x", true},
		{[]string{"--more", "a", "--more", "b"}, "", "", true},
		{[]string{"--there", ""}, "", "", false},
		{[]string{"--there", "none"}, "", "", false},
		{[]string{"a", "b"}, "", "", true},
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
		if !test.ok {
			golden.Message(t, strings.Join(test.args, " "), err, kong.ExpandPath(""), "HERE")
		} else if err != nil {
			t.Errorf("%q: %v", test.args, err)
		}
		if err == nil && (test.want == "" && line.Data != "" || test.want != "" && (filepath.Base(line.Data) != test.want || !filepath.IsAbs(line.Data))) {
			t.Errorf("%q: --data is %q", test.args, line.Data)
		}
	}
}
