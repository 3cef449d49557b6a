package dash_test

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/face/dash/dashtest"
)

// documented maps screens and windows of TestFirstScreen to the pictures of the documentation.
var documented = map[string]string{
	"live desktop": "dashboard-live", "waiting desktop": "dashboard-waiting", "finished desktop-dark": "dashboard-dark", "cheating phone": "dashboard-small", "dead desktop": "dashboard-silent",
}

// TestPictures takes a picture of the members of a run with many members, for the documentation.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("-dash.pictures names no folder for pictures")
	}
	b := open(t)
	crowd := dashtest.Options{RunID: "crowd", Members: 160, Rounds: 60, RoundsPerEpoch: 20, Silent: 4, Hang: 9, Eject: 5, Wrong: 3, Boast: 2, Audits: 10, Cheat: 11, Slander: 12}
	web := page(t, crowd)
	b.show(t, web.URL, crowd.RunID, "light", 1440, 900)
	b.text(t, `document.querySelector("#s-members").closest("section").scrollIntoView(), ""`)
	b.window(t, "dashboard-crowd")
}

// fewColours reduces a screenshot to its 256 most frequent colours, which needs a third of the
// space. The other colours are shades at the edges of letters.
func fewColours(t *testing.T, screenshot []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(screenshot))
	if err != nil {
		t.Fatal(err)
	}
	bounds, count := full.Bounds(), map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[rgba(full.At(x, y))]++
		}
	}
	all := make([]color.RGBA, 0, len(count))
	for c := range count {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var kept color.Palette
	for _, c := range all[:min(len(all), 256)] {
		kept = append(kept, c)
	}
	nearest := make(map[color.RGBA]uint8, len(all))
	for _, c := range all {
		nearest[c] = uint8(kept.Index(c))
	}
	small := image.NewPaletted(bounds, kept)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, nearest[rgba(full.At(x, y))])
		}
	}
	var packed bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&packed, small); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func rgba(c color.Color) color.RGBA {
	r, g, b, _ := c.RGBA()
	return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
}
