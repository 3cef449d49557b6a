package tui

import (
	"cmp"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// page is a page that covers a display.
type page int

const (
	noPage page = iota
	helpPage
	linkPage
	leavePage // asks whether to leave
)

// frame is the state that the models of all displays share.
type frame struct {
	width, height int
	at            time.Time
	page          page
}

// newFrame returns the state of a new display. The terminal soon sends its size.
func newFrame() frame { return frame{width: 80, height: 24} }

// manual describes the keys and signs of one display.
type manual struct {
	leave string // effect of q
	asks  bool   // q asks first
	link  string // command with which others join; empty: unknown
	lost  string // text in place of an unknown command; empty: the display has no key for it
	keys  [][2]string
	signs [][2]string
}

// command returns the text of the page with the link; "": the display has no such page.
func (m manual) command() string { return cmp.Or(m.link, m.lost) }

// update handles a message as all displays do. It reports whether there is nothing else to do for it.
func (f *frame) update(message tea.Msg, t *terminal, m manual) (done bool) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		f.width, f.height = message.Width, message.Height
		return true
	case tea.KeyPressMsg:
		return f.press(message.String(), t, m)
	case tickMsg:
		f.at = time.Time(message)
	}
	return false
}

// press handles a key, and reports whether it has an effect.
func (f *frame) press(key string, t *terminal, m manual) bool {
	page := f.page
	switch {
	case key == "ctrl+c":
		f.page = noPage // so that the screen shows that the process ends
		t.interrupt()
	case page != noPage:
		f.page = noPage
		if page == leavePage && key == "y" {
			t.leave()
		}
	case key == "q" && m.asks && !t.pressed.Load():
		f.page = leavePage
	case key == "q":
		t.leave()
	case key == "?":
		f.page = helpPage
	case key == "l" && m.command() != "":
		f.page = linkPage
	default:
		return false
	}
	return true
}

// size returns the size of the layout, which is not smaller than its minimum.
func (f frame) size() (width, height int) {
	return max(f.width, minWidth), max(f.height, minHeight)
}

// cover draws the page that covers the display. It reports whether there is one.
func (f frame) cover(m manual) (drawn string, covers bool) {
	width, height := f.size()
	switch f.page {
	case helpPage:
		return screen(m.help(width), width, height), true
	case linkPage:
		title := "others join with:   (any key: back)"
		if m.link == "" {
			title = "no link   (any key: back)"
		}
		lines := append([]string{title, ""}, wrapped(m.command(), max(f.width, 1))...) // not the minimum width: the link must be complete
		if len(lines) > height {
			lines = lines[2:]
		}
		return screen(lines, width, height), true
	}
	return "", false
}

// help describes the keys and the signs.
func (m manual) help(width int) []string {
	keys := [][2]string{{"q", m.leave}}
	if m.command() != "" {
		keys = append(keys, [2]string{"l", "show the command with which others join"})
	}
	keys = append(append(keys, m.keys...), [2]string{"ctrl+c", "like q, without a question; again: end at once"}, [2]string{"?", "show this help"})
	lines := []string{"keys   (any key: back)"}
	draw := func(list [][2]string) {
		for _, item := range list {
			for i, line := range strings.Split(ansi.Wordwrap(strong.Render(item[0])+"  "+item[1], width-4, ""), "\n") {
				lines = append(lines, strings.Repeat(" ", 2+2*min(i, 1))+line)
			}
		}
	}
	draw(keys)
	if len(m.signs) > 0 {
		lines = append(lines, "signs")
		draw(m.signs)
	}
	return lines
}

// urgent reports whether foot shows more than the keys: then small screens show it too.
func (f frame) urgent(t *terminal) bool { return f.page == leavePage || t.pressed.Load() }

// foot lists the keys in one line, or shows the open question.
func (f frame) foot(m manual, t *terminal) string {
	switch {
	case t.pressed.Load():
		return strong.Render("leaving; ctrl+c ends at once")
	case f.page == leavePage:
		return bad.Render("y or n: " + m.leave + "?")
	}
	text := "q: leave"
	if m.command() != "" {
		text += "   l: link"
	}
	for _, key := range m.keys {
		text += "   " + key[0] + ": " + key[1]
	}
	return faint.Render(text + "   ?: help")
}
