package dependency

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// place creates a namespace for one test.
func (e *env) place(t testing.TB) string {
	t.Helper()
	name := "shop-" + rand.String(8)
	cleanup, err := e.newNamespace(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cleanup)
	return name
}

// policyOf is a Policy with one ConfigurationPolicy of its own name, which depends on other objects, such as
// "Policy/base".
func policyOf(namespace, name string, dependencies ...string) *policyv1.Policy {
	p := &policyv1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	template := &policyv1.PolicyTemplate{}
	template.ObjectDefinition.Raw = fmt.Appendf(nil,
		`{"apiVersion":"policy.open-cluster-management.io/v1","kind":"ConfigurationPolicy","metadata":{"name":%q},"spec":{"severity":"low"}}`, name)
	p.Spec.PolicyTemplates = []*policyv1.PolicyTemplate{template}
	for _, dependency := range dependencies {
		kind, on, _ := strings.Cut(dependency, "/")
		p.Spec.Dependencies = append(p.Spec.Dependencies, policyv1.PolicyDependency{
			Kind:       kind,
			Name:       on,
			Compliance: policyv1.Compliant,
		})
	}
	return p
}

// configuration is a ConfigurationPolicy that no Policy has made.
func configuration(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(configurationPolicy)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// mustCreate creates objects one after the other.
func (e *env) mustCreate(t testing.TB, objects ...crclient.Object) {
	t.Helper()
	for _, object := range objects {
		if err := e.Admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// turns has a policy controller write a state, once there is an object to write it to.
func (e *env) turns(t testing.TB, namespace, name, state string) {
	t.Helper()
	harness.Eventually(t, name+" becomes "+state, func(ctx context.Context) error {
		u := configuration(namespace, name)
		if err := e.Admin.Get(ctx, crclient.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		return e.evaluated(ctx, u, state)
	})
}

// waitIs waits until a Policy has a state in its newest generation.
func (e *env) waitIs(t testing.TB, namespace, name string, state policyv1.ComplianceState) *policyv1.Policy {
	t.Helper()
	var p *policyv1.Policy
	harness.Eventually(t, "policy "+name+" is "+string(state), func(ctx context.Context) (err error) {
		if p, err = e.policy(ctx, namespace, name); err == nil && p.Status.ComplianceState != state {
			err = fmt.Errorf("it is %q:\n%s", p.Status.ComplianceState, rendered(p))
		}
		return err
	})
	return p
}

// namespaces asks the schema for which kinds a dependency may name a namespace.
func namespaces(t *testing.T, e *env) {
	namespace := e.place(t)
	for kind, mayName := range map[string]bool{
		"Policy": true, "PolicySet": true, "OperatorPolicy": true, "OtherType": true, "ConfigurationPolicy": false,
		"CertificatePolicy": false,
	} {
		for _, in := range []string{"", "default"} {
			for _, field := range []string{"dependencies", "extraDependencies"} {
				p := policyOf(namespace, "app")
				dependencies := []policyv1.PolicyDependency{{
					APIVersion: "policy.open-cluster-management.io/v1", Kind: kind, Name: "foo", Namespace: in,
					Compliance: policyv1.Compliant,
				}}
				if field == "dependencies" {
					p.Spec.Dependencies = dependencies
				} else {
					p.Spec.PolicyTemplates[0].ExtraDependencies = dependencies
				}
				err := e.Admin.Create(t.Context(), p, crclient.DryRunAll)
				switch wanted := mayName || in == ""; {
				case wanted && err != nil:
					t.Errorf("%s in %s with namespace %q: %v", kind, field, in, err)
				case !wanted && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), field+"[0].namespace")):
					t.Errorf("%s in %s with namespace %q: got %v, want it refused", kind, field, in, err)
				}
			}
		}
	}
}

// largeTemplate is about a template that is about as large as a Policy may be.
func largeTemplate(t *testing.T, e *env) {
	namespace := e.place(t)
	large := policyOf(namespace, "large")
	small := large.Spec.PolicyTemplates[0].ObjectDefinition.Raw
	text := strings.Repeat("what is to be so on every cluster; ", 1<<20/35+1)[:1<<20]
	large.Spec.PolicyTemplates[0].ObjectDefinition.Raw = fmt.Appendf(nil, `%s,"text":%q}}`,
		strings.TrimSuffix(string(small), "}}"), text)
	e.mustCreate(t, large)
	e.turns(t, namespace, "large", "Compliant")
	e.waitIs(t, namespace, "large", policyv1.Compliant)
	u := configuration(namespace, "large")
	if err := e.Admin.Get(t.Context(), crclient.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(u.Object, "spec", "text"); got != text {
		t.Errorf("the object has %d bytes of text, want %d", len(got), len(text))
	}
	// It is put right like any other.
	patch := crclient.RawPatch("application/merge-patch+json", []byte(`{"spec":{"text":"short"}}`))
	if err := e.Admin.Patch(t.Context(), u, patch); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the object is put right", func(ctx context.Context) error {
		if err := e.Admin.Get(ctx, crclient.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedString(u.Object, "spec", "text"); len(got) != len(text) {
			return fmt.Errorf("it has %d bytes of text", len(got))
		}
		return nil
	})
}

// restart stops Opgate and starts it again: what is applied is left as it is, also while nothing has been read yet.
// Then it starts one that deletes guards.
func restart(t *testing.T, e *env) {
	namespace := e.place(t)
	policy := func(name string, dependencies ...string) *policyv1.Policy {
		p := policyOf(namespace, name, dependencies...)
		p.Spec.PolicyTemplates[0].ObjectDefinition.Raw = fmt.Appendf(nil, `{"apiVersion":"policy.open-cluster-management.io/v1beta2","kind":"OperatorPolicy",
			"metadata":{"name":%q},"spec":{"remediationAction":"inform","complianceType":"musthave","upgradeApproval":"None",
			"subscription":{"name":%q,"namespace":%q,"channel":"stable","source":"catalog","sourceNamespace":"olm"}}}`, name, name, namespace)
		return p
	}
	e.mustCreate(t, configuration(namespace, "base"), policyOf(namespace, "app", "ConfigurationPolicy/base"),
		policy("suspended", "ConfigurationPolicy/never"),
		policy("guard", "ConfigurationPolicy/base"))
	e.turns(t, namespace, "base", "Compliant")
	e.turns(t, namespace, "app", "Compliant")
	e.waitIs(t, namespace, "app", policyv1.Compliant)
	e.waitIs(t, namespace, "suspended", policyv1.Pending)
	e.waitIs(t, namespace, "guard", policyv1.NonCompliant)
	e.waitQuiet(t)
	type stored struct {
		uid        string
		generation int64
		state      string
	}
	statuses := func() map[string]stored {
		all := map[string]stored{}
		for _, kind := range []string{"policy", "configurationpolicy", "operatorpolicy"} {
			gvk, _ := e.Kind(kind)
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gvk)
			if err := e.Admin.List(t.Context(), list, crclient.InNamespace(namespace)); err != nil {
				t.Fatal(err)
			}
			for _, u := range list.Items {
				state, _, _ := unstructured.NestedString(u.Object, "status", "compliant")
				all[kind+" "+u.GetName()] = stored{string(u.GetUID()), u.GetGeneration(), state}
			}
		}
		return all
	}
	before := statuses()
	since := time.Now()
	e.restartOpgate(t)
	// It has done all that it does when it has done something that came later.
	e.mustCreate(t, policyOf(namespace, "witness", "ConfigurationPolicy/base"))
	e.turns(t, namespace, "witness", "Compliant")
	e.waitIs(t, namespace, "witness", policyv1.Compliant)
	after := statuses()
	delete(after, "policy witness")
	delete(after, "configurationpolicy witness")
	if len(before) != len(after) {
		t.Errorf("there are %v, and were %v", after, before)
	}
	for name, was := range before {
		if after[name] != was {
			t.Errorf("%s is %+v, and was %+v", name, after[name], was)
		}
	}
	requests, err := e.OpgateRequests(since, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(requests,
		func(r cluster.Request) bool { return r.Verb == "delete" && r.Response.Code < 300 }); i >= 0 {
		t.Errorf("opgate did %s %s", requests[i].Verb, requests[i].URI)
	}

	t.Run("guards are deleted where that is asked for", func(t *testing.T) {
		e.restartOpgate(t, "--pending-guards=delete")
		gone := func(name string) {
			t.Helper()
			harness.Eventually(t, "guard "+name+" is gone", func(ctx context.Context) error {
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(policyv1beta2.GroupVersion.WithKind("OperatorPolicy"))
				err := e.Admin.Get(ctx, crclient.ObjectKey{Namespace: namespace, Name: name}, u)
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("it is there (%w)", err)
			})
		}
		gone("suspended")
		e.turns(t, namespace, "base", "NonCompliant")
		gone("guard")
		e.waitIs(t, namespace, "guard", policyv1.Pending)
	})
}

// restartOpgate stops Opgate, and starts another one with more arguments.
func (e *env) restartOpgate(t *testing.T, args ...string) {
	t.Helper()
	if _, err := e.Gate.Stop(); err != nil {
		t.Fatal(err)
	}
	var err error
	if e.Gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{
		Loop: true,
		Args: args,
	}); err != nil {
		t.Fatal(err)
	}
}
