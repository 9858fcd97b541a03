package compliance

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// ready is a namespace in which a Subscription can be created.
func ready(in *fixture) { group("shop-x7", nil, generated)(in) }

// defaults removes all but the package and the namespace, so that the catalog determines the rest.
func defaults(in *fixture) {
	s := &in.Policy.Spec.Subscription
	s.Channel, s.Source, s.SourceNamespace = "", "", ""
}

func failing(reason, message string) func(*olm.Subscription) {
	return func(s *olm.Subscription) {
		s.Status.Conditions = []olm.SubscriptionCondition{
			{Type: "CatalogSourcesUnhealthy", Status: "False"},
			{Type: TypeResolutionFailed, Status: "True", Reason: reason, Message: message,
				LastTransitionTime: evaluatedAt.Add(-time.Hour).Format(time.RFC3339)},
		}
	}
}

func TestEvaluateSubscription(t *testing.T) {
	for _, s := range []scenario{
		{
			name: "5.1 none, informing", given: []given{ready},
			want: map[string]string{TypeSubscription: "False SubscriptionMissing",
				TypeClusterServiceVersion: "False ClusterServiceVersionMissing"},
			related: map[string][]string{kindSubscription: {"etcd NonCompliant Resource not found but should exist"}},
		},
		{
			name:  "5.2 none, and the OperatorGroup is not right",
			given: []given{enforced, policyGroup(), group("extra", nil)},
			want: map[string]string{TypeOperatorGroup: "False OperatorGroupMismatch",
				TypeSubscription: "False SubscriptionMissing"},
		},
		{
			name: "5.3 none, enforced", given: []given{enforced, ready},
			want:    map[string]string{TypeSubscription: "False SubscriptionMissing"},
			says:    map[string]string{TypeSubscription: "the required Subscription shop/etcd was not found"},
			actions: []string{"create Subscription shop/etcd"},
			done:    []string{"SubscriptionCompliant True SubscriptionCreated"},
		},
		{
			name: "6.2 another catalog, informing", given: []given{running,
				asked(func(s *policyv1beta2.SubscriptionTemplate) { s.SourceNamespace = "fake" })},
			want:    map[string]string{TypeSubscription: "False SubscriptionMismatch"},
			says:    map[string]string{TypeSubscription: `the Subscription shop/etcd does not match the policy: spec.sourceNamespace is "olm", want "fake"`},
			related: map[string][]string{kindSubscription: {"etcd NonCompliant Resource found but does not match"}},
		},
		{
			name: "5.4 another channel, enforced", given: []given{enforced, running,
				asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Channel = "fake" })},
			want:    map[string]string{TypeSubscription: "False SubscriptionMismatch"},
			actions: []string{"update Subscription shop/etcd"},
			done:    []string{"SubscriptionCompliant True SubscriptionUpdated"},
		},
		{
			name: "6.1 installPlanApproval does not count while informing",
			given: []given{running, spec(
				func(s *policyv1beta2.OperatorPolicySpec) { s.UpgradeApproval = policyv1beta2.UpgradeApprovalNone })},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches"},
		},
		{
			name: "installPlanApproval is what the policy computes, enforced",
			given: []given{enforced, running,
				spec(func(s *policyv1beta2.OperatorPolicySpec) { s.UpgradeApproval = policyv1beta2.UpgradeApprovalNone })},
			says:    map[string]string{TypeSubscription: `the Subscription shop/etcd does not match the policy: spec.installPlanApproval is "Automatic", want "Manual"`},
			actions: []string{"update Subscription shop/etcd"},
		},
		{
			name: "adoption marks the Subscription as managed and names no other policy",
			given: []given{enforced, running, func(in *fixture) {
				in.Subscriptions[0].Metadata.Annotations.ManagedBy = "tenant.secret-policy"
				in.Subscriptions[0].Metadata.Labels.Managed = nil
			}},
			says:    map[string]string{TypeSubscription: "the Subscription shop/etcd does not match the policy: it is not marked as managed by this policy"},
			actions: []string{"update Subscription shop/etcd"},
		},
		{
			name: "an informing policy does not ask for its mark",
			given: []given{running, func(in *fixture) {
				in.Subscriptions[0].Metadata.Annotations, in.Subscriptions[0].Metadata.Labels = olm.Annotations{}, olm.Labels{}
			}},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches"},
		},
		{
			name: "a Subscription of any name is adopted", given: []given{enforced, running, func(in *fixture) {
				in.Subscriptions = nil
				subscription("etcd-stable-community-olm", func(s *olm.Subscription) { s.Spec.Channel = "beta" })(in)
			}},
			want:    map[string]string{TypeSubscription: "False SubscriptionMismatch"},
			actions: []string{"update Subscription shop/etcd-stable-community-olm"},
		},
		{
			name:  "several Subscriptions of other names",
			given: []given{enforced, ready, subscription("a"), subscription("b")},
			want:  map[string]string{TypeSubscription: "False SubscriptionMismatch"},
			says:  map[string]string{TypeSubscription: "there is more than one Subscription to etcd in namespace shop, so that OLM resolves none: a, b; remove all but one"},
			related: map[string][]string{kindSubscription: {"a NonCompliant Resource found but does not match",
				"b NonCompliant Resource found but does not match"}},
		},
		{
			name:  "a second Subscription beside the right one",
			given: []given{enforced, ready, subscription("etcd"), subscription("a")},
			want:  map[string]string{TypeSubscription: "False SubscriptionMismatch"},
			says:  map[string]string{TypeSubscription: "there is more than one Subscription to etcd in namespace shop, so that OLM resolves none: a, etcd; remove all but one"},
		},
		{
			name: "the name is taken by a Subscription to another package",
			given: []given{enforced, ready,
				subscription("etcd", func(s *olm.Subscription) { s.Spec.Package = "vault" })},
			want: map[string]string{TypeSubscription: "False SubscriptionMismatch"},
			says: map[string]string{TypeSubscription: `the Subscription shop/etcd does not match the policy: spec.name is "vault", want "etcd"; ` +
				`it belongs to another package and is not changed`},
		},
		{
			name: "R-LP-7 defaults are not known yet", given: []given{enforced, ready, defaults},
			want: map[string]string{TypeValidPolicySpec: "True PolicyValidated",
				TypeSubscription: "False SubscriptionMissing"},
			says: map[string]string{TypeSubscription: "the required Subscription shop/etcd was not found; the defaults of spec.subscription.channel, spec.subscription.source, " +
				"spec.subscription.sourceNamespace cannot be determined, because the package etcd was not (yet) found in a catalog"},
		},
		{
			name:  "R-LP-7 one default is not known yet",
			given: []given{ready, asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Channel = "" })},
			says: map[string]string{TypeSubscription: "the required Subscription shop/etcd was not found; the defaults of spec.subscription.channel cannot be determined, " +
				"because the package etcd was not (yet) found in catalog olm/community"},
		},
		{
			name:  "R-LP-7 the package has no default channel",
			given: []given{enforced, ready, defaults, manifest(func(p *catalog.Package) { p.DefaultChannel = "" })},
			want:  map[string]string{TypeValidPolicySpec: "True PolicyValidated"},
			says: map[string]string{TypeSubscription: "the required Subscription shop/etcd was not found; the defaults of spec.subscription.channel cannot be determined, " +
				"because the PackageManifest of etcd does not list them"},
		},
		{
			name: "R-LP-7 part of a catalog, and the package is in none yet",
			given: []given{enforced, ready,
				asked(func(s *policyv1beta2.SubscriptionTemplate) { s.SourceNamespace = "" })},
			want: map[string]string{TypeValidPolicySpec: "True PolicyValidated"},
			says: map[string]string{TypeSubscription: "the required Subscription shop/etcd was not found; the defaults of spec.subscription.sourceNamespace cannot be determined, " +
				"because the package etcd was not (yet) found in a catalog named community"},
		},
		{
			name:  "R-LP-7 the namespace of a catalog, and the package is in none yet",
			given: []given{enforced, ready, asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Source = "" })},
			says: map[string]string{TypeSubscription: "the required Subscription shop/etcd was not found; the defaults of spec.subscription.source cannot be determined, " +
				"because the package etcd was not (yet) found in a catalog in namespace olm"},
		},
		{
			name: "1.2 an existing Subscription needs no defaults, and its channel stays",
			given: []given{enforced, running, defaults,
				func(in *fixture) { in.Package = func(olm.Catalog) *catalog.Package { return nil } }},
			want: map[string]string{TypeValidPolicySpec: "True PolicyValidated",
				TypeSubscription: "True SubscriptionMatches"},
		},
		{
			name: "startingCSV of the live Subscription stays where the policy has none",
			given: []given{enforced, ready,
				subscription("etcd", func(s *olm.Subscription) { s.Spec.StartingCSV = "etcd.v1.0.0" })},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches"},
		},
		{
			name: "startingCSV of the policy is put right",
			given: []given{enforced, ready,
				subscription("etcd", func(s *olm.Subscription) { s.Spec.StartingCSV = "etcd.v1.0.0" }),
				asked(func(s *policyv1beta2.SubscriptionTemplate) { s.StartingCSV = "etcd.v1.2.0" })},
			says:    map[string]string{TypeSubscription: `the Subscription shop/etcd does not match the policy: spec.startingCSV is "etcd.v1.0.0", want "etcd.v1.2.0"`},
			actions: []string{"update Subscription shop/etcd"},
		},
		{
			name: "27.1 config is replaced as a whole", given: []given{enforced, running,
				configured(`{"nodeSelector":{"infra":""},"env":[]}`),
				asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Config = raw(`{"nodeSelector":{"tier":"1"}}`) })},
			says: map[string]string{TypeSubscription: `the Subscription shop/etcd does not match the policy: spec.config is {"nodeSelector":{"infra":""}}, ` +
				`want {"nodeSelector":{"tier":"1"}}`},
			actions: []string{"update Subscription shop/etcd"},
		},
		{
			name: "27.1 config that the policy dropped stays", given: []given{enforced, running,
				configured(`{"nodeSelector":{"infra":""}}`),
				asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Config = raw(`{}`) })},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches"},
		},
		{
			name: "config that was stored in another form is the same", given: []given{enforced, running,
				configured(`{"resources":{"limits":{"cpu":"1"}},"env":[]}`),
				asked(func(s *policyv1beta2.SubscriptionTemplate) {
					s.Config = raw(`{"resources":{"limits":{"cpu":"1000m"}}}`)
				})},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches"},
		},
		{
			name: "22.3 R-ST-14 the failure of another Subscription is not ours", given: []given{enforced, ready,
				subscription("etcd", failing(reasonUnsatisfiable,
					"constraints not satisfiable: no operators found in package etcd-other, subscription etcd-other exists"))},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches"},
		},
		{
			name: "R-ST-14 a mismatch is told while another Subscription fails", given: []given{ready,
				subscription("etcd", failing(reasonUnsatisfiable, "subscription vault exists"),
					func(s *olm.Subscription) { s.Spec.Channel = "beta" })},
			want: map[string]string{TypeSubscription: "False SubscriptionMismatch"},
		},
		{
			name: "9.1 constraints that are not satisfiable", given: []given{enforced, ready,
				subscription("etcd", failing("constraintsnotsatisfiable",
					"no operators found in package etcd in the catalog, subscription etcd exists"))},
			want:    map[string]string{TypeSubscription: "False ConstraintsNotSatisfiable"},
			says:    map[string]string{TypeSubscription: "the constraints of the Subscription shop/etcd are not satisfiable; see the message of its condition ResolutionFailed"},
			related: map[string][]string{kindSubscription: {"etcd NonCompliant ConstraintsNotSatisfiable"}},
		},
		{
			name: "another resolution failure is told as it is",
			given: []given{ready, subscription("etcd",
				failing("ErrorPreventedResolution", "catalog olm/community is down"))},
			want:    map[string]string{TypeSubscription: "False ErrorPreventedResolution"},
			says:    map[string]string{TypeSubscription: "catalog olm/community is down"},
			related: map[string][]string{kindSubscription: {"etcd NonCompliant ErrorPreventedResolution"}},
		},
		{
			name:  "R-ST-6 a resolution failure without a reason",
			given: []given{ready, subscription("etcd", failing("", ""))},
			want:  map[string]string{TypeSubscription: "False ResolutionFailed"},
			says:  map[string]string{TypeSubscription: "OLM could not resolve the Subscription shop/etcd"},
		},
	} {
		s.run(t)
	}
}

func TestEvaluateSubscriptionObjects(t *testing.T) {
	whole := func(fields string, spec map[string]any) map[string]any {
		return map[string]any{
			"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
			"metadata": map[string]any{"name": "etcd", "namespace": "shop", "labels": map[string]any{metakey.Managed: ""},
				"annotations": map[string]any{metakey.Managed: "policies.etcd-policy",
					metakey.PolicyFields: fields, metakey.CreatedBy: createdMark(kindSubscription,
						olm.ObjectMeta{Namespace: "shop", Name: "etcd"})}},
			"spec": spec,
		}
	}
	live := subscriptionContent(input(running).Namespace.Subscriptions()[0])
	for _, c := range []struct {
		name  string
		given []given
		want  map[string]any
	}{
		{"R-LP-5 a new one has its marks", []given{enforced, ready, asked(func(s *policyv1beta2.SubscriptionTemplate) {
			s.StartingCSV, s.Config = "etcd.v1.2.0", raw(`{"env":[{"name":"A","value":"b"}]}`)
		}), spec(func(s *policyv1beta2.OperatorPolicySpec) { s.Versions = []string{"etcd.v1.2.0"} })}, whole(
			"channel,config,startingCSV", map[string]any{
				"name": "etcd", "channel": "stable-1.2", "source": "community", "sourceNamespace": "olm",
				"startingCSV": "etcd.v1.2.0", "installPlanApproval": "Manual",
				"config": map[string]any{"env": []any{map[string]any{"name": "A", "value": "b"}}},
			})},
		{"1.1 what the policy leaves open comes from the package", []given{enforced, ready, defaults, manifest()},
			whole("", map[string]any{
				"name": "etcd", "channel": "stable-1.2", "source": "community", "sourceNamespace": "olm",
				"installPlanApproval": "Automatic",
			})},
		{"an update changes what differs and nothing else",
			[]given{enforced, running, asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Channel = "beta" })},
			map[string]any{
				"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": live["metadata"],
				"spec": map[string]any{"name": "etcd", "channel": "beta", "source": "community", "sourceNamespace": "olm",
					"installPlanApproval": "Automatic"},
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := Evaluate(input(c.given...))
			if len(out.Actions) != 1 {
				t.Fatalf("%d actions", len(out.Actions))
			}
			if diff := cmp.Diff(c.want, out.Actions[0].Object); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}

// The API server's response to a write becomes the condition.
func TestEvaluateRefusedActions(t *testing.T) {
	for name, c := range map[string]struct {
		given []given
		want  []string
	}{
		"update": {[]given{enforced, policyGroup(targeting(`["a"]`)), group("scoped", nil),
			subscription("etcd", func(s *olm.Subscription) { s.Spec.Channel = "beta" })}, []string{
			`OperatorGroupMismatch the OperatorGroup shop/scoped does not match the policy: spec.targetNamespaces is not set, want ["a"]; it cannot be enforced: forbidden`,
			`SubscriptionMismatch the Subscription shop/etcd does not match the policy: spec.channel is "beta", want "stable-1.2"; it cannot be enforced: forbidden`,
		}},
		"create": {[]given{enforced, func(in *fixture) { in.NamespaceExists = false }}, []string{
			`InvalidPolicySpec the operator namespace "shop" does not exist; it cannot be created: forbidden`,
			"OperatorGroupMissing the required OperatorGroup was not found in namespace shop; it cannot be created: forbidden",
			"SubscriptionMissing the required Subscription shop/etcd was not found; it cannot be created: forbidden",
		}},
	} {
		var got []string
		for _, a := range Evaluate(input(c.given...)).Actions {
			f := a.Failed("forbidden")
			if f.Status != metav1.ConditionFalse || f.Type != a.Done.Type {
				t.Errorf("%s: %s %s", name, f.Type, f.Status)
			}
			got = append(got, f.Reason+" "+f.Message)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestEvaluateCreatedByPolicy(t *testing.T) {
	for _, a := range Evaluate(input(enforced)).Actions {
		if p := a.Done.Related[0].Properties; p == nil || p.CreatedByPolicy == nil || !*p.CreatedByPolicy {
			t.Errorf("%s is not shown as created by the policy", kindOf[a.Done.Type])
		}
	}
}

const lostMessage = "constraints not satisfiable: subscription etcd exists, clusterserviceversion etcd.v1.2.0 exists and is not referenced by a subscription, package etcd"

// lost is scenario 23: the ClusterServiceVersion exists, but the Subscription does not refer to it.
func lost(in *fixture) {
	for _, change := range []given{ready, subscription("etcd", failing(reasonUnsatisfiable, lostMessage),
		func(s *olm.Subscription) {
			s.Status.InstalledCSV, s.Status.CurrentCSV = "", ""
		}), csv("etcd.v1.2.0")} {
		change(in)
	}
}

func due(after time.Duration) given {
	return func(in *fixture) {
		at := metav1.NewTime(evaluatedAt.Add(after))
		in.Policy.Status.SubscriptionInterventionTime = &at
	}
}

func TestEvaluateIntervention(t *testing.T) {
	at := func(after time.Duration) *metav1.Time {
		at := metav1.NewTime(evaluatedAt.Add(after))
		return &at
	}
	for _, c := range []struct {
		name    string
		given   []given
		at      *metav1.Time
		after   time.Duration
		actions []string
	}{
		{"23 the clock starts", []given{enforced, lost}, at(30 * time.Second), 31 * time.Second, nil},
		{"23 the clock runs", []given{enforced, lost, due(12 * time.Second)}, at(12 * time.Second), 13 * time.Second,
			nil},
		{"23 the time has come", []given{enforced, lost, due(0)}, at(0), 0,
			[]string{"update status Subscription shop/etcd"}},
		{"R-LP-9 a time that passed long ago still counts", []given{enforced, lost, due(-time.Hour)}, at(-time.Hour), 0,
			[]string{"update status Subscription shop/etcd"}},
		{"a time far ahead is no reason to wait", []given{enforced, lost, due(time.Hour)}, at(30 * time.Second),
			31 * time.Second, nil},
		{"the version says no package", []given{enforced, lost, due(0), func(in *fixture) { in.CSVs[0].Package = "" }},
			at(0), 0, []string{"update status Subscription shop/etcd"}},
		{"the version is a copy", []given{enforced, lost, due(0), func(in *fixture) {
			in.CSVs[0].CopiedFrom, in.CSVs[0].Status.Phase, in.CSVs[0].Package = "elsewhere", "", ""
		}}, nil, 0, nil},
		{"R-LP-4 an informing policy never steps in", []given{lost, due(-time.Hour)}, nil, 0, nil},
		{"the Subscription has a version", []given{enforced, lost, due(-time.Hour),
			func(in *fixture) { in.Subscriptions[0].Status.CurrentCSV = "etcd.v1.2.0" }}, nil, 0, nil},
		{"the version is not there", []given{enforced, lost, due(-time.Hour), func(in *fixture) { in.CSVs = nil }}, nil,
			0, nil},
		{"the version is a copy by its reason", []given{enforced, lost, due(-time.Hour),
			func(in *fixture) { in.CSVs[0].Status.Reason = "Copied" }}, nil, 0, nil},
		{"the version belongs to another namespace", []given{enforced, lost, due(-time.Hour), func(in *fixture) {
			in.CSVs[0].Metadata.Annotations = olm.Annotations{OperatorNamespace: "elsewhere"}
		}}, nil, 0, nil},
		{"the version is of another package", []given{enforced, lost, due(-time.Hour),
			func(in *fixture) { in.CSVs[0].Package = "vault" }}, nil, 0, nil},
		{"nothing is lost", []given{enforced, running, due(-time.Hour)}, nil, 0, nil},
		{"M mayhave repairs as well", []given{enforced, lost, due(0), mayhave}, at(0), 0,
			[]string{"update status Subscription shop/etcd"}},
		{"M mayhave waits as long", []given{enforced, lost, mayhave}, at(30 * time.Second),
			31 * time.Second, nil},
		{"M an informing one does not", []given{lost, due(0), mayhave}, nil, 0, nil},
		{"M mustnothave of another version", []given{enforced, lost, due(0), listed("etcd.v9.9.9"),
			spec(func(s *policyv1beta2.OperatorPolicySpec) { s.ComplianceType = policyv1beta2.MustNotHave })}, at(0), 0,
			[]string{"update status Subscription shop/etcd"}},
		{"the Subscription does not match", []given{enforced, lost, due(-time.Hour),
			func(in *fixture) { in.Policy.Spec.Subscription.Channel = "beta" }}, nil, 0,
			[]string{"update Subscription shop/etcd"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := Evaluate(input(c.given...))
			if diff := cmp.Diff(c.at, out.Intervention); diff != "" {
				t.Errorf("intervention (-want +got):\n%s", diff)
			}
			if out.After != c.after {
				t.Errorf("again after %s, want %s", out.After, c.after)
			}
			var actions []string
			for _, a := range out.Actions {
				actions = append(actions, describeAction(a))
			}
			if diff := cmp.Diff(c.actions, actions); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEvaluateLostInforming: a policy that repairs nothing states what a user can do.
func TestEvaluateLostInforming(t *testing.T) {
	const byHand = "it lost track of its ClusterServiceVersion etcd.v1.2.0, which an enforced policy links again; without one: " +
		"kubectl patch subscriptions.operators.coreos.com etcd --namespace shop --subresource=status --type=merge " +
		`--patch '{"status":{"currentCSV":"etcd.v1.2.0"}}'`
	for _, s := range []scenario{
		{name: "M musthave", given: []given{lost}, want: map[string]string{TypeSubscription: "False ConstraintsNotSatisfiable"},
			says: map[string]string{TypeSubscription: "the constraints of the Subscription shop/etcd are not satisfiable; " +
				"see the message of its condition ResolutionFailed; " + byHand}},
		{name: "M mayhave", given: []given{lost, mayhave},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches"},
			says: map[string]string{TypeSubscription: "the Subscription shop/etcd is one that the policy allows; OLM does not resolve it " +
				"(ConstraintsNotSatisfiable), as its condition ResolutionFailed explains; " + byHand}},
	} {
		s.run(t)
	}
}

func TestFailureOutdated(t *testing.T) {
	const gone = "constraints not satisfiable: clusterserviceversion etcd.v1.1.0 exists and is not referenced by a subscription, subscription etcd exists"
	present := strings.ReplaceAll(gone, "1.1.0", "1.2.0")
	installed := []*olm.CSV{{Metadata: olm.ObjectMeta{Name: "etcd.v1.2.0"}}}
	for name, c := range map[string]struct {
		condition olm.SubscriptionCondition
		current   string
		want      bool
	}{
		"it is gone": {
			condition: olm.SubscriptionCondition{Type: TypeResolutionFailed, Status: "True", Message: gone},
			want:      true,
		},
		"it is installed": {
			condition: olm.SubscriptionCondition{Type: TypeResolutionFailed, Status: "True", Message: present},
		},
		"it is linked by now": {
			condition: olm.SubscriptionCondition{Type: TypeResolutionFailed, Status: "True", Message: present},
			current:   "etcd.v1.2.0",
			want:      true,
		},
		"another one is linked": {
			condition: olm.SubscriptionCondition{Type: TypeResolutionFailed, Status: "True", Message: present},
			current:   "etcd.v1.3.0",
		},
		"another cause": {
			condition: olm.SubscriptionCondition{Type: TypeResolutionFailed, Status: "True",
				Message: "no operators found in channel stable"},
		},
		"the condition passed": {
			condition: olm.SubscriptionCondition{Type: TypeResolutionFailed, Status: "False", Message: gone},
		},
		"another condition": {
			condition: olm.SubscriptionCondition{Type: TypeBundleUnpackFailed, Status: "True", Message: gone},
		},
	} {
		s := &olm.Subscription{Status: olm.SubscriptionStatus{CurrentCSV: c.current,
			Conditions: []olm.SubscriptionCondition{c.condition}}}
		if got := rules.FailureOutdated(s, installed); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestEvaluateInterventionObject(t *testing.T) {
	in := input(enforced, lost, due(0))
	out := Evaluate(in)
	want := map[string]any{"currentCSV": "etcd.v1.2.0", "lastUpdated": "2026-03-01T12:00:00Z"}
	if diff := cmp.Diff(want, out.Actions[0].Object["status"]); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if in.Namespace.Subscriptions()[0].Status.CurrentCSV != "" || out.Actions[0].Live["status"] != nil {
		t.Error("the observed object was changed")
	}
	for _, f := range out.Conditions {
		if f.Type == TypeSubscription && !strings.HasSuffix(f.Message,
			"it lost track of its ClusterServiceVersion etcd.v1.2.0 and is linked with it again at 2026-03-01T12:00:00Z") {
			t.Error(f.Message)
		}
	}
	f := out.Actions[0].Failed("forbidden")
	if want := "the Subscription shop/etcd lost track of its ClusterServiceVersion etcd.v1.2.0; it cannot be linked again: forbidden"; f.Message != want {
		t.Error(f.Message)
	}
}

func TestMentioned(t *testing.T) {
	e := newEvaluation(input(subscription("etcd-sub")), &wanted{name: "etcd", namespace: "shop"})
	for message, want := range map[string]bool{
		"subscription etcd-sub": true, "subscription etcd-sub exists": true, "x subscription shop/etcd-sub, y": true,
		"package etcd: none":      true,
		"package shop/etcd\nmore": true, "subscription etcd-sub-2, subscription etcd-sub exists": true,
		"": false, "subscription etcd-sub-2 exists": false, "package etcd-operator": false, "package olm/etcd": false,
		"Package etcd": false, "subscription": false,
	} {
		if got := e.mentioned(message); got != want {
			t.Errorf("%q: %t", message, got)
		}
	}
}
