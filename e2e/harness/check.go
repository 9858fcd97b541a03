package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// WaitTimeout bounds what takes milliseconds on an idle machine.
	WaitTimeout = speed.Wait
	// PollInterval is how often a condition is checked where a test takes the time until it is met.
	PollInterval = 20 * time.Millisecond
)

// backoff is how often a condition is checked while a test waits for it: again after a sixth of the time that it has
// waited, and each second at least. What takes long is not slowed down by reads of what has not changed.
var backoff = wait.Backoff{Duration: PollInterval, Factor: 1.2, Steps: 100, Cap: time.Second}

// Poll checks a condition, at once and then less and less often, until it is true, returns an error, or the time is up:
// time of a machine of usual speed, as of all waits of tests.
func Poll(ctx context.Context, timeout time.Duration, condition wait.ConditionWithContextFunc) error {
	return speed.PollDelayed(ctx, backoff.DelayFunc(), timeout, condition)
}

// Eventually waits until check returns nil.
func Eventually(t testing.TB, what string, check func(ctx context.Context) error) {
	t.Helper()
	eventually(t, what, backoff.DelayFunc(), check)
}

// Unchanged waits until a state has been the same for a duration, on a machine of usual speed.
func Unchanged(t testing.TB, what string, quiet time.Duration, state func() string) {
	t.Helper()
	var last string
	var changed time.Time
	Eventually(t, what+" does not change", func(context.Context) error {
		if now := state(); now != last || changed.IsZero() {
			last, changed = now, time.Now()
		}
		if unchanged := time.Since(changed); unchanged < speed.Scale(quiet) {
			return fmt.Errorf("it has not changed for %s", unchanged)
		}
		return nil
	})
}

// Time is Eventually for what is measured: it checks every PollInterval, and returns how long it waited.
func Time(t testing.TB, what string, check func(ctx context.Context) error) time.Duration {
	t.Helper()
	start := time.Now()
	eventually(t, what, wait.Backoff{Duration: PollInterval}.DelayFunc(), check)
	return time.Since(start)
}

func eventually(t testing.TB, what string, delay wait.DelayFunc, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	ctx, cancel := working(t)
	defer cancel()
	err := speed.PollDelayed(ctx, delay, WaitTimeout, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		t.Fatalf("%s: %v", what, errors.Join(err, last))
	}
}

// Kubectl runs kubectl as a user and expects it to succeed. It returns the output, warnings included.
func Kubectl(t testing.TB, c *cluster.Cluster, user cluster.User, stdin string, args ...string) string {
	t.Helper()
	result, err := c.Kubectl(t.Context(), user, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode != 0 {
		t.Fatalf("kubectl %s as %s: exit code %d\n%s", strings.Join(args, " "), user, result.ExitCode, result.Stderr)
	}
	return result.Stdout
}

// Afterwards runs kubectl as the admin when a test ends, so that the test can run again on the same cluster.
func Afterwards(t testing.TB, c *cluster.Cluster, args ...string) {
	t.Cleanup(func() {
		result, err := c.Kubectl(context.Background(), cluster.Admin, "", args...)
		if err != nil || result.ExitCode != 0 {
			t.Errorf("kubectl %s: %s %v", strings.Join(args, " "), result.Stderr, err)
		}
	})
}

// WantRefused runs kubectl as a user and expects the API server to refuse, with all of the texts in its answer.
func WantRefused(t testing.TB, c *cluster.Cluster, user cluster.User, stdin string, args []string, says ...string) {
	t.Helper()
	result, err := c.Kubectl(t.Context(), user, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode == 0 {
		t.Errorf(Final+"kubectl %s as %s was not refused:\n%s", strings.Join(args, " "), user, result.Stdout)
		return
	}
	for _, text := range says {
		if !strings.Contains(result.Stderr, text) {
			t.Errorf("kubectl %s as %s: got\n%s\nwant %q in it", strings.Join(args, " "), user, result.Stderr, text)
		}
	}
}

// WantTexts checks that a text contains all others.
func WantTexts(t testing.TB, text string, texts ...string) {
	t.Helper()
	for _, want := range texts {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}
}

// Names lists the objects of a kind in a namespace, without copied ClusterServiceVersions.
func (e *Env) Names(ctx context.Context, resource schema.GroupVersionResource, namespace string) ([]string, error) {
	list, err := e.Clients[cluster.Admin].Resource(resource).Namespace(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: "!olm.copiedFrom"})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, u := range list.Items {
		names = append(names, u.GetName())
	}
	slices.Sort(names)
	return names, nil
}

// WantNames checks that a namespace has exactly these objects of a kind.
func (e *Env) WantNames(t testing.TB, resource schema.GroupVersionResource, namespace string, want ...string) {
	t.Helper()
	got, err := e.Names(t.Context(), resource, namespace)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s in %s are %v, want %v", resource.Resource, namespace, got, want)
	}
}

// Get reads an object as an admin.
func (e *Env) Get(
	t testing.TB, resource schema.GroupVersionResource, namespace, name string,
) *unstructured.Unstructured {
	t.Helper()
	u, err := e.Clients[cluster.Admin].Resource(resource).Namespace(namespace).Get(t.Context(), name,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// WantField checks that a field of an object has a value, written as JSON.
func WantField(t testing.TB, u *unstructured.Unstructured, want string, path ...string) {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s of %s %s is %s, want %s", strings.Join(path, "."), u.GetKind(), u.GetName(), got, want)
	}
}
