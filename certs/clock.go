package certs

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// maxSkew is the maximum difference between the clocks of a leader and the API server. Two leaders then differ by less
// than backdating, so neither considers a CA of the other not valid yet.
const maxSkew = 20 * time.Minute

// serverClock compares this machine's clock with that of the API server, which verifies our certificates. It reads the
// Date header of responses and sends no requests of its own.
type serverClock struct {
	now  func() time.Time
	skew atomic.Int64 // nanoseconds; positive if this machine is ahead
}

// measure returns a copy of a client configuration whose responses are measured.
func (c *serverClock) measure(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dated{c, next} })
	return config
}

// check returns an error if the clocks differ by more than maxSkew.
func (c *serverClock) check() error {
	switch skew := time.Duration(c.skew.Load()); {
	case skew > maxSkew:
		return fmt.Errorf("the clock of this machine is %s ahead of the API server's, at most %s is accepted",
			skew.Round(time.Second), maxSkew)
	case skew < -maxSkew:
		return fmt.Errorf("the clock of this machine is %s behind the API server's, at most %s is accepted",
			-skew.Round(time.Second), maxSkew)
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
