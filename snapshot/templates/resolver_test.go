package templates

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
)

// catalogs returns packages that a test sets.
type catalogs struct {
	mu    sync.Mutex
	known map[string]*catalog.Package
	asked int
}

func (c *catalogs) Get(pkg string, _ olm.Catalog) *catalog.Package {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return c.known[pkg]
}

func (c *catalogs) set(pkg string, suggested ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &catalog.Package{Name: pkg, DefaultChannel: "channel-0"}
	for i, namespace := range suggested {
		p.Channels = append(p.Channels, catalog.Channel{Name: "channel-" + string(rune('0'+i)),
			SuggestedNamespace: namespace})
	}
	if c.known == nil {
		c.known = map[string]*catalog.Package{}
	}
	c.known[pkg] = p
}

func (c *catalogs) questions() int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// texts resolves each part by replacing texts, like a session.
type texts struct {
	mu      sync.Mutex
	replace []string
	problem string
	gone    bool
	closed  bool
}

func (s *texts) resolve(_ context.Context, _ scope, parts []part) ([]answer, bool) {
	s.mu.Lock()
	replacer, problem := strings.NewReplacer(s.replace...), s.problem
	s.mu.Unlock()
	if problem != "" {
		return all(parts, problem), true
	}
	var answers []answer
	for _, p := range parts {
		raw, err := json.Marshal(p.written)
		if err != nil {
			return all(parts, err.Error()), false
		}
		var value any
		if err := json.Unmarshal([]byte(replacer.Replace(string(raw))), &value); err != nil {
			return all(parts, err.Error()), false
		}
		answers = append(answers, answer{value: value})
	}
	return answers, false
}

func (s *texts) lost() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.gone }
func (s *texts) interrupt() { s.mu.Lock(); defer s.mu.Unlock(); s.gone = true }
func (s *texts) close()     { s.mu.Lock(); defer s.mu.Unlock(); s.closed = true }

// rig is a resolver with what it has published.
type rig struct {
	*Resolver
	catalogs catalogs
	mu       sync.Mutex
	got      []snapshot.Completion
	sessions []*texts
	next     *texts // the next session
	change   func() // the callback of the last session
}

func startRig(t *testing.T, o Options) *rig {
	t.Helper()
	g := &rig{next: &texts{}}
	o.Package = g.catalogs.Get
	o.Publish = func(_ types.NamespacedName, r snapshot.Completion) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.got = append(g.got, r)
	}
	g.Resolver = newResolver(o, func(_ context.Context, _ types.NamespacedName, changed func()) (templateSession,
		error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		s := &texts{replace: g.next.replace, problem: g.next.problem}
		g.sessions, g.change = append(g.sessions, s), changed
		return s, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, s := range g.sessions {
			if !s.closed {
				t.Error("a session was left open")
			}
		}
	})
	return g
}

// published returns what was published since the last call.
func (g *rig) published() []snapshot.Completion {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	got := g.got
	g.got = nil
	return got
}

func (g *rig) one(t *testing.T) snapshot.Completion {
	t.Helper()
	got := g.published()
	if len(got) != 1 {
		t.Fatalf("%d resolutions, want one: %+v", len(got), got)
	}
	return got[0]
}

func policy(change func(op *policyv1beta2.OperatorPolicy)) *policyv1beta2.OperatorPolicy {
	op := &policyv1beta2.OperatorPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "policies", Name: "etcd", UID: "u",
		Generation: 1}}
	op.Spec.Subscription.Name, op.Spec.Subscription.Namespace = "etcd", "shop"
	if change != nil {
		change(op)
	}
	return op
}

func versions(entries ...string) func(op *policyv1beta2.OperatorPolicy) {
	return func(op *policyv1beta2.OperatorPolicy) { op.Spec.Versions = entries }
}

func noNamespace(op *policyv1beta2.OperatorPolicy) { op.Spec.Subscription.Namespace = "" }

func TestPolicyThatIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startRig(t, Options{})
		op := policy(versions("etcd.v1"))
		g.Policy(op)
		got := g.one(t)
		if diff := cmp.Diff(snapshot.Completion{Policy: op}, got); diff != "" {
			t.Errorf("resolution (-want +got):\n%s", diff)
		}
		if got.Policy == op {
			t.Error("the policy is not a copy")
		}
		op.Status.Compliant = policyv1beta2.Compliant
		g.Policy(op)
		g.Policy(op)
		if again := g.published(); len(again) > 0 {
			t.Errorf("published again for a new status: %+v", again)
		}
		op.Labels = map[string]string{"a": "b"}
		g.Policy(op)
		if got := g.one(t); got.Policy.Labels["a"] != "b" {
			t.Error("labels are not those of the policy")
		}
	})
}

func TestTemplatesFollowWhatTheyLookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startRig(t, Options{})
		g.next.replace = []string{"{{ v }}", "etcd.v1, etcd.v2"}
		g.Policy(policy(versions("{{ v }}")))
		got := g.one(t)
		if len(got.Problems) > 0 || got.Policy.Spec.Versions[0] != "etcd.v1, etcd.v2" {
			t.Fatalf("resolution %+v", got)
		}
		g.change()
		if again := g.published(); len(again) > 0 {
			t.Errorf("published again although nothing is different: %+v", again)
		}
		g.sessions[0].mu.Lock()
		g.sessions[0].replace = []string{"{{ v }}", "etcd.v3"}
		g.sessions[0].mu.Unlock()
		g.change()
		if got := g.one(t); got.Policy.Spec.Versions[0] != "etcd.v3" {
			t.Errorf("resolution %+v", got)
		}
		g.Policy(policy(func(op *policyv1beta2.OperatorPolicy) { op.Generation = 2 }))
		g.one(t)
		if !g.sessions[0].closed {
			t.Error("the watches of a policy that has no templates any more are kept")
		}
	})
}

func TestFailuresAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startRig(t, Options{})
		g.next.problem = "forbidden"
		g.Policy(policy(versions("{{ v }}")))
		got := g.one(t)
		if diff := cmp.Diff([]string{"spec.versions does not resolve: forbidden"}, got.Problems); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
		if got.Policy.Spec.Versions[0] != "{{ v }}" {
			t.Errorf("versions %q, want them as they were written", got.Policy.Spec.Versions)
		}
		time.Sleep(time.Hour)
		if again := g.published(); len(again) > 0 {
			t.Errorf("published again although nothing is different: %+v", again)
		}
		g.sessions[0].mu.Lock()
		g.sessions[0].problem, g.sessions[0].replace = "", []string{"{{ v }}", "etcd.v1"}
		g.sessions[0].mu.Unlock()
		time.Sleep(lastRetry)
		if got := g.one(t); len(got.Problems) > 0 {
			t.Errorf("problems %q", got.Problems)
		}
	})
}

func TestSessionThatLostItsWatchesIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startRig(t, Options{})
		g.next.replace = []string{"{{ v }}", "etcd.v1"}
		g.Policy(policy(versions("{{ v }}")))
		g.one(t)
		g.sessions[0].interrupt()
		g.change()
		synctest.Wait()
		if len(g.sessions) != 2 || !g.sessions[0].closed {
			t.Errorf("%d sessions, the first closed: %v", len(g.sessions), g.sessions[0].closed)
		}
	})
}

func TestHubTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startRig(t, Options{})
		g.Policy(policy(func(op *policyv1beta2.OperatorPolicy) {
			op.Spec.Versions = []string{`{{hub fromConfigMap "" "a" "b" hub}}`, "{{ v }}"}
		}))
		want := []string{"spec.versions holds a hub template ({{hub ... hub}}), which the hub has to resolve before the policy reaches this cluster"}
		if diff := cmp.Diff(want, g.one(t).Problems); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
		if len(g.sessions) > 0 {
			t.Error("a hub template was resolved here")
		}
	})
}

func TestDefaultNamespace(t *testing.T) {
	tests := map[string]struct {
		known   []string // suggestions by channel; nil for a package that is not known
		channel string
		def     string
		want    string
		problem string
	}{
		"the default channel's": {known: []string{"a", "b"}, want: "a"},
		"the chosen channel's":  {known: []string{"a", "b"}, channel: "channel-1", want: "b"},
		"not another channel's": {known: []string{"", "b"}, def: "operators", want: "operators"},
		"a channel that is not there": {known: []string{"a"}, channel: "nope", def: "operators",
			want: "operators"},
		"the suggestion before the default": {known: []string{"a"}, def: "operators", want: "a"},
		"no suggestion and no default": {known: []string{""},
			problem: "spec.subscription.namespace is required: neither does the package suggest one, nor is a default namespace configured"},
		"a package that is not known": {def: "operators",
			problem: "spec.subscription.namespace is not set and package etcd is not found in a catalog yet"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := startRig(t, Options{DefaultNamespace: test.def})
				if test.known != nil {
					g.catalogs.set("etcd", test.known...)
				}
				g.Policy(policy(func(op *policyv1beta2.OperatorPolicy) {
					noNamespace(op)
					op.Spec.Subscription.Channel = test.channel
				}))
				got := g.one(t)
				if namespace := got.Policy.Spec.Subscription.Namespace; namespace != test.want {
					t.Errorf("namespace %q, want %q", namespace, test.want)
				}
				if problem := strings.Join(got.Problems, "; "); problem != test.problem {
					t.Errorf("problem %q, want %q", problem, test.problem)
				}
			})
		})
	}
}

func TestNamespaceStaysForAGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startRig(t, Options{})
		op := policy(noNamespace)
		g.Policy(op)
		g.one(t)
		g.catalogs.set("etcd", "first")
		g.PackageChanged("etcd")
		if got := g.one(t); len(got.Problems) > 0 || got.Policy.Spec.Subscription.Namespace != "first" {
			t.Fatalf("resolution %+v", got)
		}
		g.catalogs.set("etcd", "second")
		g.PackageChanged("etcd")
		op.Labels = map[string]string{"a": "b"}
		g.Policy(op)
		if got := g.one(t); got.Policy.Spec.Subscription.Namespace != "first" {
			t.Errorf("the catalog moved the operator to %s", got.Policy.Spec.Subscription.Namespace)
		}
		op.Generation = 2
		g.Policy(op)
		if got := g.one(t); got.Policy.Spec.Subscription.Namespace != "second" {
			t.Errorf("namespace %s", got.Policy.Spec.Subscription.Namespace)
		}
	})
}

func TestNamespaceSurvivesARestart(t *testing.T) {
	settled := func(op *policyv1beta2.OperatorPolicy) {
		noNamespace(op)
		op.Status.ObservedGeneration = 1
		op.Status.RelatedObjects = []policyv1beta2.RelatedObject{
			{Object: policyv1beta2.ObjectReference{APIVersion: "v1", Kind: "Subscription",
				Metadata: policyv1beta2.ObjectMetadata{Namespace: "other"}}},
			{Object: policyv1beta2.ObjectReference{APIVersion: "operators.coreos.com/v1alpha1", Kind: "Subscription",
				Metadata: policyv1beta2.ObjectMetadata{Namespace: "first"}}},
		}
	}
	tests := map[string]struct {
		change func(op *policyv1beta2.OperatorPolicy)
		want   string
	}{
		"as the status says":             {func(*policyv1beta2.OperatorPolicy) {}, "first"},
		"a status of another generation": {func(op *policyv1beta2.OperatorPolicy) { op.Generation = 2 }, "now"},
		"a status that names two": {func(op *policyv1beta2.OperatorPolicy) {
			op.Status.RelatedObjects[0].Object.APIVersion = "operators.coreos.com/v1alpha1"
		}, "now"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := startRig(t, Options{})
				g.catalogs.set("etcd", "now")
				op := policy(settled)
				test.change(op)
				g.Policy(op)
				if got := g.one(t).Policy.Spec.Subscription.Namespace; got != test.want {
					t.Errorf("namespace %q, want %q", got, test.want)
				}
			})
		})
	}
}

// The package cache fetches a package only as long as there are reads.
func TestUnknownPackageIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startRig(t, Options{})
		g.Policy(policy(noNamespace))
		time.Sleep(24 * time.Hour)
		g.one(t)
		before := g.catalogs.questions()
		time.Sleep(10 * time.Minute)
		if more := g.catalogs.questions() - before; more != 2 {
			t.Errorf("asked %d times in 10 minutes, want 2", more)
		}
		g.Forget(types.NamespacedName{Namespace: "policies", Name: "etcd"})
		time.Sleep(lastRetry)
		before = g.catalogs.questions()
		time.Sleep(time.Hour)
		if g.catalogs.questions() != before {
			t.Error("asked for a policy that is gone")
		}
	})
}

// A namespace that depends on an unresolved channel must not be guessed.
func TestNamespaceWaitsForTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startRig(t, Options{DefaultNamespace: "operators"})
		g.catalogs.set("etcd", "first")
		g.next.problem = "forbidden"
		g.Policy(policy(func(op *policyv1beta2.OperatorPolicy) {
			noNamespace(op)
			op.Spec.Subscription.Channel = "{{ c }}"
		}))
		got := g.one(t)
		if len(got.Problems) != 1 || got.Policy.Spec.Subscription.Namespace != "" {
			t.Errorf("namespace %q, problems %q", got.Policy.Spec.Subscription.Namespace, got.Problems)
		}
	})
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startRig(t, Options{})
		g.next.replace = []string{"{{ v }}", "etcd.v1"}
		op := policy(versions("{{ v }}"))
		g.Policy(op)
		g.one(t)
		g.Forget(types.NamespacedName{Namespace: "policies", Name: "etcd"})
		g.change()
		if got := g.published(); len(got) > 0 {
			t.Errorf("published after Forget: %+v", got)
		}
		if !g.sessions[0].closed {
			t.Error("its watches are kept")
		}
		g.Policy(op)
		g.one(t)
	})
}

func TestManyPoliciesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := startRig(t, Options{})
		g.next.replace = []string{"{{ v }}", "etcd.v1"}
		var writers sync.WaitGroup
		for i := range 8 {
			writers.Go(func() {
				for j := range 200 {
					name := string(rune('a' + (i+j)%20))
					g.Policy(policy(func(op *policyv1beta2.OperatorPolicy) {
						op.Name, op.Generation, op.Spec.Versions = name, int64(j), []string{"{{ v }}"}
					}))
					switch j % 20 {
					case 3:
						g.Forget(types.NamespacedName{Namespace: "policies", Name: name})
					case 5:
						g.PackageChanged("etcd")
					}
				}
			})
		}
		writers.Wait()
		synctest.Wait()
	})
}
