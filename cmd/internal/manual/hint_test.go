package manual

import (
	"testing"

	"github.com/alecthomas/kong"
)

// TestHint checks that a mistyped flag of a command leads the user to the help of that command.
func TestHint(t *testing.T) {
	for want, args := range map[string][]string{
		"program --help":            {"none"},
		"program run --help":        {"run", "none"},
		"program run status --help": {"run", "status", "--none"},
	} {
		var line struct {
			Run struct {
				Status struct{} `cmd:""`
				Stop   struct{} `cmd:""`
			} `cmd:""`
			Other struct{} `cmd:""`
		}
		parser, err := kong.New(&line, kong.Name("program"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = parser.Parse(args); err == nil {
			t.Fatalf("%q is understood", args)
		}
		if got := hint("program", err); got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}
