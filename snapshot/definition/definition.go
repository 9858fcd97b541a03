// Package definition follows the definition of OperatorPolicy where another program owns it, such as the governance
// add-on of Open Cluster Management, which restores its own one: which versions the API server serves, and which fields
// they have. Nothing is written.
package definition

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/crdschema"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/watched"
)

// State is what is read of a definition.
type State struct {
	// Version is the version that policies are read in, "" while there is no definition, and so no policy.
	Version string
	// Served are all versions that the API server serves.
	Served []string
	// Missing are the fields of v1beta2 that Version does not have.
	Missing []string
	// WithoutMayhave is set if complianceType mayhave is none of its values.
	WithoutMayhave bool
}

// read returns the state of a definition, which is nil if it does not exist. A definition that serves no version that
// is known here keeps the last one: its policies may still be stored, and must not be forgotten.
func read(definition *unstructured.Unstructured, last string) State {
	if definition == nil {
		return State{}
	}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	fields := map[string]map[string]any{}
	var s State
	for _, v := range versions {
		version, _ := v.(map[string]any)
		name, _ := version["name"].(string)
		if version["served"] != true || name == "" {
			continue
		}
		s.Served = append(s.Served, name)
		fields[name], _, _ = unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec",
			"properties")
	}
	slices.Sort(s.Served)
	s.Version = policyv1beta1.GroupVersion.Version
	switch {
	case slices.Contains(s.Served, policyv1beta2.Version):
		s.Version = policyv1beta2.Version
	case !slices.Contains(s.Served, s.Version) && last != "":
		s.Version = last
	}
	properties := fields[s.Version]
	for _, field := range crdschema.Own(policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind)).SpecFields() {
		if _, has := properties[field]; !has {
			s.Missing = append(s.Missing, "spec."+field)
		}
	}
	values, _, _ := unstructured.NestedStringSlice(properties, "complianceType", "enum")
	s.WithoutMayhave = !slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, "mayhave") })
	return s
}

// text describes the state for people.
func (s *State) text() string {
	switch {
	case s.Version == "":
		return "OperatorPolicy is defined by another program, which has not installed its definition: there are no policies"
	case !slices.Contains(s.Served, s.Version):
		return "OperatorPolicy is defined by another program, and not served as v1beta1 or v1beta2: policies cannot be read"
	}
	var lacks []string
	if fields := strings.Join(s.Missing, ", "); fields != "" && s.Version == policyv1beta1.GroupVersion.Version {
		lacks = append(lacks, fields+" are read from annotation "+metakey.Conversion)
	} else if fields != "" {
		lacks = append(lacks, fields+" are not available")
	}
	if s.WithoutMayhave {
		lacks = append(lacks, "complianceType mayhave is not available")
	}
	if len(lacks) == 0 {
		return "OperatorPolicy is defined by another program, as " + s.Version
	}
	return "OperatorPolicy is defined by another program, as " + s.Version + ": " + strings.Join(lacks, "; ")
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// Watcher follows the definition. A nil Watcher is that of Opgate's own definition.
type Watcher struct {
	object   *watched.Object
	versions chan string // holds the last one
	mu       sync.Mutex  // held by update
	state    atomic.Pointer[State]
	log      logr.Logger
}

// Version is the metric of the version that policies are read in.
var Version = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "opgate_operatorpolicy_version_info",
	Help: "Whether OperatorPolicies are read in a version (1), by version; none while there is no definition."},
	[]string{"version"})

// setVersion sets the version in the metric, "" while there is no definition.
func setVersion(version string) {
	Version.Reset()
	Version.WithLabelValues(cmp.Or(version, "none")).Set(1)
}

// NewWatcher returns a watcher. Start runs it.
func NewWatcher(client dynamic.Interface, log logr.Logger) *Watcher {
	setVersion("")
	w := &Watcher{versions: make(chan string, 1), log: log}
	name := policyv1beta2.Resource + "." + policyv1beta2.Group
	w.object = watched.New(client, definitions, "", name, w.update, log)
	return w
}

// Versions returns the versions that policies are to be read in, the present one first, each when it replaces the last;
// "" where there is no definition. It is nil for Opgate's own definition, which has v1beta2 at all times.
func (w *Watcher) Versions() <-chan string {
	if w == nil {
		return nil
	}
	return w.versions
}

// Note describes the definition for readiness; "" for Opgate's own, and while it is not known.
func (w *Watcher) Note() string {
	if w == nil || w.state.Load() == nil {
		return ""
	}
	return w.state.Load().text()
}

// Start follows the definition until the context ends.
func (w *Watcher) Start(ctx context.Context) error { return w.object.Start(ctx) }

// update stores the state, and passes on a version that is new.
func (w *Watcher) update(any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, version := w.state.Load(), ""
	if last != nil {
		version = last.Version
	}
	state := read(w.object.Get(), version)
	if last != nil && reflect.DeepEqual(*last, state) {
		return
	}
	w.state.Store(&state)
	setVersion(state.Version)
	w.log.Info("definition of OperatorPolicy is external", "version", state.Version, "served", state.Served,
		"lacks", state.Missing)
	if last != nil && version == state.Version {
		return
	}
	select { // this is the only sender
	case <-w.versions:
	default:
	}
	w.versions <- state.Version
}
