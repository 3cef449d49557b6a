package testnet

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// plotLoss draws the training loss (nats per token) over the rounds as a PNG.
// heldOut is the loss of the first and of the final model on tokens that are never trained on; 0: it was not measured.
func plotLoss(path, runID string, losses []RoundLoss, heldOut [2]float64) error {
	points := make(plotter.XYs, len(losses))
	for i, loss := range losses {
		points[i] = plotter.XY{X: float64(loss.Step), Y: loss.Loss}
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return fmt.Errorf("plot loss: %w", err)
	}
	line.Width = vg.Points(1.5)
	chart := plot.New()
	chart.Title.Text = "Run " + runID + ": training loss, mean over the clients of a round"
	chart.Title.Padding = vg.Points(6)
	chart.X.Label.Text = "round"
	chart.Y.Label.Text = "cross-entropy (nats per token)"
	chart.Add(plotter.NewGrid(), line)
	if err := addHeldOut(chart, points, line, heldOut); err != nil {
		return fmt.Errorf("plot loss: %w", err)
	}
	if err := chart.Save(8*vg.Inch, 5*vg.Inch, path); err != nil {
		return fmt.Errorf("plot loss: %w", err)
	}
	return nil
}

// addHeldOut draws what was measured on held-out tokens, before the first and after the last round, and says which is
// which.
func addHeldOut(chart *plot.Plot, points plotter.XYs, line *plotter.Line, heldOut [2]float64) error {
	var measured plotter.XYs
	for i, x := range []float64{points[0].X, points[len(points)-1].X} {
		if heldOut[i] > 0 {
			measured = append(measured, plotter.XY{X: x, Y: heldOut[i]})
		}
	}
	if len(measured) == 0 {
		return nil
	}
	dots, err := plotter.NewScatter(measured)
	if err != nil {
		return err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: color.RGBA{R: 0xa3, G: 0x42, B: 0x0b, A: 0xff}, Radius: vg.Points(4), Shape: draw.CircleGlyph{}}
	chart.Add(dots)
	chart.Legend.Add("training", line)
	chart.Legend.Add("held out", dots)
	chart.Legend.Top = true
	return nil
}
