package qrcode

import (
	"fmt"
	"strings"

	"rsc.io/qr"
)

// quiet is the width of the light margin that a code must have, in modules.
const quiet = 4

// Code is a text encoded as dark and light modules.
type Code struct{ modules *qr.Code }

// Of returns the code of a text of up to 2,953 bytes. It uses the lowest error correction level,
// because screens do not get dirty.
func Of(text string) (Code, error) {
	modules, err := qr.Encode(text, qr.L)
	if err != nil {
		return Code{}, fmt.Errorf("make a QR code of %d bytes: %w", len(text), err)
	}
	return Code{modules}, nil
}

// Size returns the width and height of the code with its margin, in modules. On a terminal, the
// code has the same width in columns.
func (c Code) Size() int { return c.modules.Size + 2*quiet }

// dark reports whether a module is dark. Coordinates include the margin.
func (c Code) dark(x, y int) bool { return c.modules.Black(x-quiet, y-quiet) }

// Text returns the code as lines, each with two rows of modules. If coloured is true, escape
// sequences set black and white. Otherwise the code is correct on terminals with light text on a
// dark background.
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

// SVG returns the code as a picture, always black on white.
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
