// Package cluster reads a cluster once, for commands that judge by it: the objects of the snapshot, each kind with one
// list in pages, as the gate would hold them, so that the rules return what the gate would answer.
package cluster

import (
	"context"
	"fmt"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/contents"
	"github.com/opgate/opgate/stream"
)

// dialTimeout bounds a connection to an API server that does not answer. Requests themselves may take as long as they
// need.
const dialTimeout = 10 * time.Second

// releaseNamespace is the namespace of the release, if the installation does not choose another one.
const releaseNamespace = "opgate-system"

// Reader reads a cluster. It is safe for concurrent use.
type Reader struct {
	config  *rest.Config
	streams *stream.Client
	objects dynamic.Interface
}

// Connect returns a reader of the cluster that flags name. It sends no request.
func Connect(flags cli.Kubeconfig) (*Reader, error) {
	config, err := flags.Load()
	if err != nil {
		return nil, err
	}
	return New(config)
}

// New returns a reader with a client configuration.
func New(config *rest.Config) (*Reader, error) {
	config = rest.CopyConfig(config)
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	streams, err := stream.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &Reader{config: config, streams: streams, objects: objects}, nil
}

// Contents returns the objects that plans are compared with.
func (r *Reader) Contents() contents.Source { return r.streams }

// Changes returns what a plan changes beyond what it replaces.
func (r *Reader) Changes(
	ctx context.Context, plan types.NamespacedName, replaced []state.Replacement,
) (*state.PlanChanges, error) {
	reading, err := contents.Read(ctx, r.streams, plan, replaced)
	if err != nil {
		return nil, err
	}
	return &reading.PlanChanges, nil
}

func (r *Reader) objectsOf(ctx context.Context, kind *snapshot.Kind, o Options) ([]*snapshot.Object, error) {
	var decode snapshot.Reader
	selected := selection(kind, o.Namespace)
	if kind == snapshot.Subscriptions {
		selected.Labels = o.Subscriptions
	}
	items, err := r.list(ctx, kind, selected, func(raw []byte) (runtime.Object, error) {
		if o.Seen != nil {
			o.Seen(kind, raw)
		}
		return decode.Read(kind, raw), nil
	})
	objects := make([]*snapshot.Object, len(items))
	for i, item := range items {
		objects[i] = item.(*snapshot.Object)
	}
	return objects, err
}

func (r *Reader) list(
	ctx context.Context, kind *snapshot.Kind, selected stream.Selection, decode stream.Decode,
) ([]runtime.Object, error) {
	resource := kind.GroupVersionResource()
	items, err := r.streams.List(ctx, resource, selected, decode)
	if kind == snapshot.OperatorPolicies && apierrors.IsNotFound(err) { // another program owns the definition
		resource.Version = policyv1beta1.GroupVersion.Version
		items, err = r.streams.List(ctx, resource, selected, decode)
	}
	switch {
	case err == nil:
		return items, nil
	case apierrors.IsForbidden(err):
		return nil, &Forbidden{Rights: []Right{{Verb: "list", Resource: kind.GroupVersionResource().GroupResource(),
			Namespace: selected.Namespace, Role: RoleReader}}}
	case apierrors.IsNotFound(err):
		return nil, &NotServed{Kind: kind}
	}
	return nil, fmt.Errorf("list %s: %w", kind.Resource, explained(err, r.config.Host))
}

// selection returns the objects of a kind by which a namespace is judged, "" for all: policies and catalogs may be in
// others.
func selection(kind *snapshot.Kind, namespace string) stream.Selection {
	s := stream.Selection{Labels: kind.Selector}
	switch kind {
	case snapshot.ClusterServiceVersions:
		s.Namespace, s.Labels = namespace, "!"+metakey.CopiedFrom
	case snapshot.Subscriptions, snapshot.InstallPlans, snapshot.OperatorGroups, snapshot.OperatorConditions:
		s.Namespace = namespace
	case snapshot.Namespaces:
		if namespace != "" {
			s.Fields = "metadata.name=" + namespace
		}
	case snapshot.Records:
		s.Namespace, s.Fields = releaseNamespace, "metadata.name="+catalog.RecordsName
	}
	return s
}
