package published_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/cmd/internal/published"
)

type commands struct {
	Run struct {
		Tui    bool   `default:"true" negatable:""`
		Plain  bool   `help:"A switch."`
		Name   string `help:"A name."`
		Count  int    `env:"OTHER" default:"3"`
		Word   string `arg:"" optional:""`
		Hidden bool   `hidden:""`
	} `cmd:"" help:"Run it."`
	PrintAllHelp published.Manual `cmd:"" hidden:""`
}

func parse(t *testing.T, args ...string) (commands, *kong.Context, error) {
	t.Helper()
	var into commands
	parser, err := kong.New(&into, kong.Name("program"), published.Switches(), published.Environment("run", "tui", "name", "count"))
	if err != nil {
		t.Fatal(err)
	}
	line, err := parser.Parse(args)
	return into, line, err
}

func TestSwitches(t *testing.T) {
	for line, want := range map[string]struct {
		tui, plain bool
		word       string
	}{
		"run":                         {true, false, ""},
		"run --tui":                   {true, false, ""},
		"run --no-tui":                {false, false, ""},
		"run --tui false":             {false, false, ""},
		"run --tui FALSE":             {false, false, ""},
		"run --tui=false --plain":     {false, true, ""},
		"run --tui true --plain true": {true, true, ""},
		"run --no-tui=false":          {true, false, ""},
		"run --tui other":             {true, false, "other"},
		"run --plain -- false":        {true, true, "false"},
	} {
		got, _, err := parse(t, strings.Fields(line)...)
		if err != nil || got.Run.Tui != want.tui || got.Run.Plain != want.plain || got.Run.Word != want.word {
			t.Errorf("%s: got %+v, %v", line, got.Run, err)
		}
	}
	_, _, err := parse(t, "run", "--tui=maybe")
	golden.Message(t, "maybe", err)
}

func TestEnvironment(t *testing.T) {
	t.Setenv("TUI", "false")
	t.Setenv("NAME", "of the environment")
	t.Setenv("COUNT", "5") // --count reads a different variable, OTHER
	t.Setenv("OTHER", "7")
	if got, _, err := parse(t, "run"); err != nil || got.Run.Tui || got.Run.Name != "of the environment" || got.Run.Count != 7 {
		t.Errorf("got %+v, %v", got.Run, err)
	}
	if got, _, err := parse(t, "run", "--tui", "--name", "given"); err != nil || !got.Run.Tui || got.Run.Name != "given" {
		t.Errorf("got %+v, %v; want nil error and got.Run.Tui and got.Run.Name == \"given\"", got.Run, err)
	}
	for _, option := range []kong.Option{published.Environment("run", "nothing"), published.Environment("walk")} {
		if _, err := kong.New(&commands{}, option); err == nil {
			t.Error("an unknown flag or command was accepted")
		}
	}
}

func TestArguments(t *testing.T) {
	for line, want := range map[string]string{
		"":                                       "",
		"psyche server run":                      "server run",
		"/usr/bin/psyche-centralized-server run": "server run",
		"./psyche-centralized-local-testnet start": "testnet start",
		"psyche-centralized-client train --run-id": "train --run-id",
		"psyche-centralized-server.exe":            "server",
	} {
		if got := published.Arguments(strings.Fields(line)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: got %v, want %s", line, got, want)
		}
	}
}

func TestManual(t *testing.T) {
	_, line, err := parse(t, "print-all-help", "--markdown")
	if err != nil {
		t.Fatal(err)
	}
	write := func(m published.Manual, under ...string) (string, error) {
		var text strings.Builder
		err := m.Write(&text, line, under...)
		return text.String(), err
	}
	text, err := write(published.Manual{Markdown: true})
	if err != nil || !strings.Contains(text, "## `program run") || !strings.Contains(text, "(default `3`; environment `OTHER`)") || strings.Contains(text, "hidden") {
		t.Errorf("%v\n%s", err, text)
	}
	if text, err := write(published.Manual{Markdown: true}, "run"); err != nil || !strings.HasPrefix(text, "# `program run") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := write(published.Manual{Markdown: true}, "walk"); err == nil {
		t.Error("a page of an unknown command was accepted")
	}
	if _, err := write(published.Manual{}); err == nil {
		t.Error("a page in no format")
	}
}
