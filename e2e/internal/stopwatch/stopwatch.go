// Package stopwatch measures how long something takes, for messages to people. Nothing is decided by it.
package stopwatch

import "time"

// Stopwatch runs from the moment it is made.
type Stopwatch struct {
	start time.Time
}

// Start makes a stopwatch.
func Start() Stopwatch {
	return Stopwatch{start: time.Now()} //nolint:forbidigo // the one place of this module that asks for the time
}

// String is the time since the start in whole seconds, such as "1m5s".
func (s Stopwatch) String() string {
	return time.Since(s.start).Round(time.Second).String() //nolint:forbidigo // as above
}
