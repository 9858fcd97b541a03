package dependency

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

const (
	// firstDelay is how long the second return within one edit is held back, maxDelay how long any is.
	firstDelay = 10 * time.Second
	maxDelay   = 5 * time.Minute
)

// Damping keeps a template whose dependencies come and go from coming and going with them. It is a plain value, one per
// template, kept in memory.
//
// The first loss and return pass. If the dependencies are lost again, with nothing edited, they have to hold for a while
// before they count: 10 seconds the second time, twice as long each further time, 5 minutes at most.
type Damping struct {
	key string
	// applied: the dependencies count as met.
	applied bool
	// losses is how often they were met and then not.
	losses int
	// since is when they were met again and did not count yet. Zero while they are unmet.
	since time.Time
}

// Next takes in that the dependencies are met, or are not, and gives how long to wait until they count as met; zero where
// they do at once. Key is that of DampingKey: with another key everything begins anew. It is not called while the
// findings are undecided.
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

// Delay is for how long the dependencies have to be met before they count.
func (d Damping) Delay() time.Duration {
	if d.losses < 2 {
		return 0
	}
	if d.losses > 10 { // beyond that it would be more than maxDelay many times over
		return maxDelay
	}
	return min(firstDelay<<(d.losses-2), maxDelay)
}

// Losses is how often the dependencies were met and then not, since the last edit.
func (d Damping) Losses() int { return d.losses }

// DampingKey has the uids and generations of a Policy and of what it depends on: an edit of any changes it, a change of a
// status does not.
func DampingKey(p *Policy, findings []Finding) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q %d", p.UID, p.Generation) // a hash takes all that is written to it
	for i := range findings {
		_, _ = fmt.Fprintf(h, " %q %d", findings[i].UID, findings[i].Generation)
	}
	return hex.EncodeToString(h.Sum(nil))
}
