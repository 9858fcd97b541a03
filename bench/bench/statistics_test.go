package bench

import (
	"math"
	"testing"
	"time"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-4 }

// TestRatio compares with intervals that were worked out by hand: the logarithms of ratios 1, 2 and 4 are 0, ln 2 and 2
// ln 2, their standard error is ln 2 / sqrt(3), and the quantile for two degrees of freedom is 4.303.
func TestRatio(t *testing.T) {
	half := 4.303 * math.Ln2 / math.Sqrt(3)
	for _, test := range []struct {
		name      string
		what, of  []float64
		want      float64
		low, high float64 // 0 for none
	}{
		{name: "three rounds", what: []float64{1, 2, 4}, of: []float64{1, 1, 1}, want: 2, low: 2 * math.Exp(-half),
			high: 2 * math.Exp(half)},
		{name: "two rounds", what: []float64{1, math.E}, of: []float64{1, 1}, want: math.Exp(0.5),
			low: math.Exp(0.5 - 12.706/2), high: math.Exp(0.5 + 12.706/2)},
		{name: "rounds that differ alike on both sides", what: []float64{3, 30, 300}, of: []float64{2, 20, 200},
			want: 1.5, low: 1.5, high: 1.5},
		{name: "one round", what: []float64{3}, of: []float64{4}, want: 0.75},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ratio(test.what, test.of)
			if !near(got.Estimate, test.want) {
				t.Errorf("got %v, want %v", got.Estimate, test.want)
			}
			if test.low == 0 {
				if got.Low != nil || got.High != nil {
					t.Errorf("there is an interval: %s", got)
				}
				return
			}
			if got.Low == nil || got.High == nil || math.Abs(*got.Low/test.low-1) > 1e-9 ||
				math.Abs(*got.High/test.high-1) > 1e-9 {
				t.Errorf("got %s, want %v to %v", got, test.low, test.high)
			}
		})
	}
}

// TestGoals has CPU times of three rounds, of which the interval is inside a goal, beyond it, or on both sides.
func TestGoals(t *testing.T) {
	for name, test := range map[string]struct {
		opgate []float64
		want   bool
	}{
		"inside":     {opgate: []float64{1.64, 1.65, 1.66}, want: true},
		"beyond":     {opgate: []float64{1.78, 1.80, 1.82}},
		"both sides": {opgate: []float64{1.3, 1.6, 1.8}},
	} {
		t.Run(name, func(t *testing.T) {
			turns := map[key][]turn{}
			var all []*server
			for _, k := range kindsOf([]int{1}) {
				all = append(all, &server{kind: k})
				for i := range test.opgate {
					measured := turn{cpu: 1, allocations: 1, bytes: 2048, latencies: []time.Duration{1}}
					if k.floor == "" {
						measured.cpu = test.opgate[i]
					}
					turns[key{bare, k.String()}] = append(turns[key{bare, k.String()}], measured)
				}
			}
			size := sizeNamed(bare)
			size.allowed = make([]byte, 1024)
			report := &Report{}
			report.fill([]*Size{size}, all, turns)
			if len(report.Goals) != 2 {
				t.Fatalf("%d goals, want 2", len(report.Goals))
			}
			if got := report.Goals[0]; got.Met != test.want || got.Most != 1.7 {
				t.Errorf("got %+v, want met to be %v", got, test.want)
			}
			if got := report.Goals[1]; !got.Met || got.Got.Estimate != 2 {
				t.Errorf("memory is 2 x the body and has to be 3 x at most: %+v", got)
			}
		})
	}
}
