// Package window computes when approvals are allowed: in windows that begin at times of a cron expression, and never
// during a freeze. It is pure: the time is an argument. Time zones come from the database of the system, or else from
// the one that is linked into the program, so that an image without files knows them.
package window

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the image has no files of time zones

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const week = 7 * 24 * time.Hour

// Window is a span of time that begins again and again. The zero Window never begins.
type Window struct {
	starts   cron.Schedule
	zone     *time.Location
	duration time.Duration
	text     string
}

// New returns the window that begins at the times of a cron expression of five fields, in a time zone, which is UTC if
// its name is empty, or what is not valid of it. The path is that of an object with the fields cron, timeZone and
// duration.
func New(path *field.Path, expression, zone, duration string) (w Window, errs field.ErrorList) {
	var err error
	if w.starts, err = parseCron(expression); err != nil {
		errs = append(errs, field.Invalid(path.Child("cron"), expression, err.Error()))
	}
	if w.zone, err = time.LoadLocation(zone); err != nil || zone == "Local" { // which is another one in each process
		errs = append(errs, field.Invalid(path.Child("timeZone"), zone,
			"must be the name of a time zone, such as Europe/Berlin, or be left out for UTC"))
	}
	if w.duration, err = time.ParseDuration(duration); err != nil || w.duration < time.Minute || w.duration > week {
		errs = append(errs, field.Invalid(path.Child("duration"), duration,
			"must be a duration from 1m to 168h, such as 4h or 1h30m"))
	}
	if len(errs) > 0 {
		return Window{}, errs
	}
	w.text = fmt.Sprintf("%q in %s for %s", strings.Join(strings.Fields(expression), " "), w.zone, duration)
	return w, nil
}

// String returns the window as messages name it.
func (w *Window) String() string { return w.text }

// reference is where the search for a first start begins. Each date, February 29 included, is within the five years
// that the parser searches.
var reference = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

// parseCron accepts five fields alone. The parser would read a zone at the beginning, without a check of its form.
func parseCron(expression string) (cron.Schedule, error) {
	if strings.Contains(expression, "TZ=") {
		return nil, errors.New("must not name a time zone; write it in timeZone")
	}
	starts, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(expression)
	if err != nil {
		return nil, fmt.Errorf(`%w; write minute, hour, day of month, month and day of week, such as "0 22 * * 6"`, err)
	}
	if starts.Next(reference).IsZero() {
		return nil, errors.New("names a date that does not exist")
	}
	return starts, nil
}

// startAfter returns the first start after t, zero if there is none within five years. On the day on which clocks go
// forward, a start in the hour that is left out happens when they do; on the day on which they go back, a start in the
// hour that comes twice happens once, the first time.
func (w *Window) startAfter(t time.Time) time.Time {
	if w.starts == nil {
		return time.Time{}
	}
	// The expression is evaluated on what clocks show, in a zone without changes. A later reading of the clock is never
	// an earlier start, so that starts at readings before that of t can be left out.
	_, offset := t.In(w.zone).Zone()
	reading := t.UTC().Add(time.Duration(offset) * time.Second)
	for {
		if reading = w.starts.Next(reading); reading.IsZero() {
			return time.Time{}
		}
		if start := shows(reading, w.zone); start.After(t) {
			return start
		}
	}
}

// shows returns the first moment at which clocks in a zone show a reading, or at which they pass it.
func shows(reading time.Time, zone *time.Location) time.Time {
	before := reading.Add(-24 * time.Hour).In(zone) // earlier than that moment, by any offset
	_, offset := before.Zone()
	_, change := before.ZoneBounds()
	t := reading.Add(-time.Duration(offset) * time.Second).In(zone)
	if change.IsZero() || t.Before(change) {
		return t
	}
	_, offset = change.Zone()
	if t = reading.Add(-time.Duration(offset) * time.Second).In(zone); t.Before(change) { // the reading is left out
		return change
	}
	return t
}

// contains reports whether the window is open at t.
func (w *Window) contains(t time.Time) bool {
	start := w.startAfter(t.Add(-w.duration))
	return !start.IsZero() && !start.After(t)
}

// Freeze is a span of time without approvals, from Start until, not including, End.
type Freeze struct {
	Start, End time.Time
	// Reason may be empty.
	Reason string
}

func (f *Freeze) contains(t time.Time) bool { return !t.Before(f.Start) && t.Before(f.End) }

// Calendar is when approvals are allowed: in one of the windows, if there are any, and in no freeze.
type Calendar struct {
	Windows []Window
	Freezes []Freeze
}

// Restricts reports whether there is a time without approvals.
func (c *Calendar) Restricts() bool { return len(c.Windows)+len(c.Freezes) > 0 }

// State is that of a Calendar at a moment.
type State struct {
	Open bool
	// Freeze is the one that is in force, the one that ends last; nil if there is none.
	Freeze *Freeze
	// Opens is when approvals are allowed next, zero if that is not within five years; by Window, which is nil if they
	// are then allowed outside of freezes. Both are unset while Open.
	Opens  time.Time
	Window *Window
}

// At returns the state at t.
func (c *Calendar) At(t time.Time) State {
	s := State{Freeze: c.freeze(t)}
	// Each pass ends behind a freeze, and no freeze comes twice.
	for next := t; ; {
		if f := c.freeze(next); f != nil {
			next = f.End
			continue
		}
		opens, by := c.windowFrom(next)
		if opens.IsZero() {
			return s
		}
		if c.freeze(opens) != nil {
			next = opens
			continue
		}
		if opens.Equal(t) {
			return State{Open: true}
		}
		s.Opens, s.Window = opens, by
		return s
	}
}

// Changes returns when the State of a closed Calendar is another one: at the end of a freeze, or when it opens; zero
// if that is not known.
func (s *State) Changes() time.Time {
	if s.Freeze != nil {
		return s.Freeze.End
	}
	return s.Opens
}

// freeze returns the freeze that contains t and ends last.
func (c *Calendar) freeze(t time.Time) *Freeze {
	var last *Freeze
	for i := range c.Freezes {
		if f := &c.Freezes[i]; f.contains(t) && (last == nil || f.End.After(last.End)) {
			last = f
		}
	}
	return last
}

// windowFrom returns t if a window is open then, or if there are none, and else when the next one opens.
func (c *Calendar) windowFrom(t time.Time) (opens time.Time, by *Window) {
	if len(c.Windows) == 0 {
		return t, nil
	}
	for i := range c.Windows {
		w := &c.Windows[i]
		if w.contains(t) {
			return t, w
		}
		if start := w.startAfter(t); !start.IsZero() && (opens.IsZero() || start.Before(opens)) {
			opens, by = start, w
		}
	}
	return opens, by
}
