package tui

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/psyche-go/psyche/record/event"
)

// TestNamesStandBehindKeys checks that members' names are shown if there is space, and never
// without the key.
func TestNamesStandBehindKeys(t *testing.T) {
	c := member()
	named := []event.Named{{Client: "2VnaQYyoCd", Name: "Ada"}, {Client: "7ZLpJgvnAb", Name: "a name of quite some length"}, {Client: "4kLmNoPqRs", Name: "gone"}, {Client: "4kLmNoPqRs"}}
	s := host(t)
	for _, name := range named {
		c.See(event.Event{Time: begun, Body: name})
		s.see("quickstart", event.Event{Time: begun, Body: name})
	}
	lines := ansi.Strip(c.screen(120, 40, begun.Add(47*time.Second)))
	for _, want := range []string{`2VnaQYyo* "Ada" `, `7ZLpJgvn "a name of quite…" `, `83JJ1FKj* (you) `} {
		if !strings.Contains(lines, want) {
			t.Errorf("no %q in\n%s", want, lines)
		}
	}
	narrow := ansi.Strip(c.screen(50, 24, begun.Add(47*time.Second)))
	if strings.Contains(narrow, "Ada") || !strings.Contains(narrow, "2VnaQYyo") || strings.Contains(lines, "gone") {
		t.Errorf("on a narrow screen\n%s", narrow)
	}

	m := serverModel{server: s, frame: frame{width: 80, height: 24, at: begun.Add(time.Minute)}}
	wide := ansi.Strip(m.render())
	for _, want := range []string{`7ZLpJgvn* "a name of quite…" `, `2VnaQYyo* "Ada" `, "9aBcDeFg   "} {
		if !strings.Contains(wide, want) {
			t.Errorf("no %q in\n%s", want, wide)
		}
	}
	m.width = 40
	if narrow := ansi.Strip(m.render()); strings.Contains(narrow, "Ada") || !strings.Contains(narrow, "2VnaQYyo* ") {
		t.Errorf("on a narrow screen\n%s", narrow)
	}
}
