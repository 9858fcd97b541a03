package loop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

const (
	// selfHeal is how often a tool compares the cluster with git.
	selfHeal = 2 * time.Second
	// maxBackoff is the longest time until a tool tries again what was refused, twice as long each time. Then it begins anew.
	maxBackoff = 8 * time.Second
)

// delivery brings what is in git to the cluster.
type delivery interface {
	// deliver makes the waves all that is in git. It returns when they are delivered, refusals aside.
	deliver(t *testing.T, waves ...[]*unstructured.Unstructured)
	// manager is the field manager of its writes, "" if it writes every object each time, as Helm does.
	manager() string
}

// tool is Argo CD or Flux, as their documentation and sources state what they write: server-side apply under a field
// manager of their own, wave by wave, the next one when the policies of the one before are healthy; again when the
// cluster differs, and after a refusal; and deletion of what is not in git any more.
type tool struct {
	env     *harness.OLMEnv
	name    string
	differs func(live, desired, result *unstructured.Unstructured) bool
	// ignored is a field that the tool leaves as it is on the cluster, or nil.
	ignored []string

	mu      sync.Mutex
	waves   [][]*unstructured.Unstructured
	applied []*unstructured.Unstructured
}

// argo compares the fields that are in git with the cluster by itself.
func argo(t *testing.T, e *harness.OLMEnv, ignored ...string) delivery {
	return start(t, &tool{env: e, name: "argocd-controller", ignored: ignored,
		differs: func(live, desired, _ *unstructured.Unstructured) bool { return !contained(desired.Object, live.Object) }})
}

// flux compares the cluster with what applying would make of it, by a dry run.
func flux(t *testing.T, e *harness.OLMEnv) delivery {
	return start(t, &tool{env: e, name: "kustomize-controller",
		differs: func(live, _, result *unstructured.Unstructured) bool {
			return !equality.Semantic.DeepEqual(bare(live), bare(result))
		}})
}

// start runs a tool until the end of the test.
func start(t *testing.T, d *tool) *tool {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait := selfHeal; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if wait *= 2; d.sync(ctx) == nil || wait > maxBackoff {
				wait = selfHeal
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return d
}

func (d *tool) manager() string { return d.name }

func (d *tool) deliver(t *testing.T, waves ...[]*unstructured.Unstructured) {
	t.Helper()
	d.mu.Lock()
	d.waves = waves
	d.mu.Unlock()
	d.env.Eventually(t, d.name+" delivers", d.sync)
}

// refused makes the waves all that is in git, and wants the tool to be refused an object, and to try again.
func (d *tool) refused(t *testing.T, object string, waves ...[]*unstructured.Unstructured) {
	t.Helper()
	d.mu.Lock()
	d.waves = waves
	d.mu.Unlock()
	d.env.Eventually(t, d.name+" tries again", func(context.Context) error {
		if all := writtenBy(t, d.env, d.name, true); all[object] < 2 {
			return fmt.Errorf("refused are %v", all)
		}
		return nil
	})
}

// sync makes the cluster as git is, as far as it is let.
func (d *tool) sync(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, wave := range d.waves {
		for _, u := range wave {
			if err := d.apply(ctx, u); err != nil {
				return err
			}
		}
		for _, u := range wave {
			if err := d.healthy(ctx, u); err != nil {
				return err
			}
		}
	}
	kept := slices.Concat(d.waves...)
	for len(d.applied) > 0 {
		last := d.applied[len(d.applied)-1]
		if !slices.ContainsFunc(kept, func(u *unstructured.Unstructured) bool { return id(u) == id(last) }) {
			err := d.of(last).Delete(ctx, last.GetName(), metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("prune %s: %w", id(last), err)
			}
		}
		d.applied = d.applied[:len(d.applied)-1]
	}
	d.applied = kept
	return nil
}

// apply writes an object if the cluster differs.
func (d *tool) apply(ctx context.Context, u *unstructured.Unstructured) error {
	live, err := d.of(u).Get(ctx, u.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil {
		if u = u.DeepCopy(); d.ignored != nil {
			unstructured.RemoveNestedField(u.Object, d.ignored...)
		}
		dry := metav1.ApplyOptions{FieldManager: d.name, Force: true, DryRun: []string{metav1.DryRunAll}}
		result, err := d.of(u).Apply(ctx, u.GetName(), u, dry)
		if err != nil {
			return fmt.Errorf("compare %s: %w", id(u), err)
		}
		if !d.differs(live, u, result) {
			return nil
		}
	}
	if _, err = d.of(u).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: d.name, Force: true}); err != nil {
		err = fmt.Errorf("apply %s: %w", id(u), err)
	}
	return err
}

func (d *tool) of(u *unstructured.Unstructured) dynamic.ResourceInterface {
	return d.env.Clients[cluster.Admin].Of(u)
}

// healthy is the check of OperatorPolicies that Argo CD has built in, and that docs/migration/flux.md shows for Flux.
func (d *tool) healthy(ctx context.Context, u *unstructured.Unstructured) error {
	if u.GetKind() != "OperatorPolicy" {
		return nil
	}
	live, err := d.of(u).Get(ctx, u.GetName(), metav1.GetOptions{})
	if err == nil && !isHealthy(live) {
		err = fmt.Errorf("%s is not healthy", id(u))
	}
	return err
}

func isHealthy(policy *unstructured.Unstructured) bool {
	observed, _, _ := unstructured.NestedInt64(policy.Object, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(policy.Object, "status", "conditions")
	return observed == policy.GetGeneration() && slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Compliant" && condition["status"] == "True"
	})
}

// chart is the real Helm with a chart of the objects.
type chart struct{ env *harness.OLMEnv }

func (chart) manager() string { return "" }

func (h chart) deliver(t *testing.T, waves ...[]*unstructured.Unstructured) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]any{"Chart.yaml": map[string]any{"apiVersion": "v2", "name": "operators", "version": "1.0.0"}}
	for i, u := range slices.Concat(waves...) {
		files[fmt.Sprintf("templates/%02d.yaml", i)] = u.Object
	}
	for name, content := range files {
		data, err := yaml.Marshal(content)
		if err == nil {
			path := filepath.Join(dir, name)
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	result, err := h.env.Cluster.Helm(t.Context(), "upgrade", "--install", "operators", dir, "-n", cluster.PolicyNamespace)
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("helm upgrade: %v\n%s", err, result.Stderr)
	}
}

func id(u *unstructured.Unstructured) string {
	return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
}

// bare is an object without what every write changes.
func bare(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(u.Object, "status")
	return u.Object
}

// contained reports whether all fields of part are the same in whole.
func contained(part, whole any) bool {
	fields, ok := part.(map[string]any)
	if !ok {
		return equality.Semantic.DeepEqual(part, whole)
	}
	others, _ := whole.(map[string]any)
	for name, field := range fields {
		if !contained(field, others[name]) {
			return false
		}
	}
	return true
}

// writtenBy counts the writes of a field manager that the API server took, by resource and name, dry runs aside; or those
// that were refused, dry runs included.
func writtenBy(t *testing.T, e *harness.OLMEnv, manager string, refused bool) map[string]int {
	t.Helper()
	events, err := harness.ReadAudit(e.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, event := range events {
		uri, err := url.Parse(event.RequestURI)
		if err != nil {
			t.Fatal(err)
		}
		query := uri.Query()
		counts := event.Response.Code < 300 && !query.Has("dryRun")
		if refused {
			counts = event.Response.Code == http.StatusForbidden
		}
		if counts && event.Stage == "ResponseComplete" && event.ObjectRef.Subresource == "" && query.Get("fieldManager") == manager {
			found[event.ObjectRef.Resource+" "+event.ObjectRef.Namespace+"/"+event.ObjectRef.Name]++
		}
	}
	return found
}
