package dependency

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

const (
	// firstDelay is the delay of the second return after an edit, maxDelay the upper bound of all delays.
	firstDelay = 10 * time.Second
	maxDelay   = 5 * time.Minute
)

// Damping prevents a template from flapping with its dependencies. It is a plain value, one per template, kept in
// memory.
//
// The first loss and return take effect at once. If the dependencies are lost again without an edit, they count as met
// only after they have been met for a while: 10 seconds the second time, twice as long each further time, 5 minutes at
// most.
type Damping struct {
	key string
	// applied is set while the dependencies count as met.
	applied bool
	// losses counts how often the dependencies changed from met to unmet.
	losses int
	// since is when they were met again without counting yet. Zero while they are unmet.
	since time.Time
}

// Next records whether the dependencies are met, and returns how long to wait until they count as met; zero if they do
// now. Key is that of DampingKey: another key resets the state. It must not be called while the findings are undecided.
func (d Damping) Next(now time.Time, met bool, key string) (next Damping, wait time.Duration) {
	if d.key != key {
		return Damping{key: key, applied: met}, 0
	}
	if !met {
		if d.applied {
			d.losses++
		}
		d.applied, d.since = false, time.Time{}
		return d, 0
	}
	if d.applied {
		return d, 0
	}
	if d.since.IsZero() || now.Before(d.since) {
		d.since = now
	}
	if wait = d.Delay() - now.Sub(d.since); wait > 0 {
		return d, wait
	}
	d.applied, d.since = true, time.Time{}
	return d, 0
}

// Delay returns how long the dependencies have to be met before they count.
func (d Damping) Delay() time.Duration {
	if d.losses < 2 {
		return 0
	}
	if d.losses > 10 { // larger values exceed maxDelay by far, and would overflow
		return maxDelay
	}
	return min(firstDelay<<(d.losses-2), maxDelay)
}

// Losses counts how often the dependencies changed from met to unmet since the last edit.
func (d Damping) Losses() int { return d.losses }

// DampingKey returns a hash of the uids and generations of a Policy and its dependencies: an edit of any of them
// changes it, a change of a status does not.
func DampingKey(p *Policy, findings []Finding) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q %d", p.UID, p.Generation) // writing to a hash never fails
	for i := range findings {
		_, _ = fmt.Fprintf(h, " %q %d", findings[i].UID, findings[i].Generation)
	}
	return hex.EncodeToString(h.Sum(nil))
}
