package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed plot.svg.tmpl
var plotTemplate string

// plot is what the template draws: for each size a bar for each server, in units of the SVG.
type plot struct {
	Caption       string
	Width, Height int
	Groups        []group
	Label         string
}

type group struct {
	Y    int
	Name string
	Bars []bar
}

type bar struct {
	Y                int
	Name, Value      string
	Width, Low, High float64
	Interval, Opgate bool
}

const (
	// barLeft is where bars begin, barUnit is how long a bar of 1 is.
	barLeft, barUnit = 190, 300.0
	barHeight        = 20
	// mostUnits is the longest that is drawn.
	mostUnits = 2.2
)

// SVG writes a plot: the CPU time of each server relative to the empty webhook, with intervals.
func (r *Report) SVG(w io.Writer) error {
	t, err := template.New("plot").Parse(plotTemplate)
	if err != nil {
		return fmt.Errorf("parse the plot: %w", err)
	}
	p := plot{Caption: r.Caption(), Width: barLeft + int(mostUnits*barUnit) + 170,
		Label: "CPU time for a review, relative to an empty controller-runtime webhook"}
	y := 40
	for i, row := range r.Rows {
		if i == 0 || r.Rows[i-1].Size != row.Size {
			y += barHeight + 10
			p.Groups = append(p.Groups, group{Y: y, Name: row.Size + ": " + sizeNamed(row.Size).What})
		}
		y += barHeight
		b := bar{Y: y - 14, Name: row.Server, Value: row.OfEmpty.String(), Width: length(row.OfEmpty.Estimate),
			Opgate: !isFloor(row.Server)}
		if row.OfEmpty.Low != nil {
			b.Interval, b.Low, b.High = true, barLeft+length(*row.OfEmpty.Low), barLeft+length(*row.OfEmpty.High)
		}
		g := &p.Groups[len(p.Groups)-1]
		g.Bars = append(g.Bars, b)
	}
	p.Height = y + 20
	if err := t.Execute(w, p); err != nil {
		return fmt.Errorf("draw the plot: %w", err)
	}
	return nil
}

// length is how long a bar is.
func length(of float64) float64 { return min(of, mostUnits) * barUnit }

func isFloor(server string) bool { return server == echo || server == empty || server == typed }
