package cluster

import (
	"context"
	"encoding/json"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/contents"
)

// Input is where a command reads the state of a cluster: in files, or from the cluster that flags name.
type Input struct {
	cli.Kubeconfig
	// Files are read in place of the cluster. Default: the cluster is read.
	Files []string
	// All reads all namespaces of the cluster. Default: that of -n, else of the context.
	All bool
}

// Read returns the state. It sets o.Namespace; in files, objects that name no namespace are in that of -n.
func (in *Input) Read(ctx context.Context, o Options, stdin io.Reader, stderr io.Writer) (*State, error) {
	if len(in.Files) > 0 {
		unit, err := manifests.Read(in.Files, stdin, stderr,
			manifests.Options{Namespace: in.Overrides.Context.Namespace})
		if err != nil {
			return nil, err
		}
		selector, err := labels.Parse(o.Subscriptions)
		if err != nil {
			return nil, err
		}
		unit.Objects = slices.DeleteFunc(unit.Objects, func(object *manifests.Object) bool {
			var m metav1.PartialObjectMetadata
			return object.Kind == olm.KindSubscription && json.Unmarshal(object.JSON(), &m) == nil &&
				!selector.Matches(labels.Set(m.Labels))
		})
		state := FromFiles(unit, facts.Cluster{})
		state.Scope = in.Overrides.Context.Namespace
		return state, nil
	}
	o.Namespace = ""
	if !in.All {
		var err error
		if o.Namespace, err = in.Kubeconfig.Namespace(); err != nil {
			return nil, err
		}
	}
	reader, err := Connect(in.Kubeconfig)
	if err != nil {
		return nil, err
	}
	state, err := reader.Read(ctx, o)
	if err != nil {
		return nil, err
	}
	state.Scope = o.Namespace
	return state, nil
}

// FromFiles returns the state of a cluster that holds nothing but the objects in files.
func FromFiles(unit *manifests.Unit, versions facts.Cluster) *State {
	b := unit.Builder(versions)
	return &State{Snapshot: b.Put(undated), builder: b, files: unit}
}

// Contents returns the objects that plans are compared with.
func (s *State) Contents() contents.Source {
	if s.files != nil {
		return &s.files.Files
	}
	return s.listed.Contents()
}

// get returns the JSON of an object of the files; nil if there is none.
func (s *State) get(kind *snapshot.Kind, key types.NamespacedName) []byte {
	for _, o := range s.files.Objects {
		if o.Kind == kind.Kind && o.Namespace == key.Namespace && o.Name == key.Name {
			return o.JSON()
		}
	}
	return nil
}
