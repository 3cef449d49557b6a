package main

import (
	"fmt"
	"math"
	"os"
	"strings"
)

const (
	panelWidth, panelHeight = 400, 260
	marginLeft, marginTop   = 46, 34
	marginBottom, gap       = 40, 18
	legendColumns           = 4
	legendLine              = 15
)

// strokes are the line styles of the systems: Psyche's, in strong colours, come first. Dashes
// distinguish the others without colour.
var strokes = []string{
	`stroke="#b0202e" stroke-width="2.5"`, `stroke="#e07b39" stroke-width="2.5"`,
	`stroke="#1f4e8c" stroke-width="1.5"`, `stroke="#1f4e8c" stroke-width="1.5" stroke-dasharray="6 3"`,
	`stroke="#3c8c5a" stroke-width="1.5" stroke-dasharray="2 3"`,
	`stroke="#6b4c9a" stroke-width="1.5"`, `stroke="#6b4c9a" stroke-width="1.5" stroke-dasharray="6 3"`,
	`stroke="#8a6d1f" stroke-width="1.5"`,
}

// writePicture draws held-out loss over seconds, with a panel for each measured link.
func writePicture(path string, r rows, done map[string]measurement) error {
	var panels []string
	var shown []system
	for _, s := range r.System {
		if _, found := curveOf(done, s); found && s.Only == "" {
			shown = append(shown, s)
		}
	}
	for _, l := range r.Link {
		if text := panel(l, shown, done); text != "" {
			panels = append(panels, text)
		}
	}
	if len(panels) == 0 {
		return nil
	}
	columns := min(2, len(panels))
	lines := (len(panels) + columns - 1) / columns
	width := columns*(panelWidth+gap) + gap
	legendHeight := legendLine * (1 + (len(shown)+legendColumns-1)/legendColumns)
	height := lines*(panelHeight+gap) + gap + legendHeight
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" font-family=\"sans-serif\" font-size=\"11\">\n", width, height)
	fmt.Fprintf(&b, "<title>Held-out loss over seconds, a panel for each link</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height)
	for i, s := range shown {
		x, y := gap+i%legendColumns*(width-2*gap)/min(len(shown), legendColumns), 18+i/legendColumns*legendLine
		fmt.Fprintf(&b, "<path d=\"M%d %dh18\" fill=\"none\" %s/><text x=\"%d\" y=\"%d\" font-size=\"10\">%s</text>\n", x, y, strokes[i%len(strokes)], x+22, y+4, escape(s.title()))
	}
	for i, text := range panels {
		fmt.Fprintf(&b, "<g transform=\"translate(%d %d)\">\n%s</g>\n", gap+i%columns*(panelWidth+gap), legendHeight+gap+i/columns*(panelHeight+gap), text)
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// panel draws a link. The time axis ends with the slowest Psyche system's whole run. It returns ""
// without systems.
func panel(l link, shown []system, done map[string]measurement) string {
	longest, low, high := 0.0, math.Inf(1), 0.0
	for _, s := range shown {
		m, found := linkOf(done, l, s)
		if !found {
			continue
		}
		curve, _ := curveOf(done, s)
		if last := curve.Points[len(curve.Points)-1]; s.State != "" || longest == 0 {
			longest = max(longest, float64(last.Step)*m.exchangeSeconds())
		}
		low, high = min(low, lowest(curve)), max(high, curve.Points[0].HeldOut)
	}
	if longest == 0 {
		return ""
	}
	low, high = math.Floor(low*2)/2, math.Ceil(high*2)/2
	inner, tall := float64(panelWidth-marginLeft), float64(panelHeight-marginTop-marginBottom)
	x := func(seconds float64) float64 { return marginLeft + inner*seconds/longest }
	y := func(loss float64) float64 { return marginTop + tall*(high-loss)/(high-low) }
	var b strings.Builder
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"20\" font-size=\"13\" font-weight=\"bold\">%s</text>\n", marginLeft, escape(l.Name))
	for loss := low; loss <= high; loss += 0.5 {
		fmt.Fprintf(&b, "<path d=\"M%d %.1fh%.1f\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.1f</text>\n", marginLeft, y(loss), inner, marginLeft-6, y(loss)+4, loss)
	}
	for i := range 5 {
		seconds := longest * float64(i) / 4
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f s</text>\n", x(seconds), panelHeight-marginBottom+16, seconds)
	}
	for i, s := range shown {
		if m, found := linkOf(done, l, s); found {
			curve, _ := curveOf(done, s)
			fmt.Fprintf(&b, "<path d=\"%s\" fill=\"none\" %s/>\n", trace(curve, m.exchangeSeconds(), longest, x, y), strokes[i%len(strokes)])
		}
	}
	return b.String()
}

// trace returns a curve up to longest seconds.
func trace(curve measurement, each, longest float64, x, y func(float64) float64) string {
	var parts []string
	before := point{}
	for _, p := range curve.Points {
		if p.HeldOut == 0 {
			continue
		}
		at, loss, out := float64(p.Step)*each, p.HeldOut, false
		if out = at > longest; out {
			begun := float64(before.Step) * each
			at, loss = longest, before.HeldOut+(p.HeldOut-before.HeldOut)*(longest-begun)/(at-begun)
		}
		command := "L"
		if len(parts) == 0 {
			command = "M"
		}
		if parts = append(parts, fmt.Sprintf("%s%.1f %.1f", command, x(at), y(loss))); out {
			break
		}
		before = p
	}
	return strings.Join(parts, "")
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;").Replace(text)
}
