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

func (s Stopwatch) since() time.Duration {
	return time.Since(s.start) //nolint:forbidigo // as above
}

// window is how much of the past tells how fast work is.
const window = time.Minute

// Forecast tells how long the rest of some work takes, from what was done in the last minute. The zero value is ready.
type Forecast struct {
	samples []sample // the first is a minute old, if there is one
}

type sample struct {
	at   time.Time
	done int64
}

// Left takes note of how much of all work is done, and returns how long the rest takes at the speed of the last minute,
// in tens of seconds, such as "4m10s". It is empty before there is a minute to tell from, and after one in which nothing
// was done.
func (f *Forecast) Left(done, all int64) string {
	now := time.Now() //nolint:forbidigo // as above
	f.samples = append(f.samples, sample{now, done})
	for len(f.samples) > 1 && now.Sub(f.samples[1].at) >= window {
		f.samples = f.samples[1:]
	}
	passed, progress := now.Sub(f.samples[0].at), done-f.samples[0].done
	if passed < window || progress <= 0 {
		return ""
	}
	left := time.Duration(float64(passed) * float64(all-done) / float64(progress))
	return max(left.Round(10*time.Second), 10*time.Second).String()
}
