package policy

import "time"

const (
	// freeCorrections is how many times in a row an object is corrected without delay, resetAfter how long it must stay
	// correct for the count to be reset.
	freeCorrections = 5
	resetAfter      = 10 * time.Minute
	// firstDelay and lastDelay bound the delay before an object that another client keeps changing is corrected again.
	firstDelay = time.Second
	lastDelay  = 5 * time.Minute
)

// conflictBackoff counts the corrections of an object: two clients that write the same object would otherwise do so
// forever, without delay.
type conflictBackoff struct {
	times int
	last  time.Time
}

// wait returns the delay before the object may be corrected again; zero for none.
func (d conflictBackoff) wait(now time.Time) time.Duration {
	if d.times < freeCorrections || now.Sub(d.last) >= resetAfter {
		return 0
	}
	delay := lastDelay
	if steps := d.times - freeCorrections; steps < 16 {
		delay = min(firstDelay<<steps, lastDelay)
	}
	return max(0, delay-now.Sub(d.last))
}

// again counts one more correction.
func (d conflictBackoff) again(now time.Time) conflictBackoff {
	if now.Sub(d.last) >= resetAfter {
		d.times = 0
	}
	return conflictBackoff{times: d.times + 1, last: now}
}
