package inflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// MaxBody bounds a body in bytes. The API server takes objects of up to 3 MiB, and a review of an update holds two; a
	// ConversionReview holds one, as API servers convert what is stored object by object (threat G18).
	MaxBody = 8 << 20

	// bodiesCapacity bounds the bodies that are held, and workCapacity what is made of them, in bytes. Together, and twice as
	// garbage collection lets the heap grow to that before it ends, they leave room for the rest of the process in 256 MiB.
	bodiesCapacity = 24 << 20
	workCapacity   = 54 << 20

	// firstPart is what a client has to send before more is reserved for it: a client that only announces megabytes gets
	// no more than this.
	firstPart = 64 << 10
	// firstTimeout bounds how long the first part may take, restTimeout and restRate the rest: the API server times out
	// a webhook after 5 s, and a client that stalls must neither keep its share nor delay shutdown (threats G20, G23).
	firstTimeout = 10 * time.Second
	restTimeout  = 2 * time.Second
	restRate     = 4 << 20 // bytes in a second
	// waitTimeout bounds each of the three waits of a request: for its first part, for its rest and for judging. All
	// three fit into the API server's timeout of 5 s.
	waitTimeout = time.Second
)

// ErrTooLarge means that a body is larger than MaxBody.
var ErrTooLarge = fmt.Errorf("it is larger than %d MiB", MaxBody>>20)

// Budget is the memory for requests of all endpoints. It is safe for concurrent use.
type Budget struct {
	bodies, work *pool
	rejected     prometheus.Counter
}

// NewBudget returns a budget and registers its metrics.
func NewBudget(registry prometheus.Registerer) *Budget {
	b := &Budget{bodies: newPool(bodiesCapacity), work: newPool(workCapacity), rejected: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "opgate_requests_rejected_total",
		Help: "Total number of requests answered 429 because the memory for requests was in use.",
	})}
	registry.MustRegister(b.rejected, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "opgate_requests_inflight_bytes",
		Help: "Number of bytes reserved for requests that are being read, judged or converted.",
	}, func() float64 { return float64(b.bodies.used() + b.work.used()) }))
	return b
}

// Body is the body of a request with its reservations.
type Body struct {
	// JSON is the body. It is valid until Close.
	JSON []byte

	budget         *Budget
	address        string
	reserved, work int64
	buffer         *[]byte // of JSON, nil if it is not pooled
}

// Close releases the reservations, and the memory of JSON for other bodies.
func (b *Body) Close() {
	b.EndWork()
	if b.buffer != nil {
		b.JSON = nil
		putBuffer(b.buffer)
		b.buffer = nil
	}
	b.budget.bodies.release(b.address, b.reserved)
	b.reserved = 0
}

// Reserved returns the bytes reserved for decoding and judging the body.
func (b *Body) Reserved() int64 { return b.work }

// EndWork releases what is reserved for decoding and judging. The reservation for the body stays, since an answer of about its
// size may still be sent.
func (b *Body) EndWork() {
	b.budget.work.release(b.address, b.work)
	b.work = 0
}

// For returns the body of a request without reading it. The caller must close it.
func (b *Budget) For(r *http.Request) *Body { return &Body{budget: b, address: hostOf(r.RemoteAddr)} }

// Read reads the body, after it has reserved the memory for reading, decoding and judging or converting it. It returns:
//
//   - ErrBusy: there is no memory for the request at the moment. RejectBusy answers it.
//   - any other error: the body could not be read, or decoding it would take too much memory. JSON is set if it was read.
func (b *Body) Read(w http.ResponseWriter, r *http.Request) error {
	err := b.receive(w, r)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		err = ErrTooLarge
	}
	if err != nil {
		return err
	}
	work, err := price(b.JSON, b.budget.work.largest())
	if err != nil {
		return err
	}
	if err := b.budget.work.acquire(r.Context(), b.address, work, waitTimeout); err != nil {
		return err
	}
	b.work = work
	return nil
}

// RejectBusy answers a request for which nothing could be reserved. API servers retry after a second, within the timeout of
// the webhook.
func (b *Budget) RejectBusy(w http.ResponseWriter) {
	b.rejected.Inc()
	w.Header().Set("Retry-After", "1")
	http.Error(w, "opgate is busy: "+ErrBusy.Error(), http.StatusTooManyRequests)
}

// receive reads in two parts: a client that has sent the first has all of the rest reserved at once, so that bodies that were
// read in half do not wait for one another.
func (b *Body) receive(w http.ResponseWriter, r *http.Request) error {
	length, declared := r.ContentLength, r.ContentLength >= 0
	switch {
	case length > MaxBody:
		return ErrTooLarge
	case !declared:
		length = MaxBody + 1 // the reader refuses the last one
	}
	from := http.MaxBytesReader(w, r.Body, MaxBody)
	c := http.NewResponseController(w)
	first := min(length, firstPart)
	if err := b.reserve(r.Context(), first); err != nil {
		return err
	}
	deadline(c, firstTimeout)
	b.buffer = getBuffer(first)
	text := (*b.buffer)[:first]
	n, err := io.ReadFull(from, text)
	if rest := length - first; err == nil && rest > 0 {
		if err := b.reserve(r.Context(), rest); err != nil {
			return err
		}
		deadline(c, restTimeout+time.Duration(rest)*time.Second/restRate)
		whole := getBuffer(length)
		text = (*whole)[:length]
		copy(text, *b.buffer)
		putBuffer(b.buffer)
		b.buffer = whole
		var more int
		more, err = io.ReadFull(from, text[n:])
		n += more
	}
	if ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); err != nil && (declared || !ended) {
		// The deadline stays: the server would wait for the rest of the body before it closes the connection.
		return fmt.Errorf("read the body: %w", err)
	}
	b.JSON = text[:n]
	_ = c.SetReadDeadline(time.Time{})
	return nil
}

func (b *Body) reserve(ctx context.Context, n int64) error {
	if err := b.budget.bodies.acquire(ctx, b.address, n, waitTimeout); err != nil {
		return err
	}
	b.reserved += n
	return nil
}

// deadline bounds reading from now on. Without a connection, as in tests, it has no effect.
func deadline(c *http.ResponseController, after time.Duration) {
	_ = c.SetReadDeadline(time.Now().Add(after))
}

// hostOf returns the client's address without the port, which identifies its share of the budget.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
