package certs

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// mostSkew is how far the clock of a leader may be from the API server's. Two leaders are then less than
// backdating apart, so neither takes a CA of the other for one that is not valid yet.
const mostSkew = 20 * time.Minute

// serverClock compares this machine's clock with that of the API server, which is who verifies what we sign. It
// reads the dates of answers that come in anyway.
type serverClock struct {
	now  func() time.Time
	skew atomic.Int64 // nanoseconds; positive if this machine is ahead
}

// measure gives a copy of a client configuration whose answers are looked at.
func (c *serverClock) measure(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dated{c, next} })
	return config
}

// check returns an error if the clocks are too far apart for a leader.
func (c *serverClock) check() error {
	switch skew := time.Duration(c.skew.Load()); {
	case skew > mostSkew:
		return fmt.Errorf("the clock of this machine is %s ahead of the API server's, at most %s is accepted", skew.Round(time.Second), mostSkew)
	case skew < -mostSkew:
		return fmt.Errorf("the clock of this machine is %s behind the API server's, at most %s is accepted", -skew.Round(time.Second), mostSkew)
	}
	return nil
}

type dated struct {
	clock *serverClock
	next  http.RoundTripper
}

func (d dated) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := d.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		d.clock.skew.Store(int64(d.clock.now().Sub(date)))
	}
	return response, nil
}
