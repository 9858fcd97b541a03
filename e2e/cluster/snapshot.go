package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/internal/speed"
	"github.com/opgate/opgate/snapshot"
)

// snapshotTimeout bounds the time until a write has reached Opgate's snapshot; it takes milliseconds.
const snapshotTimeout = speed.Wait

// Snapshot describes the state that Opgate judges by. The keys of its maps are resources, such as "installplans".
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

// Snapshot reads from Opgate which state it judges by.
func (g *Gate) Snapshot(ctx context.Context) (Snapshot, error) {
	var seen Snapshot
	if err := g.get(ctx, "/snapshot", &seen); err != nil {
		return Snapshot{}, fmt.Errorf("read the snapshot: %w", err)
	}
	return seen, nil
}

// WaitForSnapshot waits until Opgate judges by the objects that are in the API server now. Opgate observes writes by
// watches, so a test that writes a policy and then something that the policy governs has to wait in between. Concurrent
// writes of others do not matter.
func (g *Gate) WaitForSnapshot(ctx context.Context) error {
	var want map[string]state
	var last error
	err := speed.Poll(ctx, pollInterval, snapshotTimeout,
		func(ctx context.Context) (bool, error) {
			if want == nil {
				if want, last = g.cluster.states(ctx); last != nil {
					return false, nil //nolint:nilerr // it is tried again
				}
			}
			lacks := g.includes(ctx, want)
			if ctx.Err() == nil { // else its request ended with the wait, and it names nothing else
				last = lacks
			}
			return lacks == nil, nil
		})
	if err != nil {
		return fmt.Errorf("wait for the snapshot: %w", errors.Join(err, last))
	}
	return nil
}

// includes returns an error that names what the snapshot lacks.
func (g *Gate) includes(ctx context.Context, want map[string]state) error {
	seen, err := g.Snapshot(ctx)
	if err != nil {
		return err
	}
	if !seen.Ready {
		return errors.New("the snapshot is not ready")
	}
	for resource, want := range want {
		count, got := seen.Objects[resource], seen.ResourceVersions[resource]
		later, err := reaches(got, want.listed)
		if err != nil {
			return fmt.Errorf("%s: %w", resource, err)
		}
		// watches keep the order, so all that was there when it was listed was seen before, deletions included
		if later {
			continue
		}
		// Versions show what was written; only the number of objects shows what was deleted.
		if count != want.count {
			return fmt.Errorf("the snapshot has %d %s, the API server %d", count, resource, want.count)
		}
		newest, err := reaches(got, want.newest)
		if err != nil {
			return fmt.Errorf("%s: %w", resource, err)
		}
		if !newest {
			return fmt.Errorf("the snapshot has %s up to version %s, the API server %s", resource, got, want.newest)
		}
	}
	return nil
}

// reaches reports whether a resource version is not before another. No version is before all others.
func reaches(version, other string) (bool, error) {
	if version == "" || other == "" {
		return other == "", nil
	}
	order, err := resourceversion.CompareResourceVersion(version, other)
	if err != nil {
		return false, fmt.Errorf("compare versions %q and %q: %w", version, other, err)
	}
	return order >= 0, nil
}

// state is what the API server has of a kind.
type state struct {
	listed string // the version of the list
	newest string // the highest version of an object in it, "" if there is none
	count  int
}

// states returns what the API server has of all kinds, by resource.
func (c *Cluster) states(ctx context.Context) (map[string]state, error) {
	states := map[string]state{}
	for _, kind := range snapshot.Kinds() {
		if kind.Readers == snapshot.Leader { // leadership is not known here
			continue
		}
		s, err := stateOf(ctx, c.masters, kind)
		if kind.Optional && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		states[kind.Resource] = s
	}
	return states, nil
}

// stateOf lists the objects of a kind that are watched.
func stateOf(ctx context.Context, c client.Client, kind *snapshot.Kind) (state, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersionKind)
	options := &client.ListOptions{Raw: &metav1.ListOptions{LabelSelector: kind.Selector}}
	if kind.Own {
		options.Namespace = OpgateNamespace
	}
	if err := c.List(ctx, list, options); err != nil {
		return state{}, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	s := state{listed: list.ResourceVersion, count: len(list.Items)}
	for _, item := range list.Items {
		newer, err := reaches(item.ResourceVersion, s.newest)
		if err != nil {
			return state{}, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		if newer {
			s.newest = item.ResourceVersion
		}
	}
	return s, nil
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
