package tui

import (
	"flag"
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

var captured = flag.String("tui.of", "", "screen that tmux capture-pane -e -p printed: TestPicture writes it as FILE.svg")

// Size of a cell of a picture, in pixels.
const (
	cellWidth  = 9
	cellHeight = 19
	margin     = 12
)

// sgr is a sequence that selects colours, and the text up to the next sequence.
var sgr = regexp.MustCompile(`(?:\x1b\[([0-9;]*)m)?([^\x1b]*)`)

// TestPicture draws a captured screen for the documentation. Bars, lines and charts are shapes, so
// no special font is needed. chromium --headless --screenshot then makes a picture of it.
func TestPicture(t *testing.T) {
	if *captured == "" {
		t.Skip("no screen to take a picture of: -tui.of names one")
	}
	screen, err := os.ReadFile(*captured)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(screen), "\n"), "\n")
	var drawn strings.Builder
	columns := 0
	p := pen{out: &drawn}
	for row, line := range lines {
		columns = max(columns, ansi.StringWidth(line))
		p.line(line, float64(margin+row*cellHeight))
	}
	width, height := 2*margin+columns*cellWidth, 2*margin+len(lines)*cellHeight
	svg := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="DejaVu Sans Mono, monospace" font-size="15" shape-rendering="crispEdges">`+
		"\n<rect width=\"100%%\" height=\"100%%\" fill=\"#16181d\"/>\n%s</svg>\n", width, height, drawn.String())
	if err := os.WriteFile(*captured+".svg", []byte(svg), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d×%d pixels", width, height)
}

// pen draws text in a style.
type pen struct {
	out         *strings.Builder
	bold, faint bool
	colour      string
}

func (p *pen) line(text string, y float64) {
	x := float64(margin)
	for _, part := range sgr.FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(part[0], "\x1b") {
			p.choose(part[1])
		}
		for _, r := range part[2] {
			p.cell(r, x, y)
			x += cellWidth
		}
	}
}

// choose applies a sequence of styles. It ignores styles that displays do not use.
func (p *pen) choose(styles string) {
	for style := range strings.SplitSeq(styles, ";") {
		switch style {
		case "", "0":
			p.bold, p.faint, p.colour = false, false, ""
		case "1":
			p.bold = true
		case "2":
			p.faint = true
		case "22":
			p.bold, p.faint = false, false
		case "31":
			p.colour = "#ff7b72"
		case "32":
			p.colour = "#7ee787"
		case "39":
			p.colour = ""
		}
	}
}

func (p *pen) cell(r rune, x, y float64) {
	fill := p.colour
	switch {
	case fill == "" && p.faint:
		fill = "#8b93a1"
	case fill == "":
		fill = "#e6e9ef"
	}
	rect := func(x, y, width, height float64, opacity string) {
		fmt.Fprintf(p.out, "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"%s\" opacity=\"%s\"/>\n", x, y, width, height, fill, opacity)
	}
	switch {
	case r == ' ' || r == 0x2800:
	case r == '█':
		rect(x, y+2, cellWidth, cellHeight-5, "1")
	case r == '░':
		rect(x, y+2, cellWidth, cellHeight-5, "0.25")
	case r == '─':
		rect(x, y+cellHeight/2, cellWidth, 1, "1")
	case r > 0x2800 && r < 0x2900:
		for column := range dots {
			for row, bit := range dots[column] {
				if r&bit != 0 {
					const part = cellHeight / 4.0
					rect(x+1+float64(column)*cellWidth/2, y+float64(3-row)*part+part/4, 3, 3, "1")
				}
			}
		}
	default:
		weight := ""
		if p.bold {
			weight = ` font-weight="bold"`
		}
		fmt.Fprintf(p.out, "<text x=\"%g\" y=\"%g\" fill=\"%s\"%s>%s</text>\n", x, y+14, fill, weight, html.EscapeString(string(r)))
	}
}
