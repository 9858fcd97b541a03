package policy

import "time"

const (
	// peaceful is how many times in a row an object is corrected without delay, forgiven how long it must stay correct for the count
	// to be reset.
	peaceful = 5
	forgiven = 10 * time.Minute
	// firstTruce and lastTruce bound the delay before an object that another client keeps changing is corrected again.
	firstTruce = time.Second
	lastTruce  = 5 * time.Minute
)

// drift counts the corrections of an object: two clients that write the same object would otherwise do so forever, without
// delay.
type drift struct {
	times int
	last  time.Time
}

// wait returns the delay before the object may be corrected again; zero for none.
func (d drift) wait(now time.Time) time.Duration {
	if d.times < peaceful || now.Sub(d.last) >= forgiven {
		return 0
	}
	truce := lastTruce
	if steps := d.times - peaceful; steps < 16 {
		truce = min(firstTruce<<steps, lastTruce)
	}
	return max(0, truce-now.Sub(d.last))
}

// again counts one more correction.
func (d drift) again(now time.Time) drift {
	if now.Sub(d.last) >= forgiven {
		d.times = 0
	}
	return drift{times: d.times + 1, last: now}
}
