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
func (s Stopwatch) String() string {
	return time.Since(s.start).Round(time.Second).String() //nolint:forbidigo // as above
}
