package testnet

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// plotLoss draws the training loss (nats per token) over the rounds as a PNG.
func plotLoss(path string, losses []RoundLoss) error {
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
	chart.Title.Text = "Training loss, mean over the clients of a round"
	chart.X.Label.Text = "round"
	chart.Y.Label.Text = "cross-entropy (nats per token)"
	chart.Add(plotter.NewGrid(), line)
	if err := chart.Save(8*vg.Inch, 5*vg.Inch, path); err != nil {
		return fmt.Errorf("plot loss: %w", err)
	}
	return nil
}
