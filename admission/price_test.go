package admission

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/cases"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/olm"
)

// rawTypes are what endpoints decode that do not decode the review into it.
var rawTypes = map[string]reflect.Type{
	PathMutateGeneratedSubscriptions: reflect.TypeFor[olm.Subscription](),
	PathMutatePolicies:               reflect.TypeFor[policyv1.Policy](),
	PathMutateSubscriptions:          reflect.TypeFor[olm.Subscription](),
	PathMutateOperatorPolicies:       reflect.TypeFor[policyv1beta2.OperatorPolicy](),
	PathValidateOperatorPolicies:     reflect.TypeFor[policyv1beta2.OperatorPolicy](),
	PathValidatePolicySets:           reflect.TypeFor[policyv1beta1.PolicySet](),
	PathValidateConstraints:          reflect.TypeFor[constraintv1.Constraint](),
}

// callerOf returns what an endpoint reserves memory as.
func callerOf(handler http.Handler) inflight.Caller {
	e := reflect.ValueOf(handler).Elem()
	return inflight.Caller{Step: e.FieldByName("step").Bool(), Raw: e.FieldByName("raw").String()}
}

// hole is a place in a type that a client may fill. Open and shut are the JSON around it.
type hole struct{ path, open, shut string }

// holes finds every list, map and value of a type.
func holes(t reflect.Type, path, open, shut string, depth int, seen map[reflect.Type]int, add func(hole)) {
	if depth > 12 || seen[t] > 0 {
		return
	}
	seen[t]++
	defer func() { seen[t]-- }()
	switch t.Kind() {
	case reflect.Pointer:
		holes(t.Elem(), path, open, shut, depth, seen, add)
	case reflect.Struct:
		add(hole{path, open, shut})
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && name == "" {
				holes(f.Type, path, open, shut, depth+1, seen, add)
				continue
			}
			if name == "" || name == "-" {
				continue
			}
			holes(f.Type, path+"."+name, open+`{"`+name+`":`, `}`+shut, depth+1, seen, add)
		}
	case reflect.Slice, reflect.Array:
		add(hole{path, open, shut})
		if t.Elem().Kind() != reflect.Uint8 {
			holes(t.Elem(), path+"[]", open+`[`, `]`+shut, depth+1, seen, add)
		}
	case reflect.Map:
		add(hole{path, open, shut})
		holes(t.Elem(), path+"{}", open+`{"k":`, `}`+shut, depth+1, seen, add)
	case reflect.Interface, reflect.String:
		add(hole{path, open, shut})
	default: // numbers and booleans hold nothing
	}
}

var fillers = map[string]func(n int) string{
	"empty objects": func(n int) string { return "[" + strings.Repeat("{},", n) + "{}]" },
	"small objects": func(n int) string { return "[" + strings.Repeat(`{"a":1},`, n) + "{}]" },
	"keys": func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"%d":{},`, i)
		}
		return "{" + b.String() + `"":{}}`
	},
	"levels": func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) },
	"text":   func(n int) string { return `"` + strings.Repeat(`\u00e9`, 50*n) + `"` },
}

// allocatedBy returns how many bytes f allocates beyond what every review takes, and what the test itself does.
func allocatedBy(f func()) int64 {
	const fixed = 128 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc-before.TotalAlloc) - fixed
}

// TestA3DecodingFitsItsPrice fills every field of every kind, and compares what is allocated with what is reserved for
// it. Garbage counts: a list that grows is copied about five times in all, and an error quotes a value more than once.
func TestA3DecodingFitsItsPrice(t *testing.T) {
	const n, withGarbage = 500, 10
	budget := inflight.NewBudget(prometheus.NewRegistry())
	handlers := governedGate(t).Handlers()
	type shape struct {
		hole
		handler        http.Handler
		endpoint, full string
	}
	var shapes []shape
	for _, path := range slices.Sorted(maps.Keys(handlers)) {
		handler, target := handlers[path], rawTypes[path]
		if target == nil {
			judge, _ := reflect.TypeOf(handler).Elem().FieldByName("judge")
			object, _ := judge.Type.In(2).Elem().FieldByName("Object")
			target = object.Type.Elem()
		}
		holes(target, "", "", "", 0, map[reflect.Type]int{}, func(h hole) {
			for _, name := range slices.Sorted(maps.Keys(fillers)) {
				shapes = append(shapes, shape{h, handler, path, name})
			}
		})
	}
	t.Logf("%d shapes", len(shapes))
	for _, s := range cases.Some(shapes) {
		body := []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","object":` + s.open + fillers[s.full](n) + s.shut + `}}`)
		request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		priced := budget.For(request, callerOf(s.handler))
		if err := priced.Read(request.Context(), httptest.NewRecorder(), request); err != nil {
			t.Fatalf("%s: %v", s.path, err)
		}
		reserved := priced.Reserved()
		priced.Close()
		// Goroutines left by earlier tests may allocate as well: the best of three counts.
		took := int64(math.MaxInt64)
		for range 3 {
			if took = min(took, allocatedBy(func() { post(t, s.handler, body) })); took <= withGarbage*reserved {
				break
			}
		}
		if took > withGarbage*reserved {
			t.Errorf("%s%s full of %s: %d bytes in %d of JSON, for which %d are reserved", s.endpoint, s.path, s.full,
				took, len(body), reserved)
		}
	}
}
