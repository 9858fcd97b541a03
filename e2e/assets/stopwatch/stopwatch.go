// Package stopwatch measures durations for progress messages. No decision depends on it.
package stopwatch

import "time"

// Stopwatch runs from its Start.
type Stopwatch struct {
	start time.Time
}

// Start returns a running stopwatch.
func Start() Stopwatch {
	return Stopwatch{start: time.Now()} //nolint:forbidigo // the one place of this module that reads the clock
}

// String is the time since the start in whole seconds, such as "1m5s".
func (s Stopwatch) String() string { return s.since().Round(time.Second).String() }

// Date is the day of the start, UTC, such as "2026-11-23".
func (s Stopwatch) Date() string { return s.start.UTC().Format(time.DateOnly) }

// Seconds is the time since the start in whole seconds.
func (s Stopwatch) Seconds() int { return int(s.since().Round(time.Second).Seconds()) }

// Left is the time until the end of work of which a share, more than 0, took the time since the start. It is as exact
// as such an estimate: tens of seconds, such as "4m10s".
func (s Stopwatch) Left(share float64) string {
	left := time.Duration(float64(s.since()) * (1 - share) / share)
	return max(left.Round(10*time.Second), 10*time.Second).String()
}

func (s Stopwatch) since() time.Duration {
	return time.Since(s.start) //nolint:forbidigo // as above
}
