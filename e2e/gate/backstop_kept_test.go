package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// heldByServer is in refusals that are the API server's own.
const heldByServer = "held by the API server (ValidatingAdmissionPolicy opgate-backstop)"

// backstopObjects are the objects of the backstop, each as RESOURCE/NAME.
var backstopObjects = []string{"mutatingadmissionpolicies/opgate-backstop",
	"mutatingadmissionpolicybindings/opgate-backstop",
	"validatingadmissionpolicies/opgate-backstop", "validatingadmissionpolicybindings/opgate-backstop",
	"validatingadmissionpolicies/opgate-unpacked", "validatingadmissionpolicybindings/opgate-unpacked",
	"validatingadmissionpolicies/opgate-evidence", "validatingadmissionpolicybindings/opgate-evidence"}

// deletionObjects are those that exist while a policy restricts deletions.
var deletionObjects = []string{"validatingadmissionpolicies/opgate-deletion",
	"validatingadmissionpolicybindings/opgate-deletion"}

// backstopSite is a cluster with --backstop.
type backstopSite struct {
	*harness.LoopEnv
	namespace string
	policy    *unstructured.Unstructured
}

// TestBackstopKept: what OperatorPolicies do not allow is refused by the API server itself, as long as Opgate has said
// so, whether it runs or not.
func TestBackstopKept(t *testing.T) {
	t.Parallel()
	s := &backstopSite{LoopEnv: &harness.LoopEnv{Env: harness.Vacant(t)}}
	s.Connect(t)
	s.start(t, "enforce")
	s.namespace = s.NewNamespace(t)
	s.policy = s.Put(t, harness.OperatorPolicy(s.namespace))
	s.Put(t, harness.WithField(harness.OperatorPolicy(s.NewNamespace(t)), "Confirm", "spec", "deletion"))
	s.Put(t, harness.InstallPlan(s.namespace, "allowed", harness.AllowedVersion))
	s.Put(t, harness.InstallPlan(s.namespace, "forbidden", harness.ForbiddenVersion))
	s.wantMetrics(t, `opgate_backstop_active{state="enforced"} 1`,
		`opgate_backstop_supported{feature="mutatingadmissionpolicy"} 1`,
		`opgate_backstop_supported{feature="semver"} 1`,
		`opgate_backstop_supported{feature="validatingadmissionpolicy"} 1`)
	t.Run("a policy edit comes into force", s.edit)
	t.Run("what another client changes or deletes is restored", s.restore)
	t.Run("the loop approves after an edit", s.approve)
	t.Run("policies beyond what an object holds are reported, and all others are held", s.tooMany)
	t.Run("without the ClusterRole nothing is written", s.unowned)
	t.Run("an exception ends while no leader runs", s.expires)
	t.Run("without Opgate and its webhook configurations", s.alone)
	t.Run("audit", s.audit)
	t.Run("off", s.off)
}

// start starts Opgate in a mode, in place of one that runs.
func (s *backstopSite) start(t *testing.T, mode string) {
	t.Helper()
	if s.Gate != nil {
		if _, err := s.Gate.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if s.Gate, err = s.StartOpgate(context.WithoutCancel(t.Context()),
		cluster.GateOptions{Loop: true, Args: []string{"--backstop=" + mode}}); err != nil {
		t.Fatal(err)
	}
}

// try sends a patch as a user, without effect if dry.
func (s *backstopSite) try(
	ctx context.Context, user cluster.User, dry bool, plan, subresource, patch string,
) (harness.Answer, error) {
	return s.tryIn(ctx, s.namespace, user, dry, plan, subresource, patch)
}

func (s *backstopSite) tryIn(
	ctx context.Context, namespace string, user cluster.User, dry bool, plan, subresource, patch string,
) (harness.Answer, error) {
	query := url.Values{}
	if dry {
		query.Set("dryRun", "All")
	}
	return s.Clients[user].Send(ctx, harness.Request{Method: http.MethodPatch,
		Path:  harness.PathOf(harness.InstallPlans, namespace, plan, subresource),
		Query: query, ContentType: string(types.MergePatchType), Body: []byte(patch)})
}

// approvable returns an error unless a plan can be approved, or is refused by the API server itself.
func (s *backstopSite) approvable(namespace, plan string, want bool) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		got, err := s.tryIn(ctx, namespace, cluster.Admin, true, plan, "", `{"spec":{"approved":true}}`)
		if err == nil && (got.OK() != want || !want && !strings.Contains(got.Message, heldByServer)) {
			err = fmt.Errorf("approving %s: %s", plan, got)
		}
		return err
	}
}

// edit logs the time from when an edit is stored until the API server judges by it, both ways: on an idle machine two
// seconds at most.
func (s *backstopSite) edit(t *testing.T) {
	harness.Eventually(t, "the API server refuses", s.approvable(s.namespace, "forbidden", false))
	for _, versions := range []string{harness.AllowedCSV + `","` + harness.ForbiddenCSV, harness.AllowedCSV} {
		patch := []byte(`{"spec":{"versions":["` + versions + `"]}}`)
		_, err := s.Clients[cluster.Admin].Of(s.policy).Patch(t.Context(), s.policy.GetName(), types.MergePatchType,
			patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		took := harness.Time(t, "the edit is in force",
			s.approvable(s.namespace, "forbidden", strings.Contains(versions, harness.ForbiddenCSV)))
		t.Logf("versions %s are in force after %s", versions, took)
	}
}

// approve lets the loop approve what an edit allows: the API server may judge by the policies before the edit for a
// second.
func (s *backstopSite) approve(t *testing.T) {
	namespace := s.NewNamespace(t)
	policy := s.Put(t, harness.OperatorPolicy(namespace))
	s.Propose(t, namespace, "upgrade", harness.ForbiddenVersion)
	harness.Eventually(t, "the API server refuses", s.approvable(namespace, "upgrade", false))
	s.Edit(t, policy, `{"spec":{"versions":["`+harness.ForbiddenCSV+`"]}}`)
	stored := time.Now()
	s.WaitApproved(t, namespace, "upgrade")
	t.Logf("approved after %s", time.Since(stored))
	log, err := os.ReadFile(s.Gate.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(log), heldByServer) {
		t.Error("what is a matter of seconds is logged")
	}
}

// restore changes and deletes each of the objects.
func (s *backstopSite) restore(t *testing.T) {
	for _, object := range slices.Concat(backstopObjects, deletionObjects) {
		before, resource := s.backstopObject(t, object), strings.Split(object, "/")[0]
		patch := `{"spec":{"matchConstraints":{"excludeResourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"operations":["*"]}]}}}`
		if strings.HasSuffix(resource, "bindings") {
			patch = `{"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"no":"namespace"}}}}}`
		}
		for what, args := range map[string][]string{
			"changed": {"patch", object, "--type=merge", "--patch", patch},
			"deleted": {"delete", object, "--wait=false"},
		} {
			var written time.Time
			harness.Eventually(t, object+" is restored where it was "+what, func(ctx context.Context) error {
				// Again after a while: where Opgate begins anew, or has no answer, it does not know that it has restored something.
				if time.Since(written) > speed.Scale(30*time.Second) {
					result, err := s.Kubectl(ctx, cluster.Admin, "", args...)
					if err != nil || result.ExitCode != 0 {
						return cmp.Or(err, errors.New(result.Stderr))
					}
					written = time.Now()
				}
				now, err := s.findBackstopObject(ctx, object)
				if err != nil {
					return err
				}
				if harness.Normal(now.Object["spec"]) != harness.Normal(before.Object["spec"]) {
					return fmt.Errorf("its spec is %.300s", harness.Normal(now.Object["spec"]))
				}
				result, err := s.Kubectl(ctx, cluster.Admin, "", "get", "events", "-n", "default", "--field-selector",
					"reason=BackstopRestored,involvedObject.kind="+before.GetKind()+
						",involvedObject.name="+before.GetName())
				if err == nil && !strings.Contains(result.Stdout, "another client "+what+" this "+before.GetKind()) {
					err = fmt.Errorf("there are events %s", result.Stdout)
				}
				return err
			})
		}
	}
	_, body, err := harness.GetURL(t.Context(), s.Gate.MetricsURL())
	if err != nil || strings.Contains(body, "\nopgate_backstop_restored_total 0\n") {
		t.Errorf("opgate_backstop_restored_total counts none: %v", err)
	}
	harness.Eventually(t, "the API server refuses", s.approvable(s.namespace, "forbidden", false))
}

// alone stops Opgate and deletes its webhook configurations.
func (s *backstopSite) alone(t *testing.T) {
	s.abandon(t)
	harness.Eventually(t, "the API server refuses", s.approvable(s.namespace, "forbidden", false))
	for _, user := range []cluster.User{cluster.Admin, cluster.Tenant} {
		for _, phase := range []string{"Installing", "Complete"} {
			got, err := s.try(t.Context(), user, false, "forbidden", "status", `{"status":{"phase":"`+phase+`"}}`)
			if err != nil || got.OK() || got.Code != http.StatusForbidden ||
				!strings.Contains(got.Message, heldByServer) {
				t.Errorf("phase %s as %s: got %s, %v", phase, user, got, err)
			}
		}
		got, err := s.try(t.Context(), user, false, "forbidden", "", `{"spec":{"approved":true}}`)
		if err != nil || got.OK() || !strings.Contains(got.Message, "is not allowed by OperatorPolicy "+
			cluster.PolicyNamespace+"/"+s.namespace+" (bundle/version): allowed is "+harness.AllowedCSV) {
			t.Errorf("approval as %s: got %s, %v", user, got, err)
		}
	}
	automatic := harness.Subscription(s.namespace, "automatic", harness.GoodCatalog, "Automatic")
	// it reads the two policies apart
	harness.Eventually(t, "the API server changes Subscriptions", func(ctx context.Context) error {
		result, err := s.Kubectl(ctx, cluster.Tenant, harness.AsJSON(t, automatic), "create", "--dry-run=server", "-f",
			"-")
		if err == nil && result.ExitCode != 0 {
			err = errors.New(result.Stderr)
		}
		return err
	})
	harness.WantField(t, s.Put(t, automatic), `"Manual"`, "spec", "installPlanApproval")
	got, err := s.try(t.Context(), cluster.Admin, false, "allowed", "", `{"spec":{"approved":true}}`)
	if err != nil || !got.OK() {
		t.Errorf("approval of what is allowed: got %s, %v", got, err)
	}
}

// expires lets an exception end while no leader runs. The API server alone goes on to admit what it lets in, and refuses
// that once there is a leader again. Opgate answers no request before: the webhook configurations are deleted.
func (s *backstopSite) expires(t *testing.T) {
	until := func(end time.Time) string {
		return fmt.Sprintf(`{"spec":{"exceptions":[{"versions":[%q],"rules":["bundle/version"],"reason":"CVE-2026-1234","expires":%q}]}}`,
			harness.ForbiddenCSV, end.UTC().Format(time.RFC3339))
	}
	s.Edit(t, s.policy, until(time.Now().Add(time.Hour)))
	harness.Eventually(t, "the exception is in force", s.approvable(s.namespace, "forbidden", true))
	s.abandon(t)
	end := time.Now().Add(time.Second)
	s.Edit(t, s.policy, until(end))
	harness.Eventually(t, "it ends", func(context.Context) error {
		if time.Now().Before(end) {
			return errors.New("it has not ended")
		}
		return nil
	})
	if err := s.approvable(s.namespace, "forbidden", true)(t.Context()); err != nil {
		t.Errorf("after its end, without a leader: %v", err)
	}
	s.start(t, "enforce")
	harness.Eventually(t, "the API server refuses", s.approvable(s.namespace, "forbidden", false))
	s.Edit(t, s.policy, `{"spec":{"exceptions":null}}`)
}

// audit lets everything through, with a warning and an entry in the audit log, once Opgate and its webhooks are gone.
func (s *backstopSite) audit(t *testing.T) {
	s.start(t, "audit")
	s.wantMetrics(t, `opgate_backstop_active{state="audited"} 1`)
	s.wantGone(t, backstopObjects[:2]...)
	s.abandon(t)
	harness.Eventually(t, "the API server warns", func(ctx context.Context) error {
		got, err := s.try(ctx, cluster.Admin, true, "forbidden", "", `{"spec":{"approved":true}}`)
		if err == nil && (!got.OK() || !strings.Contains(strings.Join(got.Warnings, " "), "bundle/version")) {
			err = fmt.Errorf("got %s with warnings %q", got, got.Warnings)
		}
		return err
	})
}

// off deletes the objects, and what the gate does is as before.
func (s *backstopSite) off(t *testing.T) {
	s.start(t, "off")
	s.wantGone(t, slices.Concat(backstopObjects, deletionObjects)...)
	got, err := s.try(t.Context(), cluster.Admin, true, "forbidden", "", `{"spec":{"approved":true}}`)
	if err != nil || got.Refused == "" {
		t.Errorf("the gate answers %s, %v", got, err)
	}
}

// abandon stops Opgate and deletes its webhook configurations.
func (s *backstopSite) abandon(t *testing.T) {
	t.Helper()
	if _, err := s.Gate.Stop(); err != nil {
		t.Fatal(err)
	}
	harness.Kubectl(t, s.Cluster, cluster.Admin, "", "delete",
		"mutatingwebhookconfiguration,validatingwebhookconfiguration", "opgate")
	harness.Eventually(t, "the webhooks are not called", func(ctx context.Context) error {
		got, err := s.try(ctx, cluster.Admin, true, "forbidden", "", `{"spec":{"approved":true}}`)
		if err == nil && strings.Contains(got.Message, "failed calling webhook") {
			err = errors.New(got.Message)
		}
		return err
	})
}

func (s *backstopSite) wantMetrics(t *testing.T, series ...string) {
	t.Helper()
	harness.Eventually(t, "see "+strings.Join(series, ", "), func(ctx context.Context) error {
		_, body, err := harness.GetURL(ctx, s.Gate.MetricsURL())
		for _, one := range series {
			if err == nil && !strings.Contains(body, one+"\n") {
				err = fmt.Errorf("there is no %s", one)
			}
		}
		return err
	})
}

func (s *backstopSite) wantGone(t *testing.T, objects ...string) {
	t.Helper()
	for _, object := range objects {
		harness.Eventually(t, object+" is deleted", func(ctx context.Context) error {
			_, err := s.findBackstopObject(ctx, object)
			if err == nil {
				return errors.New("it exists")
			}
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
}

func (s *backstopSite) backstopObject(t *testing.T, object string) *unstructured.Unstructured {
	t.Helper()
	u, err := s.findBackstopObject(t.Context(), object)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// findBackstopObject reads an object that is named as RESOURCE/NAME.
func (s *backstopSite) findBackstopObject(ctx context.Context, object string) (*unstructured.Unstructured, error) {
	resource, name, _ := strings.Cut(object, "/")
	kind := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
	return s.Clients[cluster.Admin].Resource(kind).Get(ctx, name, metav1.GetOptions{})
}
