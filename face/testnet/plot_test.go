package testnet

import (
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestLossCurve checks that the picture of a run has its curve, with and without the loss on
// held-out tokens, and the killed and ejected clients.
func TestLossCurve(t *testing.T) {
	const brown, grey, red = 0xa3420b, 0x606060, 0xb01040
	killed, ejected := lossMark{2, wasKilled}, lossMark{3, wasEjected}
	for name, test := range map[string]struct {
		heldOut [2]float64
		marks   []lossMark
		want    []uint32 // colours that are in it
	}{
		"measured":                 {[2]float64{5.6, 3.1}, nil, []uint32{brown}},
		"of the first model alone": {[2]float64{5.6, 0}, nil, []uint32{brown}},
		"not measured":             {},
		"a client was killed":      {marks: []lossMark{killed}, want: []uint32{grey}},
		"all":                      {[2]float64{5.6, 3.1}, []lossMark{killed, ejected}, []uint32{brown, grey, red}},
	} {
		path := filepath.Join(t.TempDir(), "loss.png")
		if err := plotLoss(path, "run", []RoundLoss{{Step: 1, Loss: 5.5}, {Step: 2, Loss: 4}, {Step: 3, Loss: 3.2}}, test.heldOut, test.marks); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		drawn, err := png.Decode(file)
		if _ = file.Close(); err != nil {
			t.Fatal(err)
		}
		pixels := make(map[uint32]int)
		for y := range drawn.Bounds().Dy() {
			for x := range drawn.Bounds().Dx() {
				r, g, b, _ := drawn.At(x, y).RGBA()
				pixels[r>>8<<16|g>>8<<8|b>>8]++
			}
		}
		for _, colour := range []uint32{brown, red, grey} {
			if colour == grey && len(test.marks) == 0 {
				continue // edges of letters
			}
			if has := pixels[colour] > 10; has != slices.Contains(test.want, colour) {
				t.Errorf("%s: %d pixels are %06x", name, pixels[colour], colour)
			}
		}
	}
}
