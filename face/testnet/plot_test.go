package testnet

import (
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

// TestLossCurve: the picture of a run has its curve, with and without what was measured on held-out tokens.
func TestLossCurve(t *testing.T) {
	for name, heldOut := range map[string][2]float64{"measured": {5.6, 3.1}, "of the first model alone": {5.6, 0}, "not measured": {}} {
		path := filepath.Join(t.TempDir(), "loss.png")
		if err := plotLoss(path, "run", []RoundLoss{{Step: 1, Loss: 5.5}, {Step: 2, Loss: 4}, {Step: 3, Loss: 3.2}}, heldOut); err != nil {
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
		dots := 0
		for y := range drawn.Bounds().Dy() {
			for x := range drawn.Bounds().Dx() {
				if r, g, b, _ := drawn.At(x, y).RGBA(); r>>8 == 0xa3 && g>>8 == 0x42 && b>>8 == 0x0b {
					dots++
				}
			}
		}
		if (dots > 0) != (heldOut[0] > 0) {
			t.Errorf("%s: %d pixels are of what was measured", name, dots)
		}
	}
}
