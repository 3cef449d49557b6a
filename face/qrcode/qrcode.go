package qrcode

import (
	"fmt"
	"strings"

	"rsc.io/qr"
)

// quiet is how many light modules have to surround a code.
const quiet = 4

// Code is a text as modules, dark and light.
type Code struct{ modules *qr.Code }

// Of returns the code of a text of up to 2,953 bytes, with as little redundancy as there is: screens are not soiled.
func Of(text string) (Code, error) {
	modules, err := qr.Encode(text, qr.L)
	if err != nil {
		return Code{}, fmt.Errorf("make a QR code of %d bytes: %w", len(text), err)
	}
	return Code{modules}, nil
}

// Size returns how many modules, and columns of a terminal, the code with its margin has in each direction.
func (c Code) Size() int { return c.modules.Size + 2*quiet }

// dark reports whether a module is dark, counted with the margin.
func (c Code) dark(x, y int) bool { return c.modules.Black(x-quiet, y-quiet) }

// Text returns the code as lines, each of which shows two rows of modules. With coloured it names black and white by
// escape sequences; without, it is right where text is light and what is behind it dark.
func (c Code) Text(coloured bool) string {
	var text strings.Builder
	for y := 0; y < c.Size(); y += 2 {
		if coloured {
			text.WriteString("\x1b[38;5;231;48;5;16m")
		}
		for x := range c.Size() {
			below := y+1 < c.Size() && !c.dark(x, y+1)
			switch above := !c.dark(x, y); {
			case above && below:
				text.WriteString("█")
			case above:
				text.WriteString("▀")
			case below:
				text.WriteString("▄")
			default:
				text.WriteString(" ")
			}
		}
		if coloured {
			text.WriteString("\x1b[0m")
		}
		text.WriteString("\n")
	}
	return text.String()
}

// SVG returns the code as a picture, black on white whatever is around it.
func (c Code) SVG() []byte {
	var path strings.Builder
	for y := range c.Size() {
		for x := 0; x < c.Size(); x++ {
			from := x
			for c.dark(x, y) {
				x++
			}
			if x > from {
				fmt.Fprintf(&path, "M%d %dh%dv1h-%dz", from, y, x-from, x-from)
			}
		}
	}
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" shape-rendering="crispEdges"><path fill="#fff" d="M0 0h%dv%dH0z"/><path d="%s"/></svg>`,
		c.Size(), c.Size(), c.Size(), c.Size(), path.String())
}
