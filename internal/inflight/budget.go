// Package inflight bounds the memory that requests take while they are read and answered. Clients
// that reach the port of the webhooks need not authenticate, so the sizes that clients declare, and how many of them
// send at once, must not decide how much memory the process takes. What is guaranteed, and what is not, is in
// docs/decisions/2026-11-24-load-never-opens.md#a-budget-for-requests.
package inflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// MaxBody bounds a body in bytes. The API server takes objects of up to 3 MiB, and a review of an update holds two;
	// a ConversionReview holds one, as API servers convert what is stored object by object.
	MaxBody = 8 << 20

	// bodiesCapacity bounds the bodies that are held, and workCapacity what is made of them, in bytes;
	// stepBodiesCapacity and stepWorkCapacity those of the endpoints for steps of plans, which take a
	// ClusterServiceVersion of 2.6 MiB. Together, and twice as garbage collection lets the heap grow to that before it
	// ends, they leave room for the rest of the process in 256 MiB.
	bodiesCapacity     = 13 << 20
	workCapacity       = 49 << 20
	stepBodiesCapacity = 4 << 20
	stepWorkCapacity   = 12 << 20

	// firstPart is what a client has to send before more is reserved for it: a client that only announces megabytes
	// gets no more than this.
	firstPart = 64 << 10
	// firstTimeout bounds how long the first part may take, restTimeout and restRate the rest: the API server times out
	// a webhook after 5 s, and a client that stalls must neither keep its share nor delay shutdown.
	firstTimeout = 10 * time.Second
	restTimeout  = 2 * time.Second
	restRate     = 4 << 20 // bytes in a second
	// waitTimeout bounds each of the three waits of a request: for its first part, for its rest and for judging. Those
	// of an authenticated caller are bounded by the context of the request alone.
	waitTimeout = time.Second

	// peeked is how much of a body is read without a reservation, for its head: less than a connection takes anyway.
	peeked = 1 << 10
	// discarded bounds what is read of a body that is refused, in bytes, and discardTimeout how long that may take
	// where the context of the request has ended.
	discarded      = 64 << 20
	discardTimeout = 200 * time.Millisecond
)

var (
	// ErrTooLarge means that a body is larger than is read.
	ErrTooLarge = errors.New("it is too large")
	// ErrNotReceived means that the client did not send the whole body, or not in time.
	ErrNotReceived = errors.New("read the body")
)

// Budget is the memory for requests of all endpoints. It is safe for concurrent use.
type Budget struct {
	all, steps memory
	rejected   prometheus.Counter
}

// memory is for a group of endpoints.
type memory struct{ bodies, work *pool }

func newMemory(bodies, work int64) memory { return memory{newPool(bodies), newPool(work)} }

// maxBody returns the most that is read of a body. A body without a length reserves one byte more.
func (m memory) maxBody() int64 { return min(MaxBody, m.bodies.largest()-1) }

func (m memory) used() int64 { return m.bodies.used() + m.work.used() }

// Caller is who sends a request, and to which endpoint.
type Caller struct {
	// Authenticated is whether the API server sends it. Then it shares by the namespace of the object, and waits for
	// memory as long as its context lasts. Default: it shares by address, and waits for a second.
	Authenticated bool
	// Step is whether the endpoint is for steps of plans, which have a part of the memory that no other endpoint uses.
	// Default: it is not.
	Step bool
	// Raw is the name of a member of objects that the endpoint keeps as JSON, so that the values in it take less.
	// Default: none is.
	Raw string
}

// NewBudget returns a budget and registers its metrics.
func NewBudget(registry prometheus.Registerer) *Budget {
	b := &Budget{all: newMemory(bodiesCapacity, workCapacity), steps: newMemory(stepBodiesCapacity, stepWorkCapacity),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "opgate_requests_rejected_total",
			Help: "Total number of requests refused because the memory for requests was in use.",
		})}
	registry.MustRegister(b.rejected, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "opgate_requests_inflight_bytes",
		Help: "Number of bytes reserved for requests that are being read, judged or converted.",
	}, func() float64 { return float64(b.all.used() + b.steps.used()) }))
	return b
}

// Body is the body of a request with its reservations.
type Body struct {
	// JSON is the body. It is valid until Close.
	JSON []byte
	// Head is set once the first part was read, or by Peek.
	Head Head

	budget         *Budget
	memory         memory
	caller         Caller
	holder         holder
	reserved, work int64
	buffer         *[firstPart]byte // of JSON, nil if it is larger
}

// Close releases the reservations, and the memory of JSON for other bodies.
func (b *Body) Close() {
	b.EndWork()
	b.JSON = nil
	b.releaseBuffer()
	b.memory.bodies.release(b.holder, b.reserved)
	b.reserved = 0
}

// Reserved returns the bytes reserved for decoding and judging the body.
func (b *Body) Reserved() int64 { return b.work }

// EndWork releases what is reserved for decoding and judging. The reservation for the body stays, since an answer of
// about its size may still be sent.
func (b *Body) EndWork() {
	b.memory.work.release(b.holder, b.work)
	b.work = 0
}

// For returns the body of a request without reading it. The caller must close it.
func (b *Budget) For(r *http.Request, c Caller) *Body {
	body := &Body{budget: b, memory: b.all, caller: c,
		holder: holder{address: hostOf(r.RemoteAddr), server: c.Authenticated}}
	if c.Step {
		body.memory = b.steps
	}
	return body
}

// Read reads the body, after it has reserved the memory for reading, decoding and judging or converting it. It returns:
//
//   - ErrBusy: there is no memory for the request at the moment. RejectBusy answers clients that are not authenticated.
//   - ErrTooLarge or ErrNotReceived, with details: the body was not read.
//   - any other error: decoding it would take too much memory. JSON is set.
//
// On every error the rest of the body of an authenticated caller was discarded, and Head is set if the text has one.
func (b *Body) Read(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	err := b.receive(ctx, w, r)
	if errors.Is(err, ErrBusy) {
		b.budget.rejected.Inc()
	}
	if err != nil && b.caller.Authenticated {
		b.Peek(ctx, w, r)
	}
	return err
}

// Peek reads the head, unless it was read, and discards the rest of the body. Without that, the server would close the
// connection while the client still sends, and the client might not receive the answer. It reserves nothing.
func (b *Body) Peek(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	until, ok := ctx.Deadline()
	if least := time.Now().Add(discardTimeout); !ok || until.Before(least) {
		until = least
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(until)
	if b.Head == (Head{}) {
		head := make([]byte, peeked)
		n, _ := io.ReadFull(r.Body, head) // what is missing is not found
		b.Head = ReadHead(head[:n])
	}
	if n, err := io.CopyN(io.Discard, r.Body, discarded); n < discarded && errors.Is(err, io.EOF) {
		_ = c.SetReadDeadline(time.Time{})
	}
}

// RejectBusy answers a client that is not authenticated and for which nothing could be reserved.
func RejectBusy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "opgate is busy: "+ErrBusy.Error(), http.StatusTooManyRequests)
}

// receive reads in two parts: a client that has sent the first has all of the rest reserved at once, so that bodies
// that were read in half do not wait for one another.
func (b *Body) receive(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	most := b.memory.maxBody()
	length, declared := r.ContentLength, r.ContentLength >= 0
	if !declared {
		length = most + 1 // the reader refuses the last one
	}
	from := http.MaxBytesReader(w, r.Body, most)
	c := http.NewResponseController(w)
	first := min(length, firstPart)
	if err := b.reserve(ctx, first); err != nil {
		return err
	}
	deadline(ctx, c, firstTimeout)
	b.buffer = buffers.Get().(*[firstPart]byte)
	text := b.buffer[:first]
	n, err := io.ReadFull(from, text)
	if err := b.share(text[:n]); err != nil {
		return err
	}
	rest := length - first
	switch {
	case declared && length > most:
		return tooLarge(most)
	case err == nil && rest > 0:
		if err := b.reserve(ctx, rest); err != nil {
			return err
		}
		deadline(ctx, c, restTimeout+time.Duration(rest)*time.Second/restRate)
		text = make([]byte, length)
		copy(text, b.buffer[:n])
		b.releaseBuffer()
		var more int
		more, err = io.ReadFull(from, text[n:])
		n += more
	}
	if _, is := errors.AsType[*http.MaxBytesError](err); is {
		return tooLarge(most)
	}
	if ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); err != nil && (declared || !ended) {
		// The deadline stays: the server would wait for the rest of the body before it closes the connection.
		return fmt.Errorf("%w: %w", ErrNotReceived, err)
	}
	b.JSON = text[:n]
	_ = c.SetReadDeadline(time.Time{})
	return b.reserveWork(ctx)
}

func tooLarge(most int64) error {
	return fmt.Errorf("%w: at most %d KiB are read", ErrTooLarge, most>>10)
}

// share reads the head of a review, and makes what is reserved for it count for the namespace of its object. That does
// not wait: what waits would keep the first parts of other namespaces from being read.
func (b *Body) share(first []byte) error {
	b.Head = ReadHead(first)
	if !b.caller.Authenticated {
		return nil
	}
	to := b.holder
	to.namespace = cmp.Or(b.Head.Namespace, clusterScoped)
	if !b.memory.bodies.join(to, b.reserved) {
		return ErrBusy
	}
	b.holder = to
	return nil
}

// clusterScoped is what objects without a namespace share. It is no name of a namespace.
const clusterScoped = "/"

func (b *Body) reserve(ctx context.Context, n int64) error {
	err := b.memory.bodies.acquire(ctx, b.holder, n)
	if err == nil {
		b.reserved += n
	}
	return err
}

func (b *Body) reserveWork(ctx context.Context) error {
	work, err := price(b.JSON, b.caller.Raw, b.memory.work.largest())
	if err != nil {
		return err
	}
	if err = b.memory.work.acquire(ctx, b.holder, work); err == nil {
		b.work = work
	}
	return err
}

// deadline bounds reading from now on, and by the context. Without a connection, as in tests, it has no effect.
func deadline(ctx context.Context, c *http.ResponseController, after time.Duration) {
	until := time.Now().Add(after)
	if end, ok := ctx.Deadline(); ok && end.Before(until) {
		until = end
	}
	_ = c.SetReadDeadline(until)
}

// hostOf returns the client's address without the port, which identifies its share of the budget.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// buffers pools the memory of first parts, which is all that most bodies take. A buffer takes more than what is reserved
// for a smaller body, which the number of connections bounds.
var buffers = sync.Pool{New: func() any { return new([firstPart]byte) }}

func (b *Body) releaseBuffer() {
	if b.buffer != nil {
		buffers.Put(b.buffer)
		b.buffer = nil
	}
}
