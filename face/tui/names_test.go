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
	for _, want := range []string{"2VnaQYyo  in 512.0 KiB/s  out     450 B/s    2.0 MiB in,   1.8 KiB out  direct \"Ada\"\n", "direct \"a name of quite…\"\n"} {
		if !strings.Contains(lines, want) {
			t.Errorf("no %q in\n%s", want, lines)
		}
	}
	narrow := ansi.Strip(c.screen(60, 24, begun.Add(47*time.Second)))
	if strings.Contains(narrow, "Ada") || !strings.Contains(narrow, "2VnaQYyo") || strings.Contains(lines, "gone") {
		t.Errorf("on a narrow screen\n%s", narrow)
	}

	m := serverModel{server: s, width: 80, height: 24, at: begun.Add(time.Minute)}
	wide := strings.Join(strings.Fields(ansi.Strip(m.render())), " ")
	if want := "members 83JJ1FKj* 7ZLpJgvn* \"a name of quite…\" 2VnaQYyo* \"Ada\" 9aBcDeFg 4kLmNoPq * witness"; !strings.Contains(wide, want) {
		t.Errorf("no %q in\n%s", want, wide)
	}
	for _, id := range []string{"83JJ1FKjQv", "2VnaQYyoCd", "9aBcDeFgHi", "4kLmNoPqRs"} {
		s.see("quickstart", event.Event{Time: begun, Body: event.Named{Client: id, Name: "sixteen columns."}})
	}
	m.width = 40
	full := strings.Join(strings.Fields(ansi.Strip(m.render())), " ")
	if want := "members 83JJ1FKj* 7ZLpJgvn* 2VnaQYyo* 9aBcDeFg 4kLmNoPq * witness"; !strings.Contains(full, want) {
		t.Errorf("no %q in\n%s", want, full)
	}
}
