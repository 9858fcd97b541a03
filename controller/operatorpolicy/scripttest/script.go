// Package scripttest is the language of scripts about OperatorPolicies: their commands write what users and OLM would,
// and wait until policies report what is wanted. It is for tests alone: those of the controller play scripts on stored
// objects, those of e2e on an API server.
package scripttest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
)

// Player plays scripts. Every field but Kinds and Repeat is required.
//
// Each script has a namespace for an operator, $NS, and one for its policies, $POLICIES. $ID is different for each,
// for the names of objects in no namespace. Unless documented otherwise, a command waits until its statement is true.
// Commands:
//
//	apply FILE...                 write objects with $NS, $POLICIES and $ID filled in: plans as OLM does, all else as an
//	                              admin, and every status as OLM
//	proposes PLAN SUBSCRIPTION=CSV...
//	                              OLM has resolved Subscriptions of $NS: a plan brings them to what they then follow
//	installs PLAN SUBSCRIPTION=CSV...
//	                              OLM carries a plan out, once it is approved, and all is well
//	kubectl ARG...                what kubectl does as an admin, by its own client; its output is for stdout and stderr
//	state POLICY STATE            status.compliant of a policy, in its newest generation
//	condition POLICY TYPE STATUS REASON [TEXT]
//	                              a condition, with a text in its message
//	related POLICY KIND NAME STATE REASON [UID]
//	                              a related object; - as STATE is one without; "uid" or "created" as UID wants it
//	relatedcount POLICY KIND N    how many related objects there are of a kind
//	event POLICY REGEXP           a compliance event that matches
//	history POLICY REGEXP         an entry of status.history that matches
//	gauge POLICY [SEVERITY VALUE]  the one series of cluster_policy_governance_info of a policy; or that it has none
//	object KIND NAME [NAMESPACE [TEXT]]
//	                              there is one, with a text in it; and its negation
//	field KIND NAME PATH VALUE    a field, by kubectl's JSONPath without braces, in $NS
//	quiet DURATION POLICY         the policy comes to rest: it is not written for so long, longer on a slow machine
type Player struct {
	// Context is that of all requests: commands of scripts have none.
	Context context.Context
	// Admin and OLM write objects.
	Admin, OLM client.Client
	// Kinds are those that scripts may name besides the usual ones.
	Kinds map[string]schema.GroupVersionKind
	// Poll checks until the condition is true, or for so long that it will never be.
	Poll func(ctx context.Context, check func(ctx context.Context) (bool, error)) error
	// Scale returns the duration on this machine of what takes d on the usual one.
	Scale func(d time.Duration) time.Duration
	// Now is the clock.
	Now func() time.Time
	// Metrics returns the answer of the metrics endpoint.
	Metrics func(ctx context.Context) (string, error)
	// Repeat sends the write of an object until it is not refused. Default: it is sent once.
	Repeat func(ctx context.Context, u *unstructured.Unstructured, write func() error) error
}

// Commands returns the commands of scripts.
func (p *Player) Commands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	return map[string]func(ts *testscript.TestScript, neg bool, args []string){
		"apply":        p.cmdApply,
		"proposes":     p.cmdProposes,
		"installs":     p.cmdInstalls,
		"kubectl":      p.cmdKubectl,
		"state":        p.cmdState,
		"condition":    p.cmdCondition,
		"related":      p.cmdRelated,
		"relatedcount": p.cmdRelatedCount,
		"event":        p.cmdEvent,
		"history":      p.cmdHistory,
		"gauge":        p.cmdGauge,
		"object":       p.cmdObject,
		"field":        p.cmdField,
		"quiet":        p.cmdQuiet,
	}
}

// Setup creates the namespaces of a script.
func (p *Player) Setup(script *testscript.Env) error {
	id := rand.String(8)
	script.Setenv("ID", id)
	for variable, prefix := range map[string]string{"NS": "op-", "POLICIES": "policies-"} {
		script.Setenv(variable, prefix+id)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: prefix + id}}
		if err := p.Admin.Create(p.Context, namespace); err != nil {
			return err
		}
	}
	script.Defer(func() {
		// Policies are deleted, so that the loop has nothing to do for scripts that have ended.
		_ = p.Admin.DeleteAllOf(p.Context, &policyv1beta2.OperatorPolicy{}, client.InNamespace("policies-"+id))
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

// final begins a failure that no second run excuses, as Final of package harness does: a write was to be refused.
const final = "FINAL: "

// NeedArgs fails a command whose number of arguments is not between least and most.
func NeedArgs(ts *testscript.TestScript, args []string, least, most int, usage string) {
	if len(args) < least || len(args) > most {
		ts.Fatalf("usage: %s", usage)
	}
}

// Until polls until check returns nil, or, negated, an error.
func (p *Player) Until(ts *testscript.TestScript, neg bool, check func(ctx context.Context) error) {
	var last error
	err := p.Poll(p.Context, func(ctx context.Context) (bool, error) {
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

// Apply writes an object and its status, until it is not refused where Repeat does so.
func (p *Player) Apply(u *unstructured.Unstructured) error {
	if p.Repeat == nil {
		return p.apply(u, once)
	}
	return p.apply(u, func(write func() error) error { return p.Repeat(p.Context, u, write) })
}

// once sends a write.
func once(write func() error) error { return write() }

func (p *Player) apply(u *unstructured.Unstructured, send func(write func() error) error) error {
	status, hasStatus := u.Object["status"]
	if hasStatus = hasStatus && u.GetKind() != "PackageManifest"; hasStatus { // whose status is no subresource in tests
		delete(u.Object, "status")
	}
	author := p.Admin
	if kind := u.GetKind(); kind == olm.KindInstallPlan || kind == olm.KindClusterServiceVersion {
		author = p.OLM
	}
	err := send(func() error {
		configuration := client.ApplyConfigurationFromUnstructured(u)
		return author.Apply(p.Context, configuration, client.ForceOwnership, client.FieldOwner("script"))
	})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if !hasStatus {
		return nil
	}
	before := u.DeepCopy()
	u.Object["status"] = status
	if err := p.OLM.Status().Patch(p.Context, u, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write the status of %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

// documents decodes the objects of a YAML text.
func documents(text string) (objects []*unstructured.Unstructured, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &u.Object); err != nil {
			return nil, err
		}
		objects = append(objects, u)
	}
}

func (p *Player) cmdApply(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		objects, err := documents(Filled(ts, ts.ReadFile(name)))
		ts.Check(err)
		for _, u := range objects {
			if !neg {
				ts.Check(p.Apply(u))
				continue
			}
			err := p.apply(u, once)
			if err == nil {
				ts.Fatalf(final+"%s %s was not refused", u.GetKind(), u.GetName())
			}
			fmt.Fprintln(ts.Stderr(), err)
		}
	}
}

func (p *Player) cmdKubectl(ts *testscript.TestScript, neg bool, args []string) {
	stdout, err := p.kubectl(p.Context, args)
	fmt.Fprint(ts.Stdout(), stdout)
	if err != nil {
		fmt.Fprintln(ts.Stderr(), err)
	}
	switch command := strings.Join(args, " "); {
	case neg && err == nil && args[0] != "get":
		ts.Fatalf(final+"kubectl %s was not refused", command)
	case (err != nil) != neg:
		ts.Fatalf("kubectl %s: %v", command, err)
	}
}

// kinds are those that every script may name, as kubectl does.
var kinds = map[string]schema.GroupVersionKind{
	"namespace":                {Version: "v1", Kind: "Namespace"},
	"configmap":                {Version: "v1", Kind: "ConfigMap"},
	"deployment":               {Group: "apps", Version: "v1", Kind: "Deployment"},
	"customresourcedefinition": {Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	"catalogsource":            olm.CatalogSourceGVK,
	"clusterserviceversion":    olm.ClusterServiceVersionGVK,
	"installplan":              olm.InstallPlanGVK,
	"operatorgroup":            olm.OperatorGroupGVK,
	"operatorpolicy":           policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind),
	"subscription":             olm.SubscriptionGVK,
}

// clusterScoped are the kinds of scripts that are in no namespace.
var clusterScoped = []string{"namespace", "customresourcedefinition", "constraint", "zone", "constrainttemplate",
	"k8srequiredlabels"}

// Kind returns the kind of a name in scripts.
func (p *Player) Kind(name string) (gvk schema.GroupVersionKind, ok bool) {
	if gvk, ok = kinds[name]; !ok {
		gvk, ok = p.Kinds[name]
	}
	return gvk, ok
}

// Get reads an object in a namespace; the default is $NS.
func (p *Player) Get(
	ctx context.Context, ts *testscript.TestScript, kind, name string, namespace ...string,
) (*unstructured.Unstructured, error) {
	gvk, ok := p.Kind(kind)
	if !ok {
		ts.Fatalf("scripts do not know kind %q", kind)
	}
	key := client.ObjectKey{Namespace: append(namespace, ts.Getenv("NS"))[0], Name: name}
	if slices.Contains(clusterScoped, kind) {
		key.Namespace = ""
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, p.Admin.Get(ctx, key, u)
}
