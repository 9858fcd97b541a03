package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/internal/speed"
)

// HeldByBackstop is in refusals that are the API server's own.
const HeldByBackstop = "held by the API server (ValidatingAdmissionPolicy opgate-backstop)"

const (
	// markerNamespace has a policy for a package of which the name counts what was waited for.
	markerNamespace = "opgate-e2e-backstop"
	// backstopTimeout bounds the time until the API server judges by a policy: it looks for admission policies once a
	// second.
	backstopTimeout = speed.LongWait
)

// held is what the API server is known to judge by.
type held struct {
	mu sync.Mutex
	// marker counts the policies of markerNamespace.
	marker int
	// policies are those that were stored before the last marker.
	policies []string
}

// WaitForBackstop waits until the API server itself judges by the policies that are stored now, if this gate keeps the
// backstop. It returns at once where nothing changed since the last call.
func (g *Gate) WaitForBackstop(ctx context.Context) error {
	if !g.backstop {
		return nil
	}
	h := &g.cluster.held
	h.mu.Lock()
	defer h.mu.Unlock()
	policies, err := g.cluster.judgedBy(ctx)
	if err != nil || slices.Equal(policies, h.policies) {
		return err
	}
	h.marker++
	pkg := markerPackage(h.marker)
	if err := g.cluster.mark(ctx, pkg); err != nil {
		return fmt.Errorf("wait for the backstop: %w", err)
	}
	if err := g.cluster.pollBackstop(ctx, func(ctx context.Context) error {
		return errors.Join(g.cluster.refuses(ctx, csvOf(pkg), true), g.cluster.makesManual(ctx, pkg, true))
	}); err != nil {
		return fmt.Errorf("wait for the backstop: %w", err)
	}
	h.policies = policies
	return nil
}

// keptBackstop reports whether a gate has kept the backstop.
func (c *Cluster) keptBackstop() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.backstop
}

// forget makes the next WaitForBackstop wait: another process may compile other admission policies from the same
// policies.
func (h *held) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.policies = nil
}

// removeBackstop deletes the admission policies that an earlier gate has written, as the garbage collector does where
// the chart is installed without them, and waits until the API server does not judge by them.
func (c *Cluster) removeBackstop(ctx context.Context) error {
	h := &c.held
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy",
		"MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"} {
		for _, name := range []string{"opgate-backstop", "opgate-unpacked", "opgate-deletion", "opgate-evidence"} {
			object := &metav1.PartialObjectMetadata{}
			object.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1",
				Kind: kind})
			object.SetName(name)
			if err := c.masters.Delete(ctx, object); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
				return fmt.Errorf("remove the backstop: %w", err)
			}
		}
	}
	h.policies = nil
	if err := client.IgnoreAlreadyExists(createNamespaces(ctx, c.masters, []string{markerNamespace})); err != nil {
		return err
	}
	err := c.pollBackstop(ctx, func(ctx context.Context) error {
		err := c.refuses(ctx, plannedOverride, false)
		if h.marker > 0 {
			err = errors.Join(err, c.makesManual(ctx, markerPackage(h.marker), false))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove the backstop: %w", err)
	}
	return nil
}

// pollBackstop waits until a check returns nil.
func (c *Cluster) pollBackstop(ctx context.Context, check func(context.Context) error) error {
	last := errors.New("not asked yet")
	err := speed.Poll(ctx, 2*pollInterval, backstopTimeout,
		func(ctx context.Context) (bool, error) {
			last = check(ctx)
			return last == nil, nil
		})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

func markerPackage(n int) string { return fmt.Sprintf("marker-%d", n) }

// judgedBy are the versions of all objects that the backstop is compiled from, but the marker.
func (c *Cluster) judgedBy(ctx context.Context) (versions []string, err error) {
	for _, kind := range []schema.GroupVersionKind{
		{Group: policyGroup, Version: "v1beta2", Kind: "OperatorPolicy"},
		{Group: operatorsGroup, Version: "v1", Kind: "OperatorGroup"},
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := c.masters.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		for _, item := range list.Items {
			if item.Namespace != markerNamespace {
				versions = append(versions, string(item.UID)+" "+item.ResourceVersion)
			}
		}
	}
	slices.Sort(versions)
	return versions, nil
}

// mark makes the marker a policy for another package. It allows no version, and makes Opgate install nothing.
func (c *Cluster) mark(ctx context.Context, pkg string) error {
	if err := client.IgnoreAlreadyExists(createNamespaces(ctx, c.masters, []string{markerNamespace})); err != nil {
		return err
	}
	marker, err := objectOf(fmt.Sprintf(`
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: marker, namespace: %[1]s}
spec:
  remediationAction: enforce
  complianceType: mayhave
  subscription: {name: %[2]s, namespace: %[1]s}
  versions: [none.v0.0.0]
  upgradeApproval: Automatic
`, markerNamespace, pkg))
	if err != nil {
		return err
	}
	return createOrUpdate(ctx, c.masters, marker)
}

// csvOf is a ClusterServiceVersion of a package, past OLM.
func csvOf(pkg string) string {
	return fmt.Sprintf(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: %[2]s.v1.0.0
  namespace: %[1]s
  annotations:
    operatorframework.io/properties: '{"properties":[{"type":"olm.package","value":{"packageName":"%[2]s","version":"1.0.0"}}]}'
spec: {displayName: marker, install: {strategy: deployment}}
`, markerNamespace, pkg)
}

// plannedOverride is an InstallPlan that the backstop refuses whatever policies exist.
const plannedOverride = `
apiVersion: operators.coreos.com/v1alpha1
kind: InstallPlan
metadata: {name: marker, namespace: ` + markerNamespace + `, annotations: {opgate.io/override-reason: marker}}
spec: {approval: Manual, approved: false, clusterServiceVersionNames: [marker]}
`

// refuses returns an error unless the API server itself refuses to create an object, or does not. It stores nothing.
func (c *Cluster) refuses(ctx context.Context, manifest string, want bool) error {
	object, err := objectOf(manifest)
	if err != nil {
		return err
	}
	err = c.masters.Create(ctx, object, client.DryRunAll)
	if refused := err != nil && strings.Contains(err.Error(), HeldByBackstop); refused != want {
		return fmt.Errorf("%s: the API server refuses it %t: %w", object.GetKind(), refused, err)
	}
	return nil
}

// makesManual returns an error unless the API server itself makes a Subscription to a package Manual, so that no
// webhook warns of that, or does not. It stores nothing.
func (c *Cluster) makesManual(ctx context.Context, pkg string, want bool) error {
	mutating := schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}
	if _, err := c.masters.RESTMapper().RESTMapping(mutating, "v1"); meta.IsNoMatchError(err) {
		return nil // before Kubernetes 1.36
	}
	subscription, err := objectOf(fmt.Sprintf(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: marker, namespace: %[1]s}
spec: {name: %[2]s, channel: alpha, source: catalog, sourceNamespace: olm, installPlanApproval: Automatic}
`, markerNamespace, pkg))
	if err != nil {
		return err
	}
	var warned warnings
	config := rest.CopyConfig(c.plane.masters)
	config.WarningHandler = &warned
	asking, err := client.New(config, client.Options{Mapper: c.masters.RESTMapper()})
	if err != nil {
		return err
	}
	err = asking.Create(ctx, subscription, client.DryRunAll)
	switch {
	case apierrors.IsForbidden(err): // by a Constraint
		return nil
	case err != nil:
		return fmt.Errorf("create a Subscription: %w", err)
	}
	approval, _, _ := unstructured.NestedString(subscription.Object, "spec", "installPlanApproval")
	if made := approval == "Manual" && len(warned) == 0; made != want {
		return fmt.Errorf("the Subscription has approval %s, warnings %q", approval, warned)
	}
	return nil
}

// warnings are those of the API server.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

func objectOf(manifest string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	return u, yaml.UnmarshalStrict([]byte(manifest), &u.Object)
}
