package gate

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// way is one way to send a change to the API server.
type way struct {
	name, method, contentType string
	query                     url.Values
	// body is the request for a change, a merge patch, of a stored object.
	body func(stored *unstructured.Unstructured, change map[string]any) ([]byte, error)
	// conflicts is whether the API server itself may refuse a change of what another client has written (409).
	conflicts bool
}

// ways are all in which the API server takes an update.
func ways() []way {
	replaced := func(stored *unstructured.Unstructured, change map[string]any) any {
		return harness.MergePatch(stored.Object, change)
	}
	applied := func(stored *unstructured.Unstructured, change map[string]any) ([]byte, error) {
		return json.Marshal(harness.MergePatch(map[string]any{
			"apiVersion": stored.GetAPIVersion(), "kind": stored.GetKind(),
			"metadata": map[string]any{"name": stored.GetName(), "namespace": stored.GetNamespace()},
		}, change))
	}
	return []way{{
		name: "PUT", method: http.MethodPut, contentType: "application/json",
		body: func(stored *unstructured.Unstructured, change map[string]any) ([]byte, error) {
			return json.Marshal(replaced(stored, change))
		},
	}, {
		name: "PUT of YAML", method: http.MethodPut, contentType: "application/yaml",
		body: func(stored *unstructured.Unstructured, change map[string]any) ([]byte, error) {
			return yaml.Marshal(replaced(stored, change))
		},
	}, {
		name: "merge patch", method: http.MethodPatch, contentType: "application/merge-patch+json",
		body: func(_ *unstructured.Unstructured, change map[string]any) ([]byte, error) { return json.Marshal(change) },
	}, {
		name: "JSON patch", method: http.MethodPatch, contentType: "application/json-patch+json",
		body: func(_ *unstructured.Unstructured, change map[string]any) ([]byte, error) {
			return json.Marshal(operations("", change))
		},
	}, {
		name: "apply", method: http.MethodPatch, contentType: "application/apply-patch+yaml",
		query: url.Values{"fieldManager": {"intruder"}}, body: applied, conflicts: true,
	}, {
		name: "apply by force", method: http.MethodPatch, contentType: "application/apply-patch+yaml",
		query: url.Values{"fieldManager": {"intruder"}, "force": {"true"}}, body: applied,
	}}
}

// operations are a JSON patch that sets what a merge patch sets.
func operations(at string, change map[string]any) []map[string]any {
	var ops []map[string]any
	for _, key := range slices.Sorted(maps.Keys(change)) {
		path := at + "/" + strings.ReplaceAll(key, "/", "~1")
		if inner, ok := change[key].(map[string]any); ok {
			ops = append(ops, operations(path, inner)...)
			continue
		}
		ops = append(ops, map[string]any{"op": "add", "path": path, "value": change[key]})
	}
	return ops
}

// attack is a change that must not come to be.
type attack struct {
	name   string
	change map[string]any
	// subresource is where the change has an effect; everywhere else the API server drops it.
	subresource string
	// The field is set where the gate may also allow the write and correct it.
	mended bool
	// edits is the version in which the change is no attack.
	edits string
}

// matrix is the attacks on one object, and the objects that they are tried on.
type matrix struct {
	// target is governed, control has the same contents and is not; nil where there is no such thing.
	target, control *unstructured.Unstructured
	attacks         []attack
	users           []cluster.User
	// protected is what no attack may change.
	protected [][]string
}

// TestG7Bypass tries to get what is forbidden past the gate in every way in which the API server takes a write: every
// version and subresource that discovery knows, every verb and patch type, with and without dry run, as tenant and as
// admin. That the writes themselves are sound is shown where no policy governs: there all of them succeed.
func TestG7Bypass(t *testing.T) {
	e := harness.Shared(t)
	governed, free := e.NewNamespace(t), e.NewNamespace(t)
	// before the policy, since no plan brings it
	installed := e.Put(t, installedCSV(governed, harness.AllowedCSV, harness.AllowedVersion))
	e.Put(t, harness.OperatorPolicy(governed))
	e.Sync(t)
	tried := map[string]int{}
	for resource, m := range map[string]matrix{
		"installplans": {
			target:  e.Put(t, attenuated(harness.InstallPlan(governed, "target", harness.ForbiddenVersion))),
			control: e.Put(t, attenuated(harness.InstallPlan(free, "target", harness.ForbiddenVersion))),
			users:   []cluster.User{cluster.Tenant, cluster.Admin},
			protected: [][]string{
				{"spec", "approved"}, {"spec", "clusterServiceVersionNames"}, {"spec", "generation"},
				{"spec", "approval"}, {"status", "phase"}, {"status", "bundleLookups"}, {"status", "plan"},
				{"status", "attenuatedServiceAccountRef"},
			},
			attacks: planAttacks(governed),
		},
		"subscriptions": {
			target:  e.Put(t, harness.Subscription(governed, "target", harness.GoodCatalog, "Manual")),
			control: e.Put(t, harness.Subscription(free, "target", harness.GoodCatalog, "Manual")),
			users:   []cluster.User{cluster.Tenant, cluster.Admin},
			protected: [][]string{{"spec", "name"}, {"spec", "source"}, {"spec", "sourceNamespace"},
				{"spec", "startingCSV"}, {"spec", "installPlanApproval"}},
			attacks: []attack{
				{name: "foreign catalog", change: harness.Spec("source", harness.ForeignCatalog)},
				{name: "catalog in another namespace", change: harness.Spec("sourceNamespace", governed)},
				{name: "another package", change: harness.Spec("name", "prometheus")},
				{name: "forbidden first version", change: harness.Spec("startingCSV", harness.ForbiddenCSV)},
				{name: "automatic approval", change: harness.Spec("installPlanApproval", "Automatic"), mended: true},
				{
					name:   "approval that OLM takes for automatic",
					change: harness.Spec("installPlanApproval", ""),
					mended: true,
				},
			},
		},
		"operatorpolicies": {
			target:    e.Stored(t, harness.OperatorPolicy(governed)),
			users:     []cluster.User{cluster.Admin}, // others have no right to
			protected: [][]string{{"spec", "subscription"}, {"spec", "versions"}},
			attacks: []attack{
				{
					name:   "approval in other letters", // no mode in any version
					change: harness.Spec("subscription", map[string]any{"installPlanApproval": "manual"}),
				},
				// In v1beta2 not a field of policies; in v1beta1, which shows it, changing it is an edit.
				{
					name:   "approval by hand",
					edits:  harness.Earlier,
					change: harness.Spec("subscription", map[string]any{"installPlanApproval": "Manual"}),
				},
				{name: "unknown field", change: harness.Spec("subscription", map[string]any{"chanel": "stable"})},
				{name: "look-alike version", change: harness.Spec("versions", []any{"etcdoperator.v0.9\u20242"})},
			},
		},
		"constraints": {
			target: e.Put(t, warningConstraint("target")), // one that would refuse would do so in every namespace
			users:  []cluster.User{cluster.Admin},
			protected: [][]string{{"spec", "constraints"}, {"spec", "properties"}, {"spec", "constraint"},
				{"spec", "rules"}, {"spec", "offers"}},
			attacks: []attack{
				{name: "a rule that would run for a minute", change: harness.Spec("constraints", ruleForAMinute)},
				{name: "no JSON", change: harness.Spec("constraints", "[")},
				{name: "unknown field", change: harness.Spec("constraint", "[]")},
				{
					name:   "a list with a rule that would run for a minute",
					change: harness.Spec("rules", []any{map[string]any{"expression": expressionForAMinute}}),
				},
				{
					name:   "an unknown field of a rule",
					change: harness.Spec("rules", []any{map[string]any{"expression": "true", "acton": "warn"}}),
				},
				{name: "an offer out of shape", change: harness.Spec("offers",
					[]any{map[string]any{"type": "olm.label", "value": "secured"}})},
				{
					name:   "a property out of shape",
					change: harness.Spec("properties", `[{"type":"olm.label","value":"secured"}]`),
				},
			},
		},
		"clusterserviceversions": {
			target:  installed,
			control: e.Put(t, installedCSV(free, harness.AllowedCSV, harness.AllowedVersion)),
			users:   []cluster.User{cluster.Admin}, // tenants have no right to
			protected: [][]string{{"metadata", "annotations", "operatorframework.io/properties"},
				{"metadata", "labels"}, {"spec"}},
			attacks: []attack{
				{name: "other contents", change: harness.Spec("displayName", "evil")},
				{
					name: "other permissions",
					change: harness.Spec("install",
						map[string]any{"strategy": "deployment", "spec": map[string]any{"deployments": []any{},
							"clusterPermissions": []any{map[string]any{"serviceAccountName": "evil",
								"rules": []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"},
									"verbs": []any{"*"}}}}}}}),
				},
				{
					name: "another package",
					change: annotated("operatorframework.io/properties",
						propertiesOf("innocent", harness.AllowedVersion)),
				},
				{
					name:   "the label of a copy",
					change: map[string]any{"metadata": map[string]any{"labels": map[string]any{"olm.copiedFrom": "elsewhere"}}},
				},
				{name: "properties that cannot be read", change: annotated("operatorframework.io/properties", "[")},
			},
		},
	} {
		for version, subresources := range e.Discover(t, m.target.GroupVersionKind().Group, resource) {
			m.run(t, e, version.WithResource(resource), subresources, tried)
		}
	}
	tryCreations(t, e, tried)
	t.Logf("attempts: %v", tried)
	for _, outcome := range []string{refusedByGate, mendedByGate, withoutEffect, refusedByServer} {
		if tried[outcome] == 0 {
			t.Errorf("no attempt ended with %q", outcome)
		}
	}
}

const (
	expressionForAMinute = "properties.all(a, properties.all(b, properties.all(c, a.value != b.value || b.value != c.value)))"
	ruleForAMinute       = `[{"type":"olm.constraint","value":{"rule":"` + expressionForAMinute + `"}}]`
)

func warningConstraint(name string) *unstructured.Unstructured {
	return harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: %s}
spec: {constraints: '[{"type":"olm.constraint","value":{"rule":"true","action":{"id":"warn"}}}]'}
`, name)
}

// installedCSV is a ClusterServiceVersion as OLM writes it.
func installedCSV(namespace, name, version string) *unstructured.Unstructured {
	u := harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: %s, namespace: %s}
spec: {displayName: etcd, install: {strategy: deployment, spec: {deployments: []}}}
`, name, namespace)
	u.SetLabels(map[string]string{"app": "etcd"})
	u.SetAnnotations(map[string]string{"operatorframework.io/properties": propertiesOf("etcd", version)})
	return u
}

func propertiesOf(pkg, version string) string {
	return fmt.Sprintf(`{"properties":[{"type":"olm.package","value":{"packageName":%q,"version":%q}}]}`, pkg, version)
}

func annotated(key, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
}

func planAttacks(namespace string) []attack {
	forged := harness.InstallPlan(namespace, "target", harness.AllowedVersion).Object["status"].(map[string]any)
	step := harness.InstallPlan(namespace, "target", harness.ForbiddenVersion).Object["status"].(map[string]any)["plan"].([]any)[0].(map[string]any)
	resource := step["resource"].(map[string]any)
	resource["manifest"] = strings.Replace(resource["manifest"].(string), "etcd", "Etcd", 1)
	status := func(key string, value any) map[string]any {
		return map[string]any{"status": map[string]any{key: value}}
	}
	return []attack{
		{name: "approve", change: harness.Spec("approved", true)},
		{
			name: "approve under another name",
			change: map[string]any{"spec": map[string]any{"approved": true,
				"clusterServiceVersionNames": []any{harness.AllowedCSV}}},
		},
		{name: "rename", change: harness.Spec("clusterServiceVersionNames", []any{harness.AllowedCSV})},
		{name: "predict a generation", change: harness.Spec("generation", int64(2))},
		{name: "approve otherwise", change: harness.Spec("approval", "Automatic")},
		{name: "start", change: status("phase", "Installing"), subresource: "status"},
		{name: "hide", change: status("phase", "Complete"), subresource: "status"},
		{name: "forge bundles", change: status("bundleLookups", forged["bundleLookups"]), subresource: "status"},
		{name: "drop bundles", change: status("bundleLookups", []any{}), subresource: "status"},
		{name: "forge steps", change: status("plan", []any{step}), subresource: "status"},
		{name: "drop steps", change: status("plan", []any{}), subresource: "status"},
		{name: "install with other rights", subresource: "status",
			change: status("attenuatedServiceAccountRef",
				map[string]any{"namespace": "kube-system", "name": "strong"})},
	}
}

// attenuated is a plan whose steps OLM writes with the rights of a service account, instead of its own.
func attenuated(u *unstructured.Unstructured) *unstructured.Unstructured {
	u.Object["status"].(map[string]any)["attenuatedServiceAccountRef"] = map[string]any{"kind": "ServiceAccount",
		"namespace": u.GetNamespace(), "name": "weak"}
	return u
}

// Outcomes of an attempt.
const (
	refusedByGate   = "refused by the gate"
	mendedByGate    = "mended by the gate"
	refusedByServer = "refused by the API server"
	withoutEffect   = "without effect"
)

// run tries the attacks of a matrix on one version of a resource.
func (m *matrix) run(
	t *testing.T, e *harness.Env, resource schema.GroupVersionResource, subresources []string, tried map[string]int,
) {
	// Those that are not served must stay out of reach, too.
	for _, subresource := range append(slices.Clone(subresources), "scale", "approve") {
		known := slices.Contains(subresources, subresource)
		for n, pair := range m.pairs(subresource, resource.Version, known) {
			for _, by := range m.attempts(n) {
				name := fmt.Sprintf("%s as %s: %s of %s/%s in %s, dry run %t",
					pair.attack.name, by.user, pair.way.name, resource.Resource, subresource, resource.Version, by.dry)
				outcome, problem := m.try(t, e, resource, subresource, by, pair.way, &pair.attack)
				tried[outcome]++
				switch {
				case problem != "":
					t.Errorf(harness.Final+"%s: %s", name, problem)
				case !known && outcome != refusedByServer:
					t.Errorf("%s: %s, want no such thing", name, outcome)
				}
			}
		}
	}
}

// pair is an attack and the way in which it is tried.
type pair struct {
	attack attack
	way    way
}

// pairs returns each attack in each way, in the long form. Otherwise each attack comes once, and so does each way; one
// pair suffices where the API server drops the change, or does not serve the subresource.
func (m *matrix) pairs(subresource, version string, known bool) []pair {
	var effective, all []pair
	for _, attack := range m.attacks {
		if attack.edits == version {
			continue
		}
		for i, way := range ways() {
			all = append(all, pair{attack, way})
			if known && attack.subresource == subresource && i == 0 {
				effective = append(effective, pair{attack, way})
			}
		}
	}
	switch {
	case !known || len(effective) == 0:
		return all[:1]
	case *harness.Long:
		return all
	}
	pairs := make([]pair, max(len(effective), len(ways())))
	for i := range pairs {
		pairs[i] = pair{effective[i%len(effective)].attack, ways()[i%len(ways())]}
	}
	return pairs
}

// attempt is by whom an attack is tried in one way, and whether the write is stored.
type attempt struct {
	user cluster.User
	dry  bool
}

// attempts returns those of every user, with and without dry run, in the long form. Otherwise it returns the n-th of
// them: another one for the next way, and for the next attack.
func (m *matrix) attempts(n int) []attempt {
	var all []attempt
	for _, user := range m.users {
		all = append(all, attempt{user, true}, attempt{user, false})
	}
	if *harness.Long {
		return all
	}
	return all[n%len(all):][:1]
}

// try makes one attempt and returns its outcome, and what is wrong with it.
func (m *matrix) try(
	t *testing.T, e *harness.Env, resource schema.GroupVersionResource, subresource string,
	by attempt, way way, attack *attack,
) (outcome, problem string) {
	t.Helper()
	stored := func(u *unstructured.Unstructured) *unstructured.Unstructured {
		now, err := e.Clients[cluster.Admin].Resource(resource).Namespace(u.GetNamespace()).Get(t.Context(),
			u.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	before := stored(m.target)
	send := func(stored *unstructured.Unstructured, dry bool) harness.Answer {
		body, err := way.body(stored, attack.change)
		if err != nil {
			t.Fatal(err)
		}
		query := maps.Clone(way.query)
		if dry {
			query = harness.MergeQuery(query, url.Values{"dryRun": {"All"}})
		}
		path := harness.PathOf(resource, stored.GetNamespace(), stored.GetName(), subresource)
		return e.Clients[by.user].Must(t, harness.Request{
			Method:      way.method,
			Path:        path,
			Query:       query,
			ContentType: way.contentType,
			Body:        body,
		})
	}
	got := send(before, by.dry)
	after := stored(m.target)
	effective := subresource == attack.subresource

	if changed := m.changed(before, after); changed != "" {
		return withoutEffect, fmt.Sprintf("WRONG ALLOW: %s is stored (%s)", changed, got)
	}
	if by.dry && after.GetResourceVersion() != before.GetResourceVersion() {
		problem = "a dry run wrote something"
	}
	switch {
	case got.OK():
		outcome = withoutEffect
		if changed := m.changed(before, got.Object()); changed != "" {
			return outcome, "WRONG ALLOW: the answer has " + changed
		}
		if effective {
			outcome = mendedByGate
			if !attack.mended {
				problem = "it was let through, though without an effect"
			}
		}
	case got.Refused != "":
		outcome = refusedByGate
		if !effective {
			problem = "refused by the gate, though it has no effect here: " + got.Refused
		}
	default:
		outcome = refusedByServer
		if conflict := got.Code == http.StatusConflict && way.conflicts; effective && !conflict {
			problem = "never reached the gate: " + got.String()
		}
		if !effective {
			return outcome, problem
		}
	}
	if effective && (by.dry || !*harness.Long) && m.control != nil {
		if free := send(stored(m.control), true); !free.OK() && (free.Code != http.StatusConflict || !way.conflicts) {
			problem = "the same is refused where no policy governs, so it proves nothing: " + free.String()
		}
	}
	return outcome, problem
}

// changed names a protected field that differs, "" if none does.
func (m *matrix) changed(before, after *unstructured.Unstructured) string {
	for _, path := range m.protected {
		was, _, _ := unstructured.NestedFieldNoCopy(before.Object, path...)
		is, _, _ := unstructured.NestedFieldNoCopy(after.Object, path...)
		if !reflect.DeepEqual(harness.Normal(was), harness.Normal(is)) {
			return fmt.Sprintf("%s %v", strings.Join(path, "."), is)
		}
	}
	return ""
}
