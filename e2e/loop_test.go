package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/jsonpath"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// TestLoop runs the scripts of directory loop against an API server with Opgate's background loop. There is no OLM: a script
// writes what OLM would, and so reaches states in which a real one stays for milliseconds. What a real OLM does is in
// TestLoopOLM.
//
// Each script has a namespace for an operator, $NS, and one for its policies, $POLICIES. $ID is different for each, for the
// names of what is not in a namespace. Where not said otherwise, a command waits until what it says is so. Commands:
//
//	apply FILE...                 write objects with $NS, $POLICIES and $ID filled in: plans as OLM does, all else as an
//	                              admin, and every status as OLM
//	proposes PLAN SUBSCRIPTION=CSV...
//	                              OLM has resolved Subscriptions of $NS: a plan brings them to what they then follow
//	installs PLAN SUBSCRIPTION=CSV...
//	                              OLM carries a plan out, once it is approved, and all is well
//	kubectl ARG...                run kubectl as an admin; its output is for stdout and stderr
//	state POLICY STATE            status.compliant of a policy, in its newest generation
//	condition POLICY TYPE STATUS REASON [TEXT]
//	                              a condition, with a text in its message
//	related POLICY KIND NAME STATE REASON [UID]
//	                              a related object; - as STATE is one without; "uid" or "created" as UID wants these properties
//	relatedcount POLICY KIND N    how many related objects there are of a kind
//	event POLICY REGEXP           a compliance event that matches
//	history POLICY REGEXP         an entry of status.history that matches
//	gauge POLICY [SEVERITY VALUE]  the one series of cluster_policy_governance_info of a policy; or that it has none
//	object KIND NAME [NAMESPACE]  there is one; and its negation
//	field KIND NAME PATH VALUE    a field, by kubectl's JSONPath without braces, in $NS
//	quiet DURATION POLICY         the policy comes to rest: it is not written for so long, longer on a slow machine
func TestLoop(t *testing.T) {
	t.Parallel()
	e := startLoop(t)
	testscript.RunT(terse{t}, testscript.Params{Dir: "loop", ContinueOnError: true, Setup: e.setup, Cmds: e.commands()})
}

func (e *loopEnv) commands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	return map[string]func(ts *testscript.TestScript, neg bool, args []string){
		"apply":        e.cmdApply,
		"proposes":     e.cmdProposes,
		"installs":     e.cmdInstalls,
		"kubectl":      e.cmdKubectl,
		"state":        e.cmdState,
		"condition":    e.cmdCondition,
		"related":      e.cmdRelated,
		"relatedcount": e.cmdRelatedCount,
		"event":        e.cmdEvent,
		"history":      e.cmdHistory,
		"gauge":        e.cmdGauge,
		"object":       e.cmdObject,
		"field":        e.cmdField,
		"quiet":        e.cmdQuiet,
	}
}

// terse keeps the log of a script to itself unless it fails, also with go test -v.
type terse struct{ *testing.T }

func (t terse) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { f(terse{t}) })
}

func (terse) Verbose() bool { return false }

// loopEnv is a control plane with the loop, and clients that know every kind.
type loopEnv struct {
	*env
	admin, olm crclient.Client
	// scraper is the token of Prometheus; empty where metrics are not secure.
	scraper string
}

// startLoop starts one for a test alone. PackageManifests are a plain kind here: the real server of them takes what it says
// from catalogs, and cannot be made to say anything else.
func startLoop(t testing.TB) *loopEnv {
	t.Helper()
	e := &loopEnv{env: startWithoutGate(t)}
	kubectl(t, e.Cluster, cluster.Admin, packageManifests, "create", "-f", "-")
	var err error
	if e.gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true, SecureMetrics: true}); err != nil {
		t.Fatal(err)
	}
	e.scraper = e.newScraper(t, "prometheus", true)
	eventually(t, "see that Prometheus may read metrics", func(ctx context.Context) error {
		code, body, err := e.scrape(ctx, e.scraper)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("metrics: %d %s", code, body)
		}
		return err
	})
	e.connect(t)
	return e
}

// connect makes the clients. It waits for nothing: kinds are looked up when they are first asked for.
func (e *loopEnv) connect(t testing.TB) {
	t.Helper()
	for user, to := range map[cluster.User]*crclient.Client{cluster.Admin: &e.admin, cluster.OLM: &e.olm} {
		config, err := e.RESTConfig(user)
		if err != nil {
			t.Fatal(err)
		}
		config.QPS = -1
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1beta2.AddToScheme} {
			if err := add(scheme); err != nil {
				t.Fatal(err)
			}
		}
		if *to, err = crclient.New(config, crclient.Options{Scheme: scheme}); err != nil {
			t.Fatal(err)
		}
	}
}

const packageManifests = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: packagemanifests.packages.operators.coreos.com
  annotations: {api-approved.kubernetes.io: "unapproved, for tests"}
spec:
  group: packages.operators.coreos.com
  names: {kind: PackageManifest, listKind: PackageManifestList, plural: packagemanifests, singular: packagemanifest}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func (e *loopEnv) setup(script *testscript.Env) error {
	id := rand.String(8)
	script.Setenv("ID", id)
	for variable, prefix := range map[string]string{"NS": "op-", "POLICIES": "policies-"} {
		script.Setenv(variable, prefix+id)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: prefix + id}}
		if err := e.admin.Create(context.Background(), namespace); err != nil {
			return err
		}
	}
	script.Defer(func() {
		// Policies go, so that the loop has nothing to do for scripts that have ended.
		_ = e.admin.DeleteAllOf(context.Background(), &policyv1beta2.OperatorPolicy{}, crclient.InNamespace("policies-"+id))
	})
	return nil
}

// filled has the variables of a script filled in.
func filled(ts *testscript.TestScript, text string) string {
	return os.Expand(text, func(variable string) string {
		if value := ts.Getenv(variable); slices.Contains([]string{"NS", "POLICIES", "OTHER", "ID"}, variable) {
			return value
		}
		return "$" + variable
	})
}

func (e *loopEnv) cmdApply(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(filled(ts, ts.ReadFile(name)))))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			ts.Check(err)
			u := &unstructured.Unstructured{}
			ts.Check(yaml.Unmarshal(document, &u.Object))
			err = e.apply(u)
			switch {
			case neg && err == nil:
				ts.Fatalf("%s %s was not refused", u.GetKind(), u.GetName())
			case neg:
				fmt.Fprintln(ts.Stderr(), err)
			default:
				ts.Check(err)
			}
		}
	}
}

// apply writes an object and its status.
func (e *loopEnv) apply(u *unstructured.Unstructured) error {
	ctx := context.Background()
	status, hasStatus := u.Object["status"]
	if hasStatus = hasStatus && u.GetKind() != "PackageManifest"; hasStatus { // whose status is no subresource here
		delete(u.Object, "status")
	}
	author := e.admin
	if kind := u.GetKind(); kind == "InstallPlan" || kind == "ClusterServiceVersion" {
		author = e.olm
	}
	err := repeated(ctx, u, func() error {
		return author.Apply(ctx, crclient.ApplyConfigurationFromUnstructured(u), crclient.ForceOwnership, crclient.FieldOwner("script"))
	})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if !hasStatus {
		return nil
	}
	before := u.DeepCopy()
	u.Object["status"] = status
	if err := e.olm.Status().Patch(ctx, u, crclient.MergeFrom(before)); err != nil {
		return fmt.Errorf("write the status of %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

func (e *loopEnv) cmdKubectl(ts *testscript.TestScript, neg bool, args []string) {
	result, err := e.Kubectl(context.Background(), cluster.Admin, "", args...)
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), result.Stdout)
	fmt.Fprint(ts.Stderr(), result.Stderr)
	if (result.ExitCode != 0) != neg {
		ts.Fatalf("kubectl %s: exit code %d\n%s", strings.Join(args, " "), result.ExitCode, result.Stderr)
	}
}

// until polls until check gives nil, or, negated, an error.
func until(ts *testscript.TestScript, neg bool, check func(ctx context.Context) error) {
	var last error
	err := wait.PollUntilContextTimeout(context.Background(), pollInterval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil || last == nil { // else it says only that the time is up
			last = err
		}
		return (err == nil) != neg, nil
	})
	switch {
	case err == nil:
	case neg:
		ts.Fatalf("it is still so")
	default:
		ts.Fatalf("%v", last)
	}
}

// policy reads a policy whose newest generation was evaluated.
func (e *loopEnv) policy(ctx context.Context, ts *testscript.TestScript, name string) (*policyv1beta2.OperatorPolicy, error) {
	op := &policyv1beta2.OperatorPolicy{}
	if err := e.admin.Get(ctx, crclient.ObjectKey{Namespace: ts.Getenv("POLICIES"), Name: name}, op); err != nil {
		return nil, err
	}
	if op.Status.ObservedGeneration != op.Generation {
		return nil, fmt.Errorf("policy %s: generation %d was not evaluated yet", name, op.Generation)
	}
	return op, nil
}

func needArgs(ts *testscript.TestScript, args []string, least, most int, usage string) {
	if len(args) < least || len(args) > most {
		ts.Fatalf("usage: %s", usage)
	}
}

func (e *loopEnv) cmdState(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, args, 2, 2, "state POLICY STATE")
	until(ts, neg, func(ctx context.Context) error {
		op, err := e.policy(ctx, ts, args[0])
		if err != nil {
			return err
		}
		if string(op.Status.Compliant) != args[1] {
			return fmt.Errorf("%s is %s, want %s:\n%s", args[0], op.Status.Compliant, args[1], conditions(op))
		}
		return nil
	})
}

func (e *loopEnv) cmdCondition(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, args, 4, 5, "condition POLICY TYPE STATUS REASON [TEXT]")
	until(ts, neg, func(ctx context.Context) error {
		op, err := e.policy(ctx, ts, args[0])
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(op.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == args[1] && string(c.Status) == args[2] && c.Reason == args[3] && (len(args) == 4 || strings.Contains(c.Message, args[4]))
		}) {
			return fmt.Errorf("%s has no condition %s, but\n%s", args[0], strings.Join(args[1:], " "), conditions(op))
		}
		return nil
	})
}

// conditions shows what is to be read when a script fails.
func conditions(op *policyv1beta2.OperatorPolicy) string {
	var b strings.Builder
	for _, c := range op.Status.Conditions {
		if c.Type != "Compliant" {
			fmt.Fprintf(&b, "  %s %s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return b.String()
}

func (e *loopEnv) cmdRelated(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, args, 5, 6, "related POLICY KIND NAME STATE REASON [uid|created]")
	until(ts, neg, func(ctx context.Context) error {
		op, err := e.policy(ctx, ts, args[0])
		if err != nil {
			return err
		}
		var have []string
		for _, r := range op.Status.RelatedObjects {
			if r.Object.Kind != args[1] {
				continue
			}
			state := string(r.Compliant)
			if state == "" {
				state = "-"
			}
			properties := ""
			if r.Properties != nil && r.Properties.UID != "" {
				properties = "uid"
			}
			if r.Properties != nil && r.Properties.CreatedByPolicy != nil && *r.Properties.CreatedByPolicy {
				properties = "created"
			}
			have = append(have, fmt.Sprintf("  %s %s %q %s", r.Object.Metadata.Name, state, r.Reason, properties))
			if r.Object.Metadata.Name == args[2] && state == args[3] && r.Reason == args[4] && (len(args) == 5 || properties == args[5]) {
				return nil
			}
		}
		return fmt.Errorf("%s relates to no %s, but to\n%s\n%s", args[0], strings.Join(args[1:], " "), strings.Join(have, "\n"), conditions(op))
	})
}

func (e *loopEnv) cmdRelatedCount(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, args, 3, 3, "relatedcount POLICY KIND N")
	until(ts, neg, func(ctx context.Context) error {
		op, err := e.policy(ctx, ts, args[0])
		if err != nil {
			return err
		}
		n := 0
		for _, r := range op.Status.RelatedObjects {
			if r.Object.Kind == args[1] {
				n++
			}
		}
		if fmt.Sprint(n) != args[2] {
			return fmt.Errorf("%s relates to %d objects of kind %s, want %s", args[0], n, args[1], args[2])
		}
		return nil
	})
}

func (e *loopEnv) cmdEvent(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, args, 2, 2, "event POLICY REGEXP")
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	until(ts, neg, func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := e.admin.List(ctx, events, crclient.InNamespace(ts.Getenv("POLICIES"))); err != nil {
			return err
		}
		var messages []string
		for _, event := range events.Items {
			if event.Related != nil && event.Related.Name == args[0] {
				if pattern.MatchString(event.Message) {
					return nil
				}
				messages = append(messages, event.Message)
			}
		}
		return fmt.Errorf("no event matches, but there are\n%s", strings.Join(messages, "\n"))
	})
}

func (e *loopEnv) cmdHistory(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, args, 2, 2, "history POLICY REGEXP")
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	until(ts, neg, func(ctx context.Context) error {
		op, err := e.policy(ctx, ts, args[0])
		if err != nil {
			return err
		}
		var messages []string
		for _, entry := range op.Status.History {
			if pattern.MatchString(entry.Message) {
				return nil
			}
			messages = append(messages, entry.Message)
		}
		return fmt.Errorf("no entry matches, but there are\n%s", strings.Join(messages, "\n"))
	})
}

func (e *loopEnv) cmdGauge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 && len(args) != 3 {
		ts.Fatalf("usage: gauge POLICY [SEVERITY VALUE]")
	}
	labels := fmt.Sprintf(`cluster_policy_governance_info{kind="OperatorPolicy",policy=%q,policy_namespace=%q,`, args[0], ts.Getenv("POLICIES"))
	var want []string
	if len(args) == 3 {
		want = []string{fmt.Sprintf("%sseverity=%q} %s", labels, args[1], args[2])}
	}
	until(ts, false, func(ctx context.Context) error {
		var have []string
		for line := range strings.Lines(e.page(ctx, ts)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, labels) {
				have = append(have, line)
			}
		}
		if !slices.Equal(have, want) {
			return fmt.Errorf("there is %q, want %q", have, want)
		}
		return nil
	})
}

// page is what Opgate says to Prometheus.
func (e *loopEnv) page(ctx context.Context, ts *testscript.TestScript) string {
	code, body, err := e.scrape(ctx, e.scraper)
	ts.Check(err)
	if code != http.StatusOK {
		ts.Fatalf("metrics: %d %s", code, body)
	}
	return body
}

func (e *loopEnv) cmdObject(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, args, 2, 3, "object KIND NAME [NAMESPACE]")
	until(ts, neg, func(ctx context.Context) error {
		_, err := e.get(ctx, ts, args[0], args[1], args[2:]...)
		return err
	})
}

func (e *loopEnv) cmdField(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, args, 4, 4, "field KIND NAME PATH VALUE")
	path := jsonpath.New("field").AllowMissingKeys(true)
	ts.Check(path.Parse("{" + args[2] + "}"))
	until(ts, neg, func(ctx context.Context) error {
		u, err := e.get(ctx, ts, args[0], args[1])
		if err != nil {
			return err
		}
		var value strings.Builder
		if err := path.Execute(&value, u.Object); err != nil {
			return err
		}
		if value.String() != args[3] {
			return fmt.Errorf("%s of %s %s is %q, want %q", args[2], args[0], args[1], value.String(), args[3])
		}
		return nil
	})
}

// loopKinds are the kinds that scripts look at, as kubectl calls them.
var loopKinds = map[string]schema.GroupVersionKind{
	"namespace":                {Version: "v1", Kind: "Namespace"},
	"configmap":                {Version: "v1", Kind: "ConfigMap"},
	"deployment":               {Group: "apps", Version: "v1", Kind: "Deployment"},
	"customresourcedefinition": {Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	"catalogsource":            olmVersion.WithKind("CatalogSource"),
	"clusterserviceversion":    olmVersion.WithKind("ClusterServiceVersion"),
	"installplan":              olmVersion.WithKind("InstallPlan"),
	"operatorgroup":            {Group: "operators.coreos.com", Version: "v1", Kind: "OperatorGroup"},
	"operatorpolicy":           policyv1beta2.GroupVersion.WithKind("OperatorPolicy"),
	"subscription":             olmVersion.WithKind("Subscription"),
}

// get reads an object in a namespace, $NS where there is none given.
func (e *loopEnv) get(ctx context.Context, ts *testscript.TestScript, kind, name string, namespace ...string) (*unstructured.Unstructured, error) {
	gvk, ok := loopKinds[kind]
	if !ok {
		ts.Fatalf("kind %q is not in loopKinds", kind)
	}
	key := crclient.ObjectKey{Namespace: append(namespace, ts.Getenv("NS"))[0], Name: name}
	if slices.Contains(clusterScoped, kind) {
		key.Namespace = ""
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, e.admin.Get(ctx, key, u)
}

// cmdQuiet waits until a policy was not written for a while: what was to be done before may still come, and then nothing does.
func (e *loopEnv) cmdQuiet(ts *testscript.TestScript, neg bool, args []string) {
	needArgs(ts, args, 2, 2, "quiet DURATION POLICY")
	if neg {
		ts.Fatalf("quiet cannot be negated")
	}
	duration, err := time.ParseDuration(args[0])
	ts.Check(err)
	duration = speed.Scale(duration)
	op := &policyv1beta2.OperatorPolicy{}
	key := crclient.ObjectKey{Namespace: ts.Getenv("POLICIES"), Name: args[1]}
	var before *policyv1beta2.OperatorPolicy
	var since time.Time
	until(ts, false, func(ctx context.Context) error {
		if err := e.admin.Get(ctx, key, op); err != nil {
			return err
		}
		if before == nil || op.ResourceVersion != before.ResourceVersion {
			was := before
			before, since = op.DeepCopy(), time.Now()
			if was != nil {
				return fmt.Errorf("policy %s was written:\n%s", args[1], cmp.Diff(was.Status, op.Status))
			}
		}
		if rested := time.Since(since); rested < duration {
			return fmt.Errorf("policy %s was written %s ago", args[1], rested)
		}
		return nil
	})
}
