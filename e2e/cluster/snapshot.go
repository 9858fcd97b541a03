package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// snapshotTimeout bounds the time until a write has reached Opgate's snapshot; it takes milliseconds.
const snapshotTimeout = 30 * time.Second

// snapshotKind is a kind that Opgate's snapshot is made of. Resource is what the endpoint calls it.
type snapshotKind struct {
	resource string
	kind     schema.GroupVersionKind
}

func snapshotKinds() []snapshotKind {
	olm := schema.GroupVersion{Group: operatorsGroup, Version: "v1alpha1"}
	policy := schema.GroupVersion{Group: policyGroup, Version: "v1beta2"}
	constraint := schema.GroupVersion{Group: operatorsGroup, Version: "v1"}
	return []snapshotKind{
		{"operatorpolicies", policy.WithKind("OperatorPolicy")},
		{"subscriptions", olm.WithKind("Subscription")},
		{"installplans", olm.WithKind("InstallPlan")},
		{"clusterserviceversions", olm.WithKind("ClusterServiceVersion")},
		{"constraints", constraint.WithKind("Constraint")},
		{"policies", schema.GroupVersion{Group: policyGroup, Version: "v1"}.WithKind("Policy")},
		{"policysets", schema.GroupVersion{Group: policyGroup, Version: "v1beta1"}.WithKind("PolicySet")},
		{"namespaces", schema.GroupVersion{Version: "v1"}.WithKind("Namespace")},
	}
}

// Snapshot is what Opgate says of the state that it judges by. The keys of its maps are resources, such as "installplans".
type Snapshot struct {
	// Ready is whether all resources have been read once. Until then every write is refused.
	Ready bool `json:"ready"`
	// Generation counts the snapshots that the process has built.
	Generation int64 `json:"generation"`
	// ResourceVersions are the newest that the snapshot includes.
	ResourceVersions map[string]string `json:"resourceVersions"`
	// Objects are how many the snapshot holds.
	Objects map[string]int `json:"objects"`
}

// Snapshot asks Opgate which state it judges by.
func (g *Gate) Snapshot(ctx context.Context) (Snapshot, error) {
	var snapshot Snapshot
	if err := g.get(ctx, "/snapshot", &snapshot); err != nil {
		return Snapshot{}, fmt.Errorf("read the snapshot: %w", err)
	}
	return snapshot, nil
}

// WaitForSnapshot waits until Opgate judges by the objects that are in the API server now. Opgate learns of writes by
// watching, so a test that writes a policy and then something that the policy is about has to wait in between.
func (g *Gate) WaitForSnapshot(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, snapshotTimeout, true, func(ctx context.Context) (bool, error) {
		last = g.compareSnapshot(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the snapshot: %w", errors.Join(err, last))
	}
	return nil
}

// compareSnapshot returns an error that says what the snapshot lacks.
func (g *Gate) compareSnapshot(ctx context.Context) error {
	// The API server first: what it has then, a snapshot taken later must have as well.
	type state struct {
		newest string
		count  int
	}
	want := map[string]state{}
	for _, kind := range snapshotKinds() {
		newest, count, err := newestVersion(ctx, g.cluster.masters, kind.kind)
		if err != nil {
			return err
		}
		want[kind.resource] = state{newest, count}
	}
	snapshot, err := g.Snapshot(ctx)
	if err != nil {
		return err
	}
	if !snapshot.Ready {
		return errors.New("the snapshot is not ready")
	}
	for _, kind := range snapshotKinds() {
		want := want[kind.resource]
		// Versions show what was written; only the number of objects shows what was deleted.
		if got := snapshot.Objects[kind.resource]; got != want.count {
			return fmt.Errorf("the snapshot has %d %s, the API server %d", got, kind.resource, want.count)
		}
		if want.count == 0 {
			continue
		}
		got := snapshot.ResourceVersions[kind.resource]
		order, err := resourceversion.CompareResourceVersion(got, want.newest)
		if err != nil {
			return fmt.Errorf("compare versions %q and %q of %s: %w", got, want.newest, kind.resource, err)
		}
		if order < 0 {
			return fmt.Errorf("the snapshot has %s up to version %s, the API server %s", kind.resource, got, want.newest)
		}
	}
	return nil
}

// newestVersion lists all objects of a kind and returns the highest resource version of one, and how many there are.
func newestVersion(ctx context.Context, c client.Client, kind schema.GroupVersionKind) (newest string, count int, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := c.List(ctx, list); err != nil {
		return "", 0, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	for _, item := range list.Items {
		if newest == "" {
			newest = item.ResourceVersion
			continue
		}
		order, err := resourceversion.CompareResourceVersion(item.ResourceVersion, newest)
		if err != nil {
			return "", 0, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		if order > 0 {
			newest = item.ResourceVersion
		}
	}
	return newest, len(list.Items), nil
}

// get requests path from the health endpoint, wants status 200, and decodes the JSON body unless into is nil.
func (g *Gate) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, g.HealthURL()+path, nil)
	if err != nil {
		return err
	}
	response, err := g.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", path, response.Status, strings.TrimSpace(string(body)))
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}
