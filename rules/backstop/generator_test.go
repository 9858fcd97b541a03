package backstop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

type object = map[string]any

// world generates policies, the state of a namespace, and writes to it. Everything repeats for a seed.
type world struct {
	*rand.Rand
	policies []*operatorpolicy.Policy
}

func pick[T any](w *world, from ...T) T { return from[w.IntN(len(from))] }

func (w *world) chance(percent int) bool { return w.IntN(100) < percent }

func (w *world) pkg() string { return pick(w, "etcd", "etcd", "vault", "grafana", "foreign") }

func (w *world) version() string {
	return pick(w, "1.0.0", "1.1.0", "1.10.0", "2.0.0", "2.0.0-rc.1", "3.0.0+build", "nonsense", "")
}

func (w *world) csv(pkg, version string) string {
	if w.chance(5) {
		return pick(w, "ETCD.v1.0.0", "etcd.v1.0.0 ", "a'b\\c\n{{}}", "\u202eetcd", strings.Repeat("x", 400), "")
	}
	return pkg + ".v" + version
}

// digest is what binds an entry of spec.versions to contents, or what ends the path of a bundle image.
func (w *world) digest() string {
	if w.chance(70) {
		return ""
	}
	return "@sha256:" + strings.Repeat(pick(w, "a", "b"), 64)
}

func (w *world) namespace() string {
	return pick(w, "shop", "shop", "shop", "shop", "shop", "informed", "free")
}

// addPolicies makes some policies, of each kind.
func (w *world) addPolicies() {
	for i := range 1 + w.IntN(5) {
		op := &policyv1beta2.OperatorPolicy{}
		op.Namespace, op.Name = "policies", fmt.Sprintf("p%d", i)
		pkg := w.pkg()
		op.Spec = spec{RemediationAction: policyv1beta2.Enforce,
			UpgradeApproval: policyv1beta2.UpgradeApprovalAutomatic,
			ComplianceType: pick(w, policyv1beta2.MustHave, policyv1beta2.MustHave, policyv1beta2.MayHave,
				policyv1beta2.MustNotHave),
			Subscription: policyv1beta2.SubscriptionTemplate{Name: pkg, Namespace: "shop"}}
		if w.chance(15) {
			op.Spec.RemediationAction = policyv1beta2.Inform
			op.Spec.Subscription.Namespace = pick(w, "shop", "informed")
		}
		if w.chance(60) {
			for range 1 + w.IntN(14) {
				op.Spec.Versions = append(op.Spec.Versions, pkg+".v"+
					pick(w, "1.0.0", "1.1.0", "2.0.0", fmt.Sprintf("7.0.%d", w.IntN(100)))+w.digest())
			}
		}
		if w.chance(30) {
			op.Spec.VersionRange = pick(w, ">=1.0.0 <2.0.0", "1.x", "!=1.1.0", "<1.0.0 || >=2.0.0", ">1.0.0",
				"=2.0.0-rc.1", "not a range")
		}
		if w.chance(20) {
			op.Spec.Subscription.StartingCSV = pkg + ".v" + pick(w, "1.0.0", "2.0.0")
		}
		if w.chance(20) {
			op.Spec.Subscription.Source = pick(w, "good", "evil")
		}
		if w.chance(10) {
			op.Spec.Subscription.Channel = pick(w, "stable", "{{ template }}")
		}
		if w.chance(15) {
			op.Spec.UpgradeApproval = policyv1beta2.UpgradeApprovalNone
		}
		if w.chance(35) {
			op.Spec.Exceptions = []policyv1beta2.Exception{w.exception(pkg), w.exception(pkg)}
		}
		if w.chance(10) {
			op.Annotations = map[string]string{metakey.Pending: "policies/first"}
		}
		p := rules.NewOperatorPolicy(op)
		p.Incomplete = false // one with template text is one that could not be completed
		w.policies = append(w.policies, p)
	}
	if w.chance(20) { // one that does not decode, so that its package, its namespace or both are not known
		known := &spec{RemediationAction: pick(w, "", policyv1beta2.Enforce, policyv1beta2.Inform)}
		known.Subscription = policyv1beta2.SubscriptionTemplate{Name: pick(w, "", "etcd"),
			Namespace: pick(w, "", "shop")}
		w.policies = append(w.policies, operatorpolicy.Unreadable("policies", "unreadable", known,
			errors.New("decode")))
	}
}

// now is when the gate judges and the policies are compiled.
var now = time.Date(2026, 11, 28, 22, 0, 0, 0, time.UTC)

// exception is one that is in force or has ended. Its names have no digest: of that the API server knows nothing.
func (w *world) exception(pkg string) policyv1beta2.Exception {
	return policyv1beta2.Exception{
		Versions: []string{pkg + ".v" + pick(w, "1.0.0", "1.1.0", "2.0.0"),
			pkg + ".v" + pick(w, "1.10.0", "3.0.0+build")},
		Rules: []string{pick(w, "bundle/version", "bundle/version-range", "bundle/mustnothave",
			"bundle/dependency-pending"),
			pick(w, "bundle/version", "bundle/version-range")},
		Reason:  "CVE-2026-1",
		Expires: now.Add(pick(w, time.Second, time.Hour, 0, -time.Hour)).Format(time.RFC3339),
	}
}

// concerns reports whether a policy governs something in a namespace.
func concerns(p *operatorpolicy.Policy, namespace string) bool {
	return p.AnyNamespace || p.Concerns() == namespace
}

// state is what the gate knows of the namespace besides the policies.
func (w *world) state(t testing.TB, namespace string, plan *olm.InstallPlan) *state.Namespace {
	c := state.NamespaceContents{Exists: true}
	for _, p := range w.policies {
		if concerns(p, namespace) {
			c.Policies = append(c.Policies, p)
		}
	}
	if w.chance(50) {
		for range w.IntN(3) {
			pkg := w.pkg()
			s := &olm.Subscription{Metadata: olm.ObjectMeta{Namespace: namespace, Name: pkg},
				Spec: olm.SubscriptionSpec{Package: pkg, Channel: "stable"}}
			s.Status.CurrentCSV = w.pkg() + ".v" + w.version()
			s.Status.InstalledCSV = pick(w, "", w.pkg()+".v"+w.version())
			c.Subscriptions = append(c.Subscriptions, s)
		}
	}
	if plan != nil {
		c.Plans = append(c.Plans, plan)
	}
	return state.NewNamespace(namespace, c)
}

// properties are those of a bundle, as OLM marshals them.
func (w *world) properties(pkg, version string) string {
	body := object{"packageName": pkg, "version": version}
	list := []object{{"type": "olm.package", "value": body}}
	if w.chance(20) {
		required := object{"type": "olm.package.required",
			"value": object{"packageName": w.pkg(), "versionRange": ">=1.0.0 <3.0.0"}}
		list = append([]object{required}, list...)
	}
	if w.chance(10) {
		list = append(list, object{"type": "olm.csv.metadata", "value": object{"annotations": object{
			"operatorframework.io/properties": `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"9.9.9"}}]}`}}})
	}
	return compact(ordered{{"properties", list}})
}

// hide rewrites properties so that a reader who does not decode them reads another package than OLM, or none
// (attacks-2, d1).
var hide = map[string]func(properties string) string{
	"white space": func(p string) string { return strings.ReplaceAll(p, ":", ": ") },
	"line feeds":  func(p string) string { return strings.ReplaceAll(p, "{", "{\n") },
	"value before type": func(p string) string {
		return regexp.MustCompile(`{"type":"olm.package","value":({[^}]*})}`).ReplaceAllString(p,
			`{"value":$1,"type":"olm.package"}`)
	},
	"escaped type": func(p string) string { return strings.ReplaceAll(p, `"olm.package"`, `"olm\u002epackage"`) },
	"escaped key":  func(p string) string { return strings.ReplaceAll(p, "packageName", `package\u004eame`) },
	"escaped name": func(p string) string {
		return strings.ReplaceAll(p, `"packageName":"e`,
			`"packageName":"\u0065`)
	},
	"key in other case": func(p string) string { return strings.ReplaceAll(p, "packageName", "PackageName") },
	"duplicate key": func(p string) string {
		return strings.ReplaceAll(p, `{"packageName"`, `{"packageName":"foreign","packageName"`)
	},
	"duplicate in case": func(p string) string {
		return strings.ReplaceAll(p, `{"packageName"`, `{"packageName":"foreign","PackageName"`)
	},
	"duplicate version": func(p string) string {
		return strings.ReplaceAll(p, `"version"`,
			`"version":"1.0.0","version"`)
	},
	"duplicate value": func(p string) string {
		return strings.ReplaceAll(p, `}}`,
			`},"value":{"packageName":"foreign"}}`)
	},
	"two packages": func(p string) string {
		return strings.Replace(p, `[`, `[{"type":"olm.package","value":{"packageName":"foreign","version":"1.0.0"}},`,
			1)
	},
	"no package": func(string) string { return `{"properties":[]}` },
	"an empty package": func(string) string {
		return `{"properties":[{"type":"olm.package","value":{"packageName":"","version":"1.0.0"}}]}`
	},
	"no JSON":       func(string) string { return `{"properties":[{"type":"olm.package","value":{` },
	"no annotation": func(string) string { return "" },
}

// compact is the JSON of a value in OLM's form: keys as in its types, "type" before "value".
func compact(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// ordered is a JSON object of which the keys keep their order.
type ordered []struct {
	key   string
	value any
}

func (o ordered) MarshalJSON() ([]byte, error) {
	parts := make([]string, len(o))
	for i, m := range o {
		parts[i] = compact(m.key) + ":" + compact(m.value)
	}
	return []byte("{" + strings.Join(parts, ",") + "}"), nil
}

// plan is an InstallPlan as OLM stores it, with some parts missing at times. The result reports whether each of its
// ClusterServiceVersions has properties.
func (w *world) plan(namespace string) (plan object, described bool) {
	var lookups, steps []any
	names := []any{}
	described = true
	for range w.IntN(4) {
		pkg, version := w.pkg(), w.version()
		name := w.csv(pkg, version)
		if w.chance(80) {
			names = append(names, name)
		}
		properties, catalog := w.properties(pkg, version), pick(w, "good", "good", "evil")
		kind := w.IntN(100)
		switch {
		case kind < 55:
			lookups = append(lookups, object{"identifier": name, "path": "registry/" + pkg + w.digest(), "replaces": "",
				"catalogSourceRef": object{"namespace": "olm", "name": catalog}, "properties": properties})
		case kind < 95:
			steps = append(steps, w.step(name, catalog, properties))
		default:
			described = false
			lookups = append(lookups, object{"identifier": name, "path": "", "replaces": "",
				"catalogSourceRef": object{}, "properties": ""})
		}
	}
	if w.chance(30) {
		steps = append(steps, object{"resolving": "x", "status": "Unknown",
			"resource": object{"group": "rbac.authorization.k8s.io", "kind": "Role", "name": "r", "manifest": "{}"}})
	}
	status := object{"phase": pick(w, olm.PhaseRequiresApproval, olm.PhaseRequiresApproval, olm.PhaseRequiresApproval,
		olm.PhaseInstalling,
		olm.PhaseComplete, olm.PhasePlanning, "")}
	if lookups != nil {
		status["bundleLookups"] = lookups
	}
	if steps != nil {
		status["plan"] = steps
	}
	return object{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "InstallPlan",
		"metadata": object{"namespace": namespace, "name": "install-x"},
		"spec": object{"approval": "Manual", "approved": w.chance(30), "generation": 1,
			"clusterServiceVersionNames": names},
		"status": status}, described
}

func (w *world) step(name, catalog, properties string) object {
	manifest := ordered{{"kind", "ClusterServiceVersion"}, {"apiVersion", "operators.coreos.com/v1alpha1"},
		{"metadata", ordered{{"name", name},
			{"annotations", ordered{{"alm-examples", `[{"a":"b"}]`}, {"operatorframework.io/properties", properties},
				{"operators.openshift.io/x", "y"}}[w.IntN(2) : 2+w.IntN(2)]}}}, {"spec", object{"version": "1.0.0"}}}
	return object{"resolving": name, "status": "Unknown",
		"resource": object{"group": "operators.coreos.com", "version": "v1alpha1",
			"kind": "ClusterServiceVersion", "name": name, "sourceName": catalog, "sourceNamespace": "olm",
			"manifest": compact(manifest)}}
}

func clone(t testing.TB, o object) object {
	t.Helper()
	var c object
	if err := json.Unmarshal([]byte(compact(o)), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func planOf(t testing.TB, o object) *olm.InstallPlan {
	t.Helper()
	plan, err := olm.DecodePlan([]byte(compact(o)))
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func headOf(t testing.TB, o object) *olm.InstallPlanHead {
	t.Helper()
	plan := planOf(t, o)
	return &olm.InstallPlanHead{Metadata: plan.Metadata, Spec: plan.Spec}
}
