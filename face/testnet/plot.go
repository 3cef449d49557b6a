package testnet

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// lossMark is a special event in the picture of a run's loss.
type lossMark struct {
	step uint32
	kind markKind
}

type markKind string

const (
	wasKilled  markKind = "a client killed"
	wasEjected markKind = "a member ejected"
)

// keptMarks limits the marks of a picture; more would not be distinguishable.
const keptMarks = 500

// mark records an event in the running round.
func (t *tracker) mark(kind markKind) {
	t.marks = append(t.marks, lossMark{max(1, t.state.Step), kind})
	t.marks = t.marks[max(0, len(t.marks)-keptMarks):]
}

func (t *tracker) lossMarks() []lossMark {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.marks)
}

// plotLoss draws the training loss (nats per token) over the rounds as a PNG, with marks at the
// lower edge. heldOut contains the losses of the first and of the final model on held-out tokens; 0
// means not measured.
func plotLoss(path, runID string, losses []RoundLoss, heldOut [2]float64, marks []lossMark) error {
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
	chart.Legend.Top = true
	chart.Add(plotter.NewGrid(), line)
	var measured plotter.XYs // before the first and after the last round
	for i, x := range []float64{points[0].X, points[len(points)-1].X} {
		if heldOut[i] > 0 {
			measured = append(measured, plotter.XY{X: x, Y: heldOut[i]})
		}
	}
	low := chart.Y.Min // of the curve
	for _, dots := range []struct {
		name string
		at   plotter.XYs
		as   draw.GlyphStyle
	}{
		{"held out", measured, draw.GlyphStyle{Color: color.RGBA{R: 0xa3, G: 0x42, B: 0x0b, A: 0xff}, Radius: vg.Points(4), Shape: draw.CircleGlyph{}}},
		{string(wasKilled), marksAt(marks, wasKilled, low), draw.GlyphStyle{Color: color.Gray{Y: 0x60}, Radius: vg.Points(4), Shape: draw.PyramidGlyph{}}},
		{string(wasEjected), marksAt(marks, wasEjected, low), draw.GlyphStyle{Color: color.RGBA{R: 0xb0, G: 0x10, B: 0x40, A: 0xff}, Radius: vg.Points(4), Shape: draw.BoxGlyph{}}},
	} {
		if len(dots.at) == 0 {
			continue
		}
		scatter, err := plotter.NewScatter(dots.at)
		if err != nil {
			return fmt.Errorf("plot loss: %w", err)
		}
		scatter.GlyphStyle = dots.as
		chart.Add(scatter)
		chart.Legend.Add(dots.name, scatter)
	}
	if err := chart.Save(8*vg.Inch, 5*vg.Inch, path); err != nil {
		return fmt.Errorf("plot loss: %w", err)
	}
	return nil
}

// marksAt returns the positions of the marks of a kind.
func marksAt(marks []lossMark, kind markKind, y float64) (at plotter.XYs) {
	for _, m := range marks {
		if m.kind == kind {
			at = append(at, plotter.XY{X: float64(m.step), Y: y})
		}
	}
	return at
}
