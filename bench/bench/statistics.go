package bench

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Interval is an estimate and the interval that holds what is estimated with a confidence of 95%.
type Interval struct {
	Estimate float64 `json:"estimate"`
	// Low and High are nil where there are too few rounds for an interval.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
}

func (i Interval) String() string {
	if i.Low == nil {
		return fmt.Sprintf("%.2f", i.Estimate)
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", i.Estimate, *i.Low, *i.High)
}

// quantiles are those of Student's t-distribution at 0.975, by degrees of freedom, from 1.
var quantiles = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
	2.145, 2.131,
	2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}

// quantile is conservative beyond 30 degrees of freedom.
func quantile(degrees int) float64 { return quantiles[min(degrees, len(quantiles))-1] }

// ratio is how many times what of, round by round: the geometric mean of the rounds' ratios, with the t-interval of
// their logarithms. Both sides of a ratio are of the same round, so that a machine that is busier in some rounds than
// in others does not widen it.
func ratio(what, of []float64) Interval {
	logs := make([]float64, len(what))
	sum := 0.0
	for i := range what {
		logs[i] = math.Log(what[i] / of[i])
		sum += logs[i]
	}
	n := float64(len(logs))
	mean := sum / n
	r := Interval{Estimate: math.Exp(mean)}
	if len(logs) < 2 {
		return r
	}
	squares := 0.0
	for _, l := range logs {
		squares += (l - mean) * (l - mean)
	}
	half := quantile(len(logs)-1) * math.Sqrt(squares/(n-1)/n)
	low, high := math.Exp(mean-half), math.Exp(mean+half)
	r.Low, r.High = &low, &high
	return r
}

// median is the middle one of values, or the mean of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// percentile is the smallest duration that at least a share of all, in percent, does not exceed.
func percentile(durations []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}
