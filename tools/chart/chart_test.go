package chart_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/tools/chart"
)

func TestLint(t *testing.T) {
	for _, mode := range []string{"self-managed", "cert-manager"} {
		// also without the account of OLM
		mustOutput(t, helm, "lint", "--strict", checkout.Chart(), "--set", "certificates.mode="+mode)
		mustOutput(t, helm, "lint", "--strict", checkout.Chart(), "--set", setOLM+",certificates.mode="+mode)
	}
}

// refused are values that users might set, and what helm reports of them.
type refused map[string]struct{ values, want string }

// TestRefusedValues sets invalid values that users might set, and checks the error of helm.
func TestRefusedValues(t *testing.T) {
	bySchema := refused{
		"misspelt":                 {"repicas: 3", "additional properties 'repicas' not allowed"},
		"misspelt further down":    {"log: {lvel: info}", "additional properties 'lvel' not allowed"},
		"another log level":        {"log: {level: loud}", "at '/log/level': value must be one of 'debug', 'info', 'warn', 'error'"},
		"another source":           {"certificates: {mode: manual}", "value must be one of 'self-managed', 'cert-manager', 'secret'"},
		"a key in place of the CA": {"certificates: {mode: secret, secret: {name: tls, caBundle: '-----BEGIN PRIVATE KEY-----'}}", "at '/certificates/secret/caBundle'"},
		"a probe of another endpoint": {"readinessProbe: {httpGet: {path: /, port: 80}}",
			"additional properties 'httpGet' not allowed"},
		"another policy":             {"webhooks: {failurePolicy: fail}", "value must be one of 'Fail', 'Ignore'"},
		"another owner":              {"crds: {operatorPolicy: theirs}", "value must be one of 'managed', 'external'"},
		"no replica":                 {"replicas: 0", "at '/replicas': minimum"},
		"a number in quotes":         {`replicas: "3"`, "at '/replicas': got string, want integer"},
		"a digest without algorithm": {"image: {digest: 0123}", "at '/image/digest'"},
		"OLM is a list": {`olm: {identity: ["system:serviceaccount:a:b"]}`,
			"at '/olm/identity': got array, want string"},
		"OLM is no service account": {`olm: {identity: olm@example.com}`, "at '/olm/identity'"},
		"a way out of the expression": {`olm: {identity: "system:serviceaccount:a:b' || true || '"}`,
			"at '/olm/identity'"},
		"namespaces by pattern": {`policy: {excludedNamespaces: ["team-*"]}`,
			"at '/policy/excludedNamespaces/0'"},
		"every look-up": {`policy: {lookupRules: [{apiGroups: [""], resources: ["*"], verbs: [get]}]}`,
			"at '/policy/lookupRules/0/resources/0'"},
		"every verb":               {`policy: {lookupRules: [{apiGroups: [""], resources: [secrets], verbs: ["*"]}]}`, "at '/policy/lookupRules/0/verbs/0'"},
		"every template":           {`ordering: {rules: [{apiGroups: [example.com], resources: ["*"], verbs: [create]}]}`, "at '/ordering/rules/0/resources/0'"},
		"every group":              {`ordering: {rules: [{apiGroups: ["*"], resources: [widgets], verbs: [create]}]}`, "at '/ordering/rules/0/apiGroups/0'"},
		"every verb for templates": {`ordering: {rules: [{apiGroups: [example.com], resources: [widgets], verbs: ["*"]}]}`, "at '/ordering/rules/0/verbs/0'"},
		"a right to grant rights":  {`ordering: {rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [escalate]}]}`, "at '/ordering/rules/0/verbs/0'"},
		"guards that are let go": {`ordering: {pendingGuards: keep}`,
			"at '/ordering/pendingGuards': value must be one of 'suspend', 'delete'"},
		"no unit":               {"certificates: {selfManaged: {caLifetime: 365d}}", "at '/certificates/selfManaged/caLifetime'"},
		"no seconds":            {"drain: {timeout: 2m}", "at '/drain/timeout'"},
		"a secret without name": {"imagePullSecrets: [{secret: a}]", "at '/imagePullSecrets/0'"},
		"a registry with a scheme": {"global: {imageRegistry: 'https://mirror.example'}",
			"at '/global/imageRegistry'"},
		"an argument without name":    {"extraArgs: [debug]", "at '/extraArgs/0'"},
		"arguments as one":            {"extraArgs: --log-level=debug", "at '/extraArgs': got string, want array"},
		"variables as a map":          {"extraEnv: {A: b}", "at '/extraEnv': got object, want array"},
		"a variable that is a number": {"extraEnv: [{name: A, value: 1}]", "at '/extraEnv/0/value': got number, want string"},
		"an annotation without quotes": {"commonAnnotations: {a: true}",
			"at '/commonAnnotations/a': got boolean, want string"},
	}
	// The schema refuses all that is wrong at once: values that set other keys go together.
	for left := bySchema; len(left) > 0; {
		together, next := map[string]string{}, refused{}
		now := refused{}
		for name, test := range left {
			key, _, _ := strings.Cut(test.values, ":")
			if _, ok := together[key]; ok {
				next[name] = test
				continue
			}
			together[key], now[name] = test.values, test
		}
		_, err := render(t.Context(), strings.Join(slices.Collect(maps.Values(together)), "\n"))
		for name, test := range now {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: got error %v\nwant it to say %s", name, err, test.want)
			}
		}
		left = next
	}
	for name, test := range (refused{
		"a certificate of no Secret": {"certificates: {mode: secret}",
			"set certificates.secret.name to a Secret with tls.crt and tls.key"},
		"a certificate without its CA": {"certificates: {mode: secret, secret: {name: tls}}",
			"set certificates.secret.caBundle, or certificates.secret.caAnnotations"},
		"no account": {"serviceAccount: {create: false}", "set serviceAccount.name to the account that the pods run as"},
		"too little time to stop": {"terminationGracePeriodSeconds: 30",
			"terminationGracePeriodSeconds 30 is less than drain.delay and drain.timeout, 105 seconds"},
		"other names":       {"nameOverride: gate", "names of objects are fixed"},
		"another namespace": {"namespaceOverride: gate", "set --namespace"},
		"an autoscaler":     {"autoscaling: {enabled: true}", "set replicas"},
		"no account is OLM": {`olm: {identity: ""}`,
			"there is no Deployment olm-operator in namespaces olm and openshift-operator-lifecycle-manager, or helm was not to ask the cluster"},
		"how to find OLM": {`olm: {identity: ""}`,
			"set olm.identity to the account that OLM runs as, system:serviceaccount:NAMESPACE:NAME. This prints it: kubectl get deployments --all-namespaces"},
		"OLM twice": {`olm: {identities: [a, b]}`,
			"olm.identities has become olm.identity, which is exactly one account: set olm.identities to null"},
		"OLM as it was": {`olm: {identity: "system:serviceaccount:a:b", identities: []}`,
			"olm.identities has become olm.identity"},
		"secrets of the image": {"image: {pullSecrets: [a]}",
			"value image.pullSecrets does not exist in this chart: set imagePullSecrets"},
		"two registries": {"image: {repository: registry.example/a/b}",
			"image.repository registry.example/a/b begins with a registry: set image.registry to registry.example, and image.repository to a/b"},
		"a variable of the chart": {"extraEnv: [{name: POD_NAMESPACE, value: a}]",
			"extraEnv: POD_NAMESPACE is set by the chart"},
		"the add-on's policies, and our ordering": {"crds: {operatorPolicy: external}",
			"crds.operatorPolicy is external: who owns OperatorPolicies reconciles Policies as well, so set ordering.enabled to false"},
		"a misspelt service account": {`olm: {identity: "system:serviceaccounts:olm:a"}`,
			"is not the user name of a service account: set olm.identity to the account that OLM runs as"},
		"monitors of both kinds": {"metrics: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}}",
			"would scrape every pod twice"},
		"a PodMonitor without token": {"metrics: {secure: true, podMonitor: {enabled: true}}",
			"metrics.podMonitor.authorization is required with metrics.secure"},
		"a CA that is elsewhere": {"metrics: {secure: true, serviceMonitor: {enabled: true, namespace: monitoring}}",
			"metrics.serviceMonitor.tlsConfig is required with metrics.secure and metrics.serviceMonitor.namespace"},
		"a CA that is elsewhere, for pods": {
			"metrics: {secure: true, podMonitor: {enabled: true, namespace: monitoring, authorization: {credentials: {name: a, key: b}}}}",
			"metrics.podMonitor.tlsConfig is required with metrics.secure and metrics.podMonitor.namespace"},
		"an alert that does not exist": {"metrics: {prometheusRule: {enabled: true, disabled: [OpgateUp]}}",
			"metrics.prometheusRule.disabled: there is no alert OpgateUp"},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := render(t.Context(), test.values); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v\nwant it to say %s", err, test.want)
			}
		})
	}
}

// TestEarlierValues renders without values that releases before this one did not have, as helm upgrade --reuse-values
// does: nothing differs from the defaults.
func TestEarlierValues(t *testing.T) {
	got := mustRender(t, `{service: null, livenessProbe: null, readinessProbe: null, strategy: null, dnsPolicy: null, dnsConfig: null,
  extraVolumes: null, extraVolumeMounts: null, extraContainers: null, terminationGracePeriodSeconds: null,
  serviceAccount: {create: null, name: null}, metrics: {service: null, profiling: null, serviceMonitor: {authorization: null}},
  certificates: {secret: null}}`)
	if diff := cmp.Diff(defaults, got); diff != "" {
		t.Errorf("rendered (-defaults +got):\n%s", diff)
	}
}

// TestNoWildcards looks through every role, with all that values may add.
func TestNoWildcards(t *testing.T) {
	roles := rolesOf(defaults)
	if len(roles) < 8 {
		t.Fatalf("there are only %d roles", len(roles))
	}
	// RBAC rules that can name their resources do: secrets most of all.
	named := []string{"secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
	for name, rules := range roles {
		for _, rule := range rules {
			if all := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.ResourceNames,
				rule.NonResourceURLs); slices.ContainsFunc(all,
				func(s string) bool { return strings.Contains(s, "*") }) {
				t.Errorf("%s has a wildcard: %v", name, rule)
			}
			if slices.Contains(rule.Verbs, "override") || slices.Contains(rule.Verbs, "escalate") ||
				slices.Contains(rule.Verbs, "bind") {
				t.Errorf("%s has a verb that is for an administrator to grant: %v", name, rule)
			}
			if slices.ContainsFunc(rule.Resources, func(r string) bool { return slices.Contains(named, r) }) &&
				len(rule.ResourceNames) == 0 && !slices.Equal(rule.Verbs, []string{"create"}) {
				t.Errorf("%s names no objects: %v", name, rule)
			}
		}
	}
	for name, binding := range of[*rbacv1.ClusterRoleBinding](defaults) {
		if name == "opgate-constraint-reader" {
			continue // see TestConstraintReader
		}
		same(t, name, binding.Subjects,
			[]rbacv1.Subject{{Kind: "ServiceAccount", Name: "opgate", Namespace: namespace}})
	}
}

// TestUserRoles looks at what people get without being asked. Any user who may write a policy decides what is installed
// in the namespace that it names, so those who may edit some namespace do not.
func TestUserRoles(t *testing.T) {
	for role, want := range map[string]bool{"view": true, "edit": false, "admin": false} {
		same(t, role, aggregated(t, defaults, role), want)
	}
	read := []string{"get", "list", "watch"}
	write := append(slices.Clone(read), "create", "update", "patch", "delete")
	all := append(slices.Clone(write), "deletecollection")
	// Constraints bind every namespace: who may write policies in one may not write them.
	for role, verbs := range map[string]struct{ policies, constraints []string }{
		"opgate-view": {read, read}, "opgate-edit": {write, read}, "opgate-admin": {all, all},
	} {
		same(t, role, one[*rbacv1.ClusterRole](t, defaults, role).Rules, []rbacv1.PolicyRule{
			{APIGroups: []string{"policy.open-cluster-management.io"},
				Resources: []string{"operatorpolicies", "policies", "policysets"}, Verbs: verbs.policies},
			{APIGroups: []string{"operators.coreos.com"}, Resources: []string{"constraints"}, Verbs: verbs.constraints},
		})
	}
}

// aggregated reports whether a role is aggregated to the role of Kubernetes with the same name.
func aggregated(t *testing.T, o objects, role string) bool {
	t.Helper()
	return one[*rbacv1.ClusterRole](t, o, "opgate-"+role).Labels["rbac.authorization.k8s.io/aggregate-to-"+role] ==
		"true"
}

// TestApprover looks at the role of those who consent to changes without writing policies. It grants nothing until it
// is bound.
func TestApprover(t *testing.T) {
	same(t, "rules", one[*rbacv1.ClusterRole](t, defaults, "opgate-approver").Rules, []rbacv1.PolicyRule{
		{APIGroups: []string{"policy.open-cluster-management.io"}, Resources: []string{"operatorpolicies"},
			Verbs: []string{"get", "list", "watch", "approve"}},
		{APIGroups: []string{"operators.coreos.com"}, Resources: []string{"installplans"},
			Verbs: []string{"get", "list", "watch", "patch"}},
	})
	for _, binding := range of[*rbacv1.ClusterRoleBinding](defaults) {
		if binding.RoleRef.Name == "opgate-approver" {
			t.Errorf("ClusterRoleBinding %s grants it to %v", binding.Name, binding.Subjects)
		}
	}
}

// TestReader looks at the role of those who judge by a cluster: it writes nothing, and reads all that the gate judges
// by but the contents of bundles. It grants nothing until it is bound.
func TestReader(t *testing.T) {
	role := one[*rbacv1.ClusterRole](t, defaults, "opgate-reader")
	may := func(group, resource string) bool {
		return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) &&
				slices.Contains(r.Verbs, "list")
		})
	}
	for _, rule := range role.Rules {
		if slices.ContainsFunc(rule.Verbs, func(verb string) bool { return verb != "get" && verb != "list" }) {
			t.Errorf("it does more than read: %v", rule)
		}
	}
	for _, kind := range snapshot.Kinds() {
		if judges := kind.Readers != snapshot.Leader; may(kind.Group, kind.Resource) != judges {
			t.Errorf("list %s: %t, want %t", kind.Resource, !judges, judges)
		}
	}
	for _, binding := range of[*rbacv1.ClusterRoleBinding](defaults) {
		if binding.RoleRef.Name == "opgate-reader" {
			t.Errorf("ClusterRoleBinding %s grants it to %v", binding.Name, binding.Subjects)
		}
	}
}

// TestConstraintReader looks at the one thing that everybody may do who is logged in.
func TestConstraintReader(t *testing.T) {
	same(t, "rules", one[*rbacv1.ClusterRole](t, defaults, "opgate-constraint-reader").Rules, []rbacv1.PolicyRule{{
		APIGroups: []string{"operators.coreos.com"}, Resources: []string{"constraints"},
		Verbs: []string{"get", "list", "watch"},
	}})
	binding := one[*rbacv1.ClusterRoleBinding](t, defaults, "opgate-constraint-reader")
	same(t, "role", binding.RoleRef.Name, "opgate-constraint-reader")
	same(t, "subjects", binding.Subjects,
		[]rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "Group", Name: "system:authenticated"}})
}

// TestPodSecurity asks the admission plugin of Kubernetes whether the pod meets the standard "restricted".
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(o objects) []string {
		template := deploymentOf(t, o).Spec.Template
		var refused []string
		for _, result := range evaluator.EvaluatePod(podsecurity.LevelVersion{Level: podsecurity.LevelRestricted,
			Version: podsecurity.LatestVersion()}, &template.ObjectMeta, &template.Spec) {
			if !result.Allowed {
				refused = append(refused, result.ForbiddenReason+": "+result.ForbiddenDetail)
			}
		}
		return refused
	}
	for _, values := range []string{"", "certificates: {mode: cert-manager}"} {
		if refused := check(mustRender(t, values)); len(refused) > 0 {
			t.Errorf("with values %q: %q", values, refused)
		}
	}
	if refused := check(mustRender(t, "hostNetwork: true")); len(refused) == 0 {
		t.Error("nothing is refused with hostNetwork, so nothing is checked")
	}
	if read := container(t, defaults).SecurityContext.ReadOnlyRootFilesystem; read == nil || !*read {
		t.Error("the root file system can be written to")
	}
}

// TestFlags runs the server with the arguments that it gets in a pod. Its only error may be that there is no cluster.
func TestFlags(t *testing.T) {
	programs := cluster.Programs{Built: os.Getenv(cluster.ProgramsVariable), Dir: t.TempDir(), Log: os.Stderr}
	binary, err := programs.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string]string{
		"self-managed": "{policy: {defaultNamespace: operators}}",
		"cert-manager": "certificates: {mode: cert-manager}",
		"others":       "{policy: {approvalMode: deny, ungoverned: hold, backgroundLoop: {enabled: false}}, log: {level: error, format: console}, drain: {delay: 0s}}",
		"ordering":     "ordering: {enabled: false, pendingGuards: delete, gatekeeper: true}",
	} {
		var args []string
		for _, arg := range container(t, mustRender(t, values)).Args {
			args = append(args, strings.ReplaceAll(arg, "$(POD_NAMESPACE)", namespace))
		}
		nowhere := filepath.Join(t.TempDir(), "kubeconfig")
		out, err := output(t, binary, append(args, "--kubeconfig="+nowhere)...)
		if err == nil || !strings.Contains(out, "find the API server") {
			t.Errorf("%s: with %q it says %v\n%s", name, args, err, out)
		}
	}
}

// TestReleaseFits measures what a release takes of the Secret that helm keeps it in, which may have 1 MiB. A chart that
// has outgrown it cannot be installed at all.
func TestReleaseFits(t *testing.T) {
	text := mustOutput(t, helm, "install", "opgate", checkout.Chart(), "--namespace", namespace, "--dry-run=client",
		"--set", setOLM, "--output", "json")
	var release struct {
		Chart    map[string]any `json:"chart"`
		Manifest string         `json:"manifest"`
	}
	if err := json.Unmarshal([]byte(text), &release); err != nil {
		t.Fatal(err)
	}
	if len(release.Manifest) < 50_000 || release.Chart["files"] == nil {
		t.Fatal("this is not all that helm keeps")
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	size := base64.StdEncoding.EncodedLen(packed.Len())
	t.Logf("a release takes %d KiB", size/1024)
	if limit := 256 * 1024; size > limit {
		t.Errorf("a release takes %d bytes, want at most %d, a quarter of what a Secret holds", size, limit)
	}
}

// TestNotes reads what helm prints after an installation.
func TestNotes(t *testing.T) {
	notes := func(values ...string) string {
		args := []string{"install", "opgate", checkout.Chart(), "--namespace", namespace, "--dry-run=client", "--set",
			setOLM}
		for _, value := range values {
			args = append(args, "--set", value)
		}
		_, text, ok := strings.Cut(mustOutput(t, helm, args...), "\nNOTES:\n")
		if !ok {
			t.Fatal("there are no notes")
		}
		return text
	}
	for text, wants := range map[string][]string{
		notes(): {"kubectl rollout status deployment/opgate --namespace gate",
			"helm uninstall opgate --namespace gate", "policies and constraints stay", `"strategy":"None"`,
			"OLM is " + chart.OLM},
		notes("ordering.pendingGuards=delete"): {"OperatorPolicies, Constraints, Policies and PolicySets from now on",
			"WARNING: ordering.pendingGuards is delete"},
		notes("ordering.enabled=false"): {"OperatorPolicies and Constraints from now on"},
		notes("crds.keep=false", "webhooks.failurePolicy=Ignore",
			"policy.excludedNamespaces={a,b}"): {"policies and constraints are deleted as well",
			"WARNING: webhooks.failurePolicy is Ignore", "besides gate: a, b"},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("the notes do not say %q:\n%s", want, text)
			}
		}
	}
}

// TestDocumentedReleases wants the Application and the HelmRelease in docs/install.md to have values that the chart
// accepts, and to wait for one another and retry.
func TestDocumentedReleases(t *testing.T) {
	field := func(kind string, path ...string) string {
		t.Helper()
		text, err := chart.Documented(checkout, kind, path...)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	mustRender(t, field("Application", "source", "helm", "valuesObject"))
	mustRender(t, field("HelmRelease", "values"))
	same(t, "retries", strings.TrimSpace(field("Application", "syncPolicy", "retry", "limit")), "10")
	same(t, "retries", strings.TrimSpace(field("HelmRelease", "install", "remediation", "retries")), "10")
}
