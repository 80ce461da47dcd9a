package report

import (
	"bytes"
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	plotWidth  = 18 * vg.Centimeter
	plotHeight = 9 * vg.Centimeter
)

// svg draws the plot. What cannot be drawn (a logarithm of nothing) is drawn as an empty one
// that says so.
func (p Plot) svg() []byte {
	canvas := vgsvg.New(plotWidth, plotHeight)
	drawing, err := p.drawing()
	if err != nil {
		drawing = plot.New()
		drawing.Title.Text = err.Error()
	}
	drawing.Draw(draw.New(canvas))
	var b bytes.Buffer
	_, _ = canvas.WriteTo(&b) // a buffer takes all
	return b.Bytes()
}

func (p Plot) drawing() (*plot.Plot, error) {
	drawing := plot.New()
	drawing.Title.Text, drawing.X.Label.Text, drawing.Y.Label.Text = p.Title, p.X.Label, p.Y.Label
	drawing.Legend.Top, drawing.Legend.Left = true, true
	drawing.BackgroundColor = nil
	drawing.Add(plotter.NewGrid())
	for i, s := range p.Series {
		points := make(plotter.XYs, 0, len(s.Points))
		for _, at := range s.Points {
			if p.X.Log && at[0] <= 0 || p.Y.Log && at[1] <= 0 {
				return nil, fmt.Errorf("%s: %s has a point at %v, which has no logarithm", p.Name, s.Name, at)
			}
			points = append(points, plotter.XY{X: at[0], Y: at[1]})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", p.Name, s.Name, err)
		}
		line.Color, line.Width = plotutil.Color(i), vg.Points(1.5)
		drawing.Add(line)
		drawing.Legend.Add(s.Name, line)
	}
	logarithmic(&drawing.X, p.X.Log)
	logarithmic(&drawing.Y, p.Y.Log)
	return drawing, nil
}

func logarithmic(axis *plot.Axis, is bool) {
	if is {
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
}
