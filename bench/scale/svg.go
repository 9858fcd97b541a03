package scale

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
)

//go:embed plot.svg.tmpl
var plotTemplate string

// plot is what the template draws: some panels beside each other, each with lines over the number of namespaces.
type plot struct {
	Caption       string
	Width, Height int
	Panels        []panel
}

// panel has both axes logarithmic, so that what is proportional to the number of namespaces has the same slope in all
// panels.
type panel struct {
	X, Y          int
	Width, Height float64
	Title         string
	Across, Up    []tick
	Lines         []line
}

type tick struct {
	At    float64
	Label string
}

type line struct {
	Name, Color string
	LabelY      float64
	Points      []point
}

type point struct {
	X, Y  float64
	Label string
}

const (
	panelWidth, panelHeight = 300.0, 190.0
	panelLeft, panelTop     = 60, 80
	panelGap                = 90
	panelsAcross            = 2
)

// series is one line of a panel.
type series struct {
	name, color string
	of          func(row *Row) float64
}

// SVG writes a plot of the report.
func (r *Report) SVG(w io.Writer) error {
	t, err := template.New("plot").Parse(plotTemplate)
	if err != nil {
		return fmt.Errorf("parse the plot: %w", err)
	}
	const blue, grey, orange = "#2a6fb0", "#777777", "#c4661f"
	p := plot{Caption: r.Caption()}
	for i, of := range []struct {
		title string
		all   []series
	}{
		{"Memory of the leader, MiB", []series{
			{"most", orange, func(row *Row) float64 { return float64(row.LeaderAtEnd.Peak) / mib }},
			{"resident", blue, func(row *Row) float64 { return float64(row.Leader.Resident) / mib }},
			{"heap", grey, func(row *Row) float64 { return float64(row.Leader.Heap) / mib }},
		}},
		{"Policies created at once, seconds", []series{
			{"until each has a status", blue, func(row *Row) float64 { return row.Policies.ReportedSeconds }},
			{"until each is created", grey, func(row *Row) float64 { return row.Policies.WrittenSeconds }},
		}},
		{"An edit reaches the replicas, p99, milliseconds", []series{
			{"the leader", blue, func(row *Row) float64 { return row.propagated(0) * milliseconds }},
			{"the second replica", grey, func(row *Row) float64 { return row.propagated(1) * milliseconds }},
		}},
		{"CPU time of Opgate, milliseconds", []series{
			{"for a policy", blue, func(row *Row) float64 { return row.Policies.CPU * milliseconds }},
			{"for an approval", orange, func(row *Row) float64 { return row.Approvals.CPU * milliseconds }},
			{"for an event", grey, func(row *Row) float64 { return row.EventCPU * milliseconds }},
		}},
	} {
		q := r.panel(of.title, of.all)
		q.X = panelLeft + i%panelsAcross*int(panelWidth+panelGap)
		q.Y = panelTop + i/panelsAcross*int(panelHeight+panelGap)
		p.Panels = append(p.Panels, q)
		p.Height = q.Y + int(panelHeight) + 45
	}
	p.Width = panelLeft + panelsAcross*int(panelWidth+panelGap)
	if err := t.Execute(w, p); err != nil {
		return fmt.Errorf("draw the plot: %w", err)
	}
	return nil
}

// propagated is the p99 of a replica, 0 if it was not measured.
func (r *Row) propagated(replica int) float64 {
	if replica >= len(r.Propagation) {
		return 0
	}
	return r.Propagation[replica].P99
}

// panel draws lines. What is not positive is not drawn.
func (r *Report) panel(title string, all []series) panel {
	p := panel{Title: title, Width: panelWidth, Height: panelHeight}
	left, right, low, high := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for i := range r.Rows {
		n := math.Log10(float64(r.Rows[i].Namespaces))
		left, right = min(left, n), max(right, n)
		for _, s := range all {
			if v := s.of(&r.Rows[i]); v > 0 {
				low, high = min(low, math.Floor(math.Log10(v))), max(high, math.Ceil(math.Log10(v)))
			}
		}
	}
	across := func(n int) float64 {
		return (math.Log10(float64(n)) - left) / max(right-left, 1e-9) * (panelWidth - 20)
	}
	up := func(v float64) float64 { return panelHeight - (math.Log10(v)-low)/max(high-low, 1)*panelHeight }
	for i := range r.Rows {
		p.Across = append(p.Across, tick{across(r.Rows[i].Namespaces), fmt.Sprint(r.Rows[i].Namespaces)})
	}
	for e := low; e <= high; e++ {
		v := math.Pow(10, e)
		p.Up = append(p.Up, tick{up(v), fmt.Sprintf("%g", v)})
	}
	for k, s := range all {
		l := line{Name: s.name, Color: s.color, LabelY: float64(-8 - 14*(len(all)-1-k))}
		for i := range r.Rows {
			if v := s.of(&r.Rows[i]); v > 0 {
				l.Points = append(l.Points, point{across(r.Rows[i].Namespaces), up(v),
					fmt.Sprintf("%s: %.3g", s.name, v)})
			}
		}
		p.Lines = append(p.Lines, l)
	}
	return p
}
