package policy

import "time"

const (
	// peaceful is how many times in a row an object is set right at once, forgiven how long it has to stay so for that to
	// be forgotten.
	peaceful = 5
	forgiven = 10 * time.Minute
	// firstTruce and lastTruce bound how long an object that somebody else keeps changing is left alone.
	firstTruce = time.Second
	lastTruce  = 5 * time.Minute
)

// drift counts how often an object had to be set right: two who write the same object would else do so for ever, as fast
// as they can.
type drift struct {
	times int
	last  time.Time
}

// next gives how long to wait before an object is set right again; zero for not at all.
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

// again counts one more time.
func (d drift) again(now time.Time) drift {
	if now.Sub(d.last) >= forgiven {
		d.times = 0
	}
	return drift{times: d.times + 1, last: now}
}
