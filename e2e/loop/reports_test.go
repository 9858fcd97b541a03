package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// reported is one line of a Report, or of opgate check --live: what is said of an object.
type reported struct{ namespace, kind, name, decision, rule, policy, message string }

// reportIn reads the Report of a namespace.
func reportIn(ctx context.Context, e *harness.Env, namespace string) (*reports.Report, error) {
	u, err := e.Clients[cluster.Admin].Resource(reports.SchemeGroupVersion.WithResource("reports")).Namespace(
		namespace).Get(ctx, "opgate", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	r := &reports.Report{}
	return r, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, r)
}

// sayings returns what a Report states: refusals with their reasons, all else as allowed, once for each object.
func sayings(r *reports.Report) (all []reported) {
	for _, result := range r.Results {
		subject := result.Subjects[0]
		line := reported{namespace: r.Namespace, kind: subject.Kind, name: subject.Name, decision: "Allow"}
		if result.Result == "fail" {
			line.decision, line.rule, line.policy, line.message = result.Properties["decision"], result.Rule,
				result.Policy, result.Description
		}
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return sorted(all)
}

// checked returns what opgate check --live reports of a namespace.
func checked(t *testing.T, e *harness.Env, namespace string) (all []reported) {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), harness.Opgate(t, e.Cluster), "check", "--live", "--kubeconfig",
		e.Kubeconfig(), "-o", "json")
	cmd.Stdout, cmd.Stderr = &out, &problems
	if failed, ok := errors.AsType[*exec.ExitError](cmd.Run()); ok && failed.ExitCode() != 1 {
		t.Fatalf("opgate check: %v: %s", failed, problems.String())
	}
	var found struct {
		Items []struct {
			Namespace, Kind, Name, Decision string
			Reasons                         []struct{ Rule, Source, Message string }
		}
	}
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	for _, item := range found.Items {
		line := reported{namespace: item.Namespace, kind: item.Kind, name: item.Name, decision: item.Decision}
		if item.Namespace != namespace {
			continue
		}
		if len(item.Reasons) == 0 {
			all = append(all, line)
		}
		for _, why := range item.Reasons {
			line.rule, line.policy, line.message = why.Rule, why.Source, why.Message
			all = append(all, line)
		}
	}
	return sorted(all)
}

func sorted(all []reported) []reported {
	slices.SortFunc(all, func(a, b reported) int { return bytes.Compare(fmt.Append(nil, a), fmt.Append(nil, b)) })
	return all
}

// installedEtcd returns an installed version of etcd.
func installedEtcd(namespace, version string) *unstructured.Unstructured {
	return harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: etcdoperator.v%[2]s
  namespace: %[1]s
  annotations:
    operatorframework.io/properties: '{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"%[2]s"}}]}'
spec:
  displayName: etcd
  install: {strategy: deployment, spec: {deployments: []}}
`, namespace, version)
}

// TestReports follows Reports from before their definitions are installed until nothing is installed any more.
func TestReports(t *testing.T) {
	t.Parallel()
	e := &harness.LoopEnv{Env: harness.Vacant(t)}
	e.Connect(t)
	namespace, other := operatorNamespace(t, e), operatorNamespace(t, e)
	e.Write(t, installedEtcd(namespace, "0.9.0"))
	e.Write(t, installedEtcd(other, harness.AllowedVersion))
	e.Propose(t, namespace, "install-held", harness.ForbiddenVersion)
	installed := harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual")
	installed.Object["status"] = map[string]any{"lastUpdated": "2026-01-01T00:00:00Z",
		"currentCSV":   harness.ForbiddenCSV,
		"installedCSV": "etcdoperator.v0.9.0", "installPlanRef": map[string]any{"name": "install-held",
			"namespace": namespace}}
	e.Write(t, installed)
	e.StartGate(t, cluster.GateOptions{Loop: true, Reports: true})
	// it changes nothing itself
	policy := harness.WithField(harness.OperatorPolicy(namespace), "mayhave", "spec", "complianceType")
	e.Write(t, policy)

	// The definitions, and the rights, come later.
	if err := e.InstallReports(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.GrantReports(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantReport := func(what, namespace string, fail, pass, skip int) (r *reports.Report) {
		t.Helper()
		within(t, speed.LongWait, what, func(ctx context.Context) (err error) {
			if r, err = reportIn(ctx, e.Env, namespace); err == nil &&
				(r.Summary.Fail != fail || r.Summary.Pass != pass || r.Summary.Skip != skip) {
				err = fmt.Errorf("%+v: %+v", r.Summary, r.Results)
			}
			return err
		})
		return r
	}
	first := wantReport("report what is installed and what waits", namespace, 2, 0, 0)
	wantReport("report what nothing governs", other, 0, 0, 1)
	for _, in := range []string{namespace, other} {
		r, err := reportIn(t.Context(), e.Env, in)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := sayings(r), checked(t, e.Env, in); !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("the Report says\n%+v\nopgate check --live says\n%+v", got, want)
		}
		if owners := r.OwnerReferences; len(owners) != 1 || owners[0].Kind != "ClusterRole" ||
			owners[0].Name != "opgate-reports" || owners[0].UID == "" {
			t.Errorf("owners %+v", owners)
		}
		if r.Source != "opgate" || r.Scope.Name != in || r.Results[0].Timestamp.Seconds == 0 {
			t.Errorf("%+v", r)
		}
	}

	t.Run("rest", func(t *testing.T) {
		started := time.Now()
		within(t, speed.LongWait, "send no request for Reports", func(context.Context) error {
			window := speed.Scale(restFor)
			sent := requests(t, e, time.Now().Add(-window),
				func(r cluster.Request) bool { return r.Object.Resource == "reports" && r.Verb != "watch" })
			if rested := time.Since(started); len(sent) > 0 || rested < window {
				return fmt.Errorf("after %s: %+v", rested, sent)
			}
			return nil
		})
	})

	t.Run("the policy allows more", func(t *testing.T) {
		e.Edit(t, policy, `{"spec":{"versions":["etcdoperator.v0.9.0"]}}`)
		r := wantReport("report what is allowed now", namespace, 1, 1, 0)
		if got, want := sayings(r), checked(t, e.Env, namespace); !slices.Equal(got, want) {
			t.Errorf("the Report says\n%+v\nopgate check --live says\n%+v", got, want)
		}
	})
	t.Run("times", func(t *testing.T) {
		e.Edit(t, policy, `{"spec":{"versions":["`+harness.AllowedCSV+`"]}}`)
		before := wantReport("report what is refused again", namespace, 2, 0, 0)
		if first.UID != before.UID {
			t.Error("the Report was made anew")
		}
		e.Edit(t, policy, `{"spec":{"subscription":{"source":"`+harness.ForeignCatalog+`"}}}`)
		after := wantReport("report what is new", namespace, 4, 0, 0)
		for _, old := range before.Results {
			same := func(r reports.ReportResult) bool {
				return r.Description == old.Description && r.Subjects[0].Name == old.Subjects[0].Name &&
					r.Timestamp == old.Timestamp
			}
			if !slices.ContainsFunc(after.Results, same) {
				t.Errorf("%+v is not in %+v", old, after.Results)
			}
		}
	})
	t.Run("a Constraint", func(t *testing.T) {
		constraint := harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: no-etcd}
spec:
  constraints: |
    [{"type": "olm.constraint", "value": {"rule": "packageName != \"etcd\"", "message": "no etcd here"}}]
`)
		e.Write(t, constraint)
		of := func(r *reports.Report) (n int) {
			for _, result := range r.Results {
				if result.Result == "fail" && result.Policy == "Constraint no-etcd" {
					n++
				}
			}
			return n
		}
		for in, want := range map[string]int{namespace: 2, other: 1} {
			within(t, speed.LongWait, "report what the Constraint refuses", func(ctx context.Context) error {
				r, err := reportIn(ctx, e.Env, in)
				if err == nil && of(r) != want {
					err = fmt.Errorf("%+v", r.Results)
				}
				return err
			})
			r, err := reportIn(t.Context(), e.Env, in)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := sayings(r), checked(t, e.Env, in); !slices.Equal(got, want) {
				t.Errorf("the Report says\n%+v\nopgate check --live says\n%+v", got, want)
			}
		}
		if err := e.Admin.Delete(t.Context(), constraint); err != nil {
			t.Fatal(err)
		}
		wantReport("report what nothing governs again", other, 0, 0, 1)
		wantReport("report what the policy refuses", namespace, 4, 0, 0)
	})
	t.Run("another client", func(t *testing.T) {
		r, err := reportIn(t.Context(), e.Env, namespace)
		if err != nil {
			t.Fatal(err)
		}
		gone := harness.Object(`{apiVersion: openreports.io/v1alpha1, kind: Report, metadata: {name: opgate, namespace: %s}}`, namespace)
		if err := e.Admin.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		restored := wantReport("restore a deleted Report", namespace, 4, 0, 0)
		if restored.UID == r.UID {
			t.Error("it was not deleted")
		}
		patch := crclient.RawPatch(types.MergePatchType, []byte(`{"results":[],"metadata":{"labels":{"team":"a"}}}`))
		if err := e.Admin.Patch(t.Context(), gone, patch); err != nil {
			t.Fatal(err)
		}
		within(t, speed.LongWait, "restore the results", func(ctx context.Context) error {
			r, err := reportIn(ctx, e.Env, namespace)
			if err == nil && (len(r.Results) != 4 || r.Labels["team"] != "a") {
				err = fmt.Errorf("%+v", r)
			}
			return err
		})
	})
	t.Run("nothing is installed any more", func(t *testing.T) {
		if err := e.Admin.Delete(t.Context(), installedEtcd(other, harness.AllowedVersion)); err != nil {
			t.Fatal(err)
		}
		within(t, speed.LongWait, "delete the Report", func(ctx context.Context) error {
			_, err := reportIn(ctx, e.Env, other)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is still there: %w", err)
		})
	})
}
