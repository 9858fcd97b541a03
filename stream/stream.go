// Package stream lists and watches objects one at a time: each is decoded from its JSON directly into the form that is
// stored.
//
// The clients of client-go decode a complete object before any field can be dropped. An object of 1.3 MB that a tenant
// may store becomes 40 MiB that way, and a list in one piece as much for each of its objects. Here a list takes the
// size of its largest object, as JSON, in addition to what is stored.
package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"
)

// Decode returns the form of an object that is stored. It must always return the same type. The JSON is valid only
// until it returns. Bookmarks, which have only metadata, are passed to it like any other object; their annotation
// metav1.InitialEventsAnnotationKey must be retained.
type Decode func(raw []byte) (runtime.Object, error)

// Client lists and watches.
type Client struct{ rest rest.Interface }

// NewForConfig returns a client with the transport of a configuration.
func NewForConfig(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = errorsOnly
	config.GroupVersion = nil
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{rest: client}, nil
}

// Selecting lists and watches the objects of a namespace, or of all, that a label selector matches, which the API server
// evaluates; "" matches all. It supports streaming lists. Progress records how current the watch is; nil for a watch that may be as old as it
// is.
func (c *Client) Selecting(
	resource schema.GroupVersionResource, namespace, selector string, decode Decode, progress *Progress,
) cache.ListerWatcher {
	r := &source{client: c, path: path(resource, namespace), selector: selector, decode: decode, progress: progress}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: r.list,
		WatchFuncWithContext: r.watch}, c)
}

// Get returns the JSON of one object; the namespace of a cluster-scoped one is empty.
func (c *Client) Get(
	ctx context.Context, resource schema.GroupVersionResource, key types.NamespacedName,
) ([]byte, error) {
	if faults := slices.Concat(content.IsPathSegmentName(key.Name),
		content.IsPathSegmentName(key.Namespace)); len(faults) > 0 || key.Name == "" {
		return nil, fmt.Errorf("%q is not the name of an object: %v", key, faults) // it would be another path
	}
	result := c.rest.Get().AbsPath(append(path(resource, key.Namespace), key.Name)...).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err // as the API server reports it, unlike that of Raw
	}
	return result.Raw()
}

// path returns the path of a resource, of one namespace or of all.
func path(resource schema.GroupVersionResource, namespace string) []string {
	segments := []string{"/apis", resource.Group, resource.Version}
	if resource.Group == "" {
		segments = []string{"/api", resource.Version}
	}
	if namespace != "" {
		segments = append(segments, "namespaces", namespace)
	}
	return append(segments, resource.Resource)
}

type source struct {
	client   *Client
	path     []string
	selector string
	fields   string
	decode   Decode
	// limit bounds a list, in bytes; 0 for no bound.
	limit int64
	// progress is recorded, unless it is nil.
	progress *Progress
}

func (s *source) open(ctx context.Context, options *metav1.ListOptions) (io.ReadCloser, error) {
	options.LabelSelector, options.FieldSelector = s.selector, s.fields
	return s.client.rest.Get().AbsPath(s.path...).SpecificallyVersionedParams(options, metav1.ParameterCodec,
		schema.GroupVersion{Version: "v1"}).Stream(ctx)
}

// List is a list of objects in the form that is stored.
type List struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject copies the list but not the objects, which are immutable.
func (l *List) DeepCopyObject() runtime.Object {
	copied := *l
	copied.Items = append([]runtime.Object(nil), l.Items...)
	return &copied
}

// list decodes a list element by element.
func (s *source) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	since := time.Now()
	body, err := s.open(ctx, &options)
	if err != nil {
		return nil, err
	}
	defer body.Close() //nolint:errcheck // it has been read
	into := &List{}
	var from io.Reader = body
	if s.limit > 0 {
		from = io.LimitReader(body, s.limit) // what is longer ends in the middle of the list, which is an error
	}
	if err := s.readList(json.NewDecoder(from), into); err != nil {
		return nil, fmt.Errorf("read a list: %w", err)
	}
	if s.progress != nil && into.Continue == "" {
		s.progress.observed(into.ResourceVersion)
		s.progress.confirm(since)
	}
	return into, nil
}

func (s *source) readList(from *json.Decoder, into *List) error {
	if err := delimiter(from, '{'); err != nil {
		return err
	}
	for from.More() {
		field, err := from.Token()
		if err != nil {
			return err
		}
		switch field {
		case "metadata":
			err = from.Decode(&into.ListMeta)
		case "items":
			err = s.readItems(from, into)
		default:
			var other json.RawMessage
			err = from.Decode(&other)
		}
		if err != nil {
			return err
		}
	}
	return delimiter(from, '}')
}

func (s *source) readItems(from *json.Decoder, into *List) error {
	if err := delimiter(from, '['); err != nil {
		return err
	}
	var raw json.RawMessage
	for from.More() {
		if err := from.Decode(&raw); err != nil {
			return err
		}
		kept, err := s.decode(raw)
		if err != nil {
			return err
		}
		into.Items = append(into.Items, kept)
	}
	return delimiter(from, ']')
}

func delimiter(from *json.Decoder, want json.Delim) error {
	token, err := from.Token()
	if err != nil {
		return err
	}
	if token != want {
		return fmt.Errorf("%v where %v should be", token, want)
	}
	return nil
}

// watch opens a watch.
func (s *source) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	if s.progress != nil {
		return s.follow(ctx, &options)
	}
	body, err := s.open(ctx, &options)
	if err != nil {
		return nil, err
	}
	return s.watcher(body, nil), nil
}

// watcher decodes the events of a request.
func (s *source) watcher(body io.ReadCloser, of *request) watch.Interface {
	return watch.NewStreamWatcher(&events{body: body, from: json.NewDecoder(body), decode: s.decode, of: of},
		apierrors.NewClientErrorReporter(http.StatusInternalServerError, "watch", "ClientWatchDecoding"))
}

// events decodes the events of a watch. It implements watch.Decoder.
type events struct {
	body   io.Closer
	from   *json.Decoder
	decode Decode
	// of is the request, nil if no progress is recorded.
	of *request
}

// Decode decodes one event.
func (e *events) Decode() (watch.EventType, runtime.Object, error) {
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := e.from.Decode(&event); err != nil {
		return "", nil, e.of.ended(err)
	}
	if event.Type == watch.Error {
		e.of.end()
		status := &metav1.Status{}
		if err := json.Unmarshal(event.Object, status); err != nil {
			return "", nil, fmt.Errorf("read an error of a watch: %w", err)
		}
		return event.Type, status, nil
	}
	object, err := e.decode(event.Object)
	if err == nil {
		e.of.event(event.Type, object)
	}
	return event.Type, object, err
}

// Close ends the watch.
func (e *events) Close() {
	e.of.end()
	_ = e.body.Close()
}

// Selection restricts a list; the API server evaluates it. The zero value selects all objects.
type Selection struct {
	// Namespace is empty for all namespaces, and for a cluster-scoped resource.
	Namespace string
	// Labels and Fields are selectors.
	Labels, Fields string
}

// List returns the objects of a resource, for commands that look at a cluster once. It reads them in pages. If the
// version of the first page expires meanwhile, it reads all again in one.
func (c *Client) List(
	ctx context.Context, resource schema.GroupVersionResource, from Selection, decode Decode,
) ([]runtime.Object, error) {
	s := &source{client: c, path: path(resource, from.Namespace), selector: from.Labels, fields: from.Fields,
		decode: decode}
	list, _, err := pager.New(s.list).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("read a list: %w", err)
	}
	return objects, nil
}

// Each lists objects of a resource, once and not in pages, and calls do with the JSON of each, which is valid only
// until that returns. A response of more than limit bytes is an error.
func (c *Client) Each(
	ctx context.Context, resource schema.GroupVersionResource, from Selection, limit int64, do func(raw []byte) error,
) error {
	s := &source{client: c, path: path(resource, from.Namespace), selector: from.Labels, fields: from.Fields,
		limit:  limit,
		decode: func(raw []byte) (runtime.Object, error) { return nil, do(raw) }}
	_, err := s.list(ctx, metav1.ListOptions{})
	return err
}

// firstPause is the delay after the first failure of a reflector.
const firstPause = 800 * time.Millisecond

// Reflect lists and watches into a store until the context ends, as an informer does, with bounded delays after
// failures. Name is that of the resource, for the reflector's own log, and example an object of the type that is listed.
// Longest bounds the pause after a failure, which grows to it from a second; with jitter it is twice as long. Failed is
// called with each error of listing or watching. It may wait.
func Reflect(ctx context.Context, name string, from cache.ListerWatcher, example any, into cache.ReflectorStore,
	longest time.Duration, failed func(error)) {
	pause := wait.Backoff{Duration: min(firstPause, longest), Factor: 2, Jitter: 1, Steps: 10, Cap: longest}
	reflector := cache.NewReflectorWithOptions(from, example, into,
		cache.ReflectorOptions{Name: name, TypeDescription: name, Backoff: &pause})
	// the reflector has a state of its own for failures within a list or a watch
	again := pause
	// only the context ends it
	_ = again.DelayWithReset(clock.RealClock{}, 4*longest).Until(ctx, true, true,
		func(ctx context.Context) (bool, error) {
			if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
				failed(err)
			}
			return false, nil
		})
}

// errorsOnly decodes the metav1.Status that the API server returns for errors.
var errorsOnly = func() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}()
