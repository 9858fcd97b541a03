package harness

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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/jsonpath"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// Commands are those of scripts about the loop; TestLoop documents them.
func (e *LoopEnv) Commands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
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

// Terse keeps the log of a script to itself unless it fails, also with go test -v.
type Terse struct{ *testing.T }

// Run runs a script as a subtest.
func (t Terse) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { f(Terse{t}) })
}

// Verbose returns false.
func (Terse) Verbose() bool { return false }

// Setup creates the namespaces of a script.
func (e *LoopEnv) Setup(script *testscript.Env) error {
	id := rand.String(8)
	script.Setenv("ID", id)
	for variable, prefix := range map[string]string{"NS": "op-", "POLICIES": "policies-"} {
		script.Setenv(variable, prefix+id)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: prefix + id}}
		if err := e.Admin.Create(context.Background(), namespace); err != nil {
			return err
		}
	}
	script.Defer(func() {
		// Policies are deleted, so that the loop has nothing to do for scripts that have ended.
		_ = e.Admin.DeleteAllOf(context.Background(), &policyv1beta2.OperatorPolicy{}, crclient.InNamespace("policies-"+id))
	})
	return nil
}

// Filled returns a text with the variables of a script replaced.
func Filled(ts *testscript.TestScript, text string) string {
	return os.Expand(text, func(variable string) string {
		if value := ts.Getenv(variable); slices.Contains([]string{"NS", "POLICIES", "OTHER", "ID"}, variable) {
			return value
		}
		return "$" + variable
	})
}

func (e *LoopEnv) cmdApply(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(Filled(ts, ts.ReadFile(name)))))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			ts.Check(err)
			u := &unstructured.Unstructured{}
			ts.Check(yaml.Unmarshal(document, &u.Object))
			err = e.Apply(u)
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

func (e *LoopEnv) cmdKubectl(ts *testscript.TestScript, neg bool, args []string) {
	result, err := e.Kubectl(context.Background(), cluster.Admin, "", args...)
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), result.Stdout)
	fmt.Fprint(ts.Stderr(), result.Stderr)
	if (result.ExitCode != 0) != neg {
		ts.Fatalf("kubectl %s: exit code %d\n%s", strings.Join(args, " "), result.ExitCode, result.Stderr)
	}
}

// Until polls until check returns nil, or, negated, an error.
func Until(ts *testscript.TestScript, neg bool, check func(ctx context.Context) error) {
	var last error
	err := Poll(context.Background(), WaitTimeout, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil || last == nil { // else it is only that the context has ended
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
func (e *LoopEnv) policy(ctx context.Context, ts *testscript.TestScript, name string) (*policyv1beta2.OperatorPolicy, error) {
	op := &policyv1beta2.OperatorPolicy{}
	if err := e.Admin.Get(ctx, crclient.ObjectKey{Namespace: ts.Getenv("POLICIES"), Name: name}, op); err != nil {
		return nil, err
	}
	if op.Status.ObservedGeneration != op.Generation {
		return nil, fmt.Errorf("policy %s: generation %d was not evaluated yet", name, op.Generation)
	}
	return op, nil
}

// NeedArgs fails a command whose number of arguments is not between least and most.
func NeedArgs(ts *testscript.TestScript, args []string, least, most int, usage string) {
	if len(args) < least || len(args) > most {
		ts.Fatalf("usage: %s", usage)
	}
}

func (e *LoopEnv) cmdState(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 2, 2, "state POLICY STATE")
	Until(ts, neg, func(ctx context.Context) error {
		op, err := e.policy(ctx, ts, args[0])
		if err != nil {
			return err
		}
		if string(op.Status.Compliant) != args[1] {
			return fmt.Errorf("%s is %s, want %s:\n%s", args[0], op.Status.Compliant, args[1], Conditions(op))
		}
		return nil
	})
}

func (e *LoopEnv) cmdCondition(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 4, 5, "condition POLICY TYPE STATUS REASON [TEXT]")
	Until(ts, neg, func(ctx context.Context) error {
		op, err := e.policy(ctx, ts, args[0])
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(op.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == args[1] && string(c.Status) == args[2] && c.Reason == args[3] && (len(args) == 4 || strings.Contains(c.Message, args[4]))
		}) {
			return fmt.Errorf("%s has no condition %s, but\n%s", args[0], strings.Join(args[1:], " "), Conditions(op))
		}
		return nil
	})
}

func (e *LoopEnv) cmdRelated(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 5, 6, "related POLICY KIND NAME STATE REASON [uid|created]")
	Until(ts, neg, func(ctx context.Context) error {
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
		return fmt.Errorf("%s relates to no %s, but to\n%s\n%s", args[0], strings.Join(args[1:], " "), strings.Join(have, "\n"), Conditions(op))
	})
}

func (e *LoopEnv) cmdRelatedCount(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 3, 3, "relatedcount POLICY KIND N")
	Until(ts, neg, func(ctx context.Context) error {
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

func (e *LoopEnv) cmdEvent(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 2, 2, "event POLICY REGEXP")
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	Until(ts, neg, func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := e.Admin.List(ctx, events, crclient.InNamespace(ts.Getenv("POLICIES"))); err != nil {
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

func (e *LoopEnv) cmdHistory(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 2, 2, "history POLICY REGEXP")
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	Until(ts, neg, func(ctx context.Context) error {
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

func (e *LoopEnv) cmdGauge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 && len(args) != 3 {
		ts.Fatalf("usage: gauge POLICY [SEVERITY VALUE]")
	}
	labels := fmt.Sprintf(`cluster_policy_governance_info{kind="OperatorPolicy",policy=%q,policy_namespace=%q,`, args[0], ts.Getenv("POLICIES"))
	var want []string
	if len(args) == 3 {
		want = []string{fmt.Sprintf("%sseverity=%q} %s", labels, args[1], args[2])}
	}
	Until(ts, false, func(ctx context.Context) error {
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

// page is the metrics endpoint's answer to Prometheus.
func (e *LoopEnv) page(ctx context.Context, ts *testscript.TestScript) string {
	code, body, err := e.Scrape(ctx, e.Scraper)
	ts.Check(err)
	if code != http.StatusOK {
		ts.Fatalf("metrics: %d %s", code, body)
	}
	return body
}

func (e *LoopEnv) cmdObject(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 2, 3, "object KIND NAME [NAMESPACE]")
	Until(ts, neg, func(ctx context.Context) error {
		_, err := e.Get(ctx, ts, args[0], args[1], args[2:]...)
		return err
	})
}

func (e *LoopEnv) cmdField(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 4, 4, "field KIND NAME PATH VALUE")
	path := jsonpath.New("field").AllowMissingKeys(true)
	ts.Check(path.Parse("{" + args[2] + "}"))
	Until(ts, neg, func(ctx context.Context) error {
		u, err := e.Get(ctx, ts, args[0], args[1])
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

// scriptKinds are the kinds that every script may name, as kubectl does.
var scriptKinds = map[string]schema.GroupVersionKind{
	"namespace":                {Version: "v1", Kind: "Namespace"},
	"configmap":                {Version: "v1", Kind: "ConfigMap"},
	"deployment":               {Group: "apps", Version: "v1", Kind: "Deployment"},
	"customresourcedefinition": {Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	"catalogsource":            OLMVersion.WithKind("CatalogSource"),
	"clusterserviceversion":    OLMVersion.WithKind("ClusterServiceVersion"),
	"installplan":              OLMVersion.WithKind("InstallPlan"),
	"operatorgroup":            {Group: "operators.coreos.com", Version: "v1", Kind: "OperatorGroup"},
	"operatorpolicy":           policyv1beta2.GroupVersion.WithKind("OperatorPolicy"),
	"subscription":             OLMVersion.WithKind("Subscription"),
}

// Get reads an object in a namespace, $NS where there is none given.
func (e *LoopEnv) Get(ctx context.Context, ts *testscript.TestScript, kind, name string, namespace ...string) (*unstructured.Unstructured, error) {
	gvk, ok := e.Kind(kind)
	if !ok {
		ts.Fatalf("scripts do not know kind %q", kind)
	}
	key := crclient.ObjectKey{Namespace: append(namespace, ts.Getenv("NS"))[0], Name: name}
	if slices.Contains(clusterScoped, kind) {
		key.Namespace = ""
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, e.Admin.Get(ctx, key, u)
}

// cmdQuiet waits until a policy was not written for a while: pending reconciliations may still write it before that.
func (e *LoopEnv) cmdQuiet(ts *testscript.TestScript, neg bool, args []string) {
	NeedArgs(ts, args, 2, 2, "quiet DURATION POLICY")
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
	Until(ts, false, func(ctx context.Context) error {
		if err := e.Admin.Get(ctx, key, op); err != nil {
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

// Kind returns the kind of a name in scripts.
func (e *LoopEnv) Kind(name string) (gvk schema.GroupVersionKind, ok bool) {
	if gvk, ok = scriptKinds[name]; !ok {
		gvk, ok = e.Kinds[name]
	}
	return gvk, ok
}

// clusterScoped are the kinds of scripts that are in no namespace.
var clusterScoped = []string{"namespace", "customresourcedefinition", "constraint", "zone", "constrainttemplate", "k8srequiredlabels"}
