package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/cmd/opgate/check"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/rules"
)

// kubernetes is the version of the cluster.
const kubernetes = "1.36.3"

// server responds like an API server that stores objects.
type server struct{ objects []*unstructured.Unstructured }

// resource returns the name of a kind in the API.
func resource(kind string) string {
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		return strings.ToLower(stem) + "ies"
	}
	return strings.ToLower(kind) + "s"
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
	if r.URL.Path == "/version" {
		answer(http.StatusOK, map[string]any{"gitVersion": "v" + kubernetes})
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := strings.Join(parts[1:min(3, len(parts))], "/")
	if parts[0] == "api" {
		group, parts = parts[1], append([]string{""}, parts...)
	}
	parts = parts[3:]
	namespace := ""
	if len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	items := []any{}
	for _, o := range s.objects {
		if len(parts) == 0 || o.GetAPIVersion() != group || resource(o.GetKind()) != parts[0] || namespace != "" &&
			o.GetNamespace() != namespace {
			continue
		}
		if len(parts) == 2 && o.GetName() == parts[1] {
			answer(http.StatusOK, o.Object)
			return
		}
		if field := r.URL.Query().Get("fieldSelector"); field == "" || field == "metadata.name="+o.GetName() {
			items = append(items, o.Object)
		}
	}
	if len(parts) != 1 {
		parts = append(parts, "")
		answer(http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
			"reason": "NotFound", "code": 404,
			"details": map[string]any{"name": parts[min(1, len(parts)-1)]}})
		return
	}
	answer(http.StatusOK, map[string]any{"apiVersion": group, "kind": "List",
		"metadata": map[string]any{"resourceVersion": "1"}, "items": items})
}

// documents returns the objects of a file.
func documents(t *testing.T, file string) (objects []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		if u.Object != nil {
			objects = append(objects, u)
		}
	}
	return objects
}

// start starts a server and returns a kubeconfig of it.
func start(t *testing.T, s *server) (kubeconfig string) {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return kubeconfigOf(t, srv.URL)
}

// kubeconfigOf writes a kubeconfig of a server.
func kubeconfigOf(t *testing.T, url string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],`+
		`"current-context":"c"}`, url)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// serve returns a kubeconfig of a server with the objects of a file.
func serve(t *testing.T, file string) (kubeconfig string, objects []*unstructured.Unstructured) {
	t.Helper()
	objects = documents(t, file)
	return start(t, &server{objects: objects}), objects
}

// run runs a command, and returns what it prints and its exit code.
func run(t *testing.T, cmd *cobra.Command, args ...string) (out string, code int) {
	t.Helper()
	var stdout bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(t.Context())
	var coded interface{ ExitCode() int }
	switch {
	case errors.As(err, &coded):
		code = coded.ExitCode()
		stdout.WriteString(err.Error())
	case err != nil:
		t.Fatal(err)
	}
	return stdout.String(), code
}

// command returns one of the commands.
func command(name string) *cobra.Command {
	all := Commands(time.Now)
	return all[slices.IndexFunc(all, func(c *cobra.Command) bool { return c.Name() == name })]
}

// judged is what why and check both print.
type judged struct {
	Kind, Namespace, Name, Decision string
	Reasons                         []inspect.Reason
	Edits                           []inspect.Edit
}

// TestWhyAgreesWithCheck asks why of each InstallPlan in a sample, from a server that has the objects of the sample,
// and compares with opgate check.
func TestWhyAgreesWithCheck(t *testing.T) {
	bundles, err := filepath.Glob("../../../manifests/samples/bundle-*.yaml")
	plans, alike := filepath.Glob("../../../manifests/samples/plan-*.yaml")
	if err = errors.Join(err, alike); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, sample := range slices.Concat(bundles, plans) {
		if strings.HasSuffix(sample, "-write.yaml") {
			continue // about who writes
		}
		t.Run(filepath.Base(sample), func(t *testing.T) {
			kubeconfig, _ := serve(t, sample)
			out, _ := run(t, check.Command(time.Now), "-f", sample, "-o", "json", "--kubernetes-version", kubernetes,
				"--as-if=approved-now")
			var want struct{ Items []judged }
			if err := json.Unmarshal([]byte(out), &want); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, w := range want.Items {
				if w.Kind != "InstallPlan" {
					continue
				}
				compared++
				out, code := run(t, command("why"), "installplan", w.Namespace+"/"+w.Name, "-o", "json", "--kubeconfig",
					kubeconfig)
				var got judged
				if err := json.Unmarshal([]byte(out), &got); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				if got.Decision != w.Decision || !slices.Equal(got.Reasons, w.Reasons) ||
					(code == 0) != (w.Decision == "Allow") {
					t.Errorf("exit code %d, %s %+v\nwant %s %+v", code, got.Decision, got.Reasons, w.Decision,
						w.Reasons)
				}
			}
		})
	}
	if compared < 15 {
		t.Errorf("%d plans were compared", compared)
	}
}

// TestEdits has the edit for each rule that one ends, and none for others.
func TestEdits(t *testing.T) {
	wanted := map[string]string{
		"bundle-catalog-digest-hold": "spec.catalog.accepted",
		"bundle-catalog-jump-hold":   "spec.catalog.accepted",
		"bundle-version-deny":        `add "etcdoperator.v0.9.4" to spec.versions`,
		"bundle-version-range-deny":  "spec.versionRange: ",
		"bundle-catalog-deny":        "spec.subscription.source: ",
		"bundle-channel-hold":        "spec.subscription.channel: ",
		"bundle-upgrade-hold":        "spec.upgradeApproval: Automatic",
		"bundle-deprecated-hold":     "spec.deprecated: Allow",
		"bundle-consent-hold":        "spec.consent.accepted",
		"bundle-mustnothave-deny":    "",
		"bundle-constraint-deny":     "",
		"bundle-unknown-hold":        "",
	}
	for _, r := range rules.Rules() {
		sample := strings.ReplaceAll(string(r.ID), "/", "-")
		if r.Edit != nil && wanted[sample+"-deny"]+wanted[sample+"-hold"] == "" {
			t.Errorf("the edit of %s is not tested", r.ID)
		}
	}
	for sample, want := range wanted {
		t.Run(sample, func(t *testing.T) {
			kubeconfig, objects := serve(t, "../../../manifests/samples/"+sample+".yaml")
			for _, o := range objects {
				if o.GetKind() != "InstallPlan" {
					continue
				}
				out, code := run(t, command("why"), "installplan", o.GetNamespace()+"/"+o.GetName(), "-o", "json",
					"--kubeconfig", kubeconfig)
				var got judged
				if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitRefused {
					t.Fatalf("exit code %d, %v: %s", code, err, out)
				}
				if len(got.Edits) > 0 && strings.Contains(got.Edits[0].Command, `\u00`) {
					t.Errorf("escaped: %s", got.Edits[0].Command)
				}
				if want == "" && len(got.Edits) > 0 || want != "" &&
					(len(got.Edits) != 1 || !strings.Contains(got.Edits[0].Edit, want)) {
					t.Errorf("got %+v, want %q", got.Edits, want)
				}
			}
		})
	}
}

// TestWhyOfKinds asks about the other kinds in samples.
func TestWhyOfKinds(t *testing.T) {
	for _, tc := range []struct {
		sample, kind string
		code         int
		says         []string
	}{
		{"subscription-channel-deny", "Subscription", exitRefused,
			[]string{"Deny subscription", "(subscription/channel)", "governed by OperatorPolicy"}},
		{"subscription-allow", "Subscription", 0, []string{"Allow subscription"}},
		{"constraint-violated-warn", "Constraint", 0, []string{"Allow constraint", "warning: ", "(constraint/violated)"}},
		{"operatorpolicy-pending-warn", "OperatorPolicy", 0,
			[]string{"Allow operatorpolicy", "(operatorpolicy/pending)", "governs package etcd"}},
		{"operatorpolicy-overlap-warn", "OperatorPolicy", 0,
			[]string{"(operatorpolicy/overlap)",
				"installs, upgrades and approves nothing, because several enforced policies " +
					"govern package etcd in namespace operatorpolicy-overlap-warn: policies/operatorpolicy-overlap-warn-catalog, policies/operatorpolicy-overlap-warn-versions; leave one of them enforced"}},
		{"policy-dependency-cycle-deny", "Policy", exitRefused,
			[]string{"Deny policy", "(policy/dependency-cycle)", "would wait for itself"}},
		{"bundle-version-write", "ClusterServiceVersion", exitRefused,
			[]string{"Deny clusterserviceversion", "(bundle/version)"}},
	} {
		kubeconfig, objects := serve(t, "../../../manifests/samples/"+tc.sample+".yaml")
		i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == tc.kind })
		if i < 0 {
			t.Errorf("%s has no %s", tc.sample, tc.kind)
			continue
		}
		name := strings.TrimPrefix(objects[i].GetNamespace()+"/"+objects[i].GetName(), "/")
		out, code := run(t, command("why"), tc.kind, name, "--kubeconfig", kubeconfig)
		if code != tc.code {
			t.Errorf("%s: exit code %d, want %d: %s", tc.sample, code, tc.code, out)
		}
		for _, text := range tc.says {
			if !strings.Contains(out, text) {
				t.Errorf("%s: %q is not in\n%s", tc.sample, text, out)
			}
		}
	}
}

// TestLeftToUsers has why and pending say, in the words of the event, that Opgate leaves a plan that may be approved to
// users, and which policy that is about.
func TestLeftToUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(`apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: etcd, namespace: policies}
spec:
  remediationAction: enforce
  complianceType: mustnothave
  subscription: {name: etcd, namespace: shop}
  versions: [etcdoperator.v0.9.0]
  upgradeApproval: Automatic
---
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: etcd, namespace: shop}
spec: {name: etcd, channel: stable, source: hub, sourceNamespace: olm, installPlanApproval: Manual}
status: {currentCSV: etcdoperator.v0.9.4, installPlanRef: {name: install-x7, namespace: shop}}
---
apiVersion: operators.coreos.com/v1alpha1
kind: InstallPlan
metadata: {name: install-x7, namespace: shop}
spec: {approval: Manual, approved: false, generation: 1, clusterServiceVersionNames: [etcdoperator.v0.9.4]}
status:
  phase: RequiresApproval
  catalogSources: []
  bundleLookups:
    - identifier: etcdoperator.v0.9.4
      path: quay.io/example/etcd
      replaces: ""
      catalogSourceRef: {namespace: olm, name: hub}
      properties: '{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.4"}}]}'
`), 0o600); err != nil {
		t.Fatal(err)
	}
	kubeconfig, _ := serve(t, file)
	const want = "etcdoperator.v0.9.4 is held: OperatorPolicy policies/etcd does not forbid it, and its Subscription asks for Manual approval, " +
		"so that a user has to approve it, who needs the right to update installplans.operators.coreos.com in namespace shop"
	for _, args := range [][]string{{"why", "installplan", "shop/install-x7"}, {"pending", "-A"},
		{"pending", "-n", "shop", "-o", "wide"}, {"pending", "-A", "-o", "json"}} {
		out, code := run(t, command(args[0]), append(args[1:], "--kubeconfig", kubeconfig)...)
		want := want
		if slices.Equal(args, []string{"pending", "-A"}) {
			want = "Allow (by user)"
		}
		if code != 0 || !strings.Contains(out, want) || !strings.Contains(out, "Allow") {
			t.Errorf("%v: exit code %d, %q is not in\n%s", args, code, want, out)
		}
	}
}
