package install

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// TestInstall takes one cluster through what an installation goes through in its life: by helm with certificates of its
// own, and by kubectl with those of cert-manager. The cluster is its own, since definitions and webhook configurations
// come and go.
func TestInstall(t *testing.T) {
	t.Parallel()
	s := Start(t)

	t.Run("A1: the chart finds OLM", s.findsOLM)
	t.Run("the chart finds the TLS profile", s.findsTLSProfile)
	t.Run("nothing is locked before a replica has been ready", func(t *testing.T) {
		s.RunHelm(t, "install", "opgate", harness.ChartDir, "--create-namespace", "--set",
			Quick()+",image.registry="+missingRegistry)
		s.wantNothingLocked(t)
		s.wantUnverified(t, "operatorpolicy default/opgate-verify was admitted, so webhook operatorpolicies.opgate.io was not called")
	})
	s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reuse-values", "--set", "image.registry="+publicRegistry,
		"--wait")
	namespace := s.Govern(t)
	t.Run("it judges", func(t *testing.T) {
		s.WantGate(t, namespace)
		s.wantRules(t)
		harness.WantRefused(t, s.Cluster, cluster.Tenant,
			harness.AsJSON(t, harness.Subscription(namespace, "foreign", harness.ForeignCatalog, "Manual")),
			[]string{"apply", "-f", "-"},
			harness.DeniedBy, "OperatorPolicy policies/"+namespace, "(subscription/catalog)")
	})
	t.Run("helm test", func(t *testing.T) {
		for _, step := range ShellSteps(t, "../../docs/install.md", "helm test opgate") {
			s.Shell(t, step)
		}
		s.wantVerified(t)
	})
	t.Run("it converts", func(t *testing.T) {
		got := s.Admin(t, "get", "operatorpolicies.v1beta1.policy.open-cluster-management.io", "-n",
			cluster.PolicyNamespace, namespace, "-o", "jsonpath={.spec.subscription.installPlanApproval}")
		if got != "Automatic" {
			t.Errorf("installPlanApproval is %q", got)
		}
	})
	t.Run("its loop works", func(t *testing.T) {
		harness.Eventually(t, "the policy has a status", func(ctx context.Context) error {
			got := s.Admin(t, "get", "operatorpolicy", "-n", cluster.PolicyNamespace, namespace, "-o",
				"jsonpath={.status.compliant}")
			if got == "" {
				return errors.New("it has none")
			}
			return nil
		})
	})
	t.Run("what is overwritten is restored", func(t *testing.T) { s.overwrite(t, namespace) })
	t.Run("a Secret that is deleted is made anew", func(t *testing.T) {
		before := s.signer(t)
		s.Admin(t, "delete", "secret", "-n", cluster.OpgateNamespace, caSecret)
		s.wantAnotherSigner(t, before)
		s.WantGate(t, namespace)
	})
	t.Run("a CA whose key leaked is not trusted any more", func(t *testing.T) { s.distrust(t, namespace) })
	t.Run("rotations, restarts and an upgrade are not noticed", func(t *testing.T) { s.undisturbed(t, namespace) })
	// After the upgrade: who sets a field back owns it, and helm would ask for --force-conflicts to change it.
	t.Run("fields of webhooks are set back", s.setsFieldsBack)
	if *harness.Long {
		t.Run("certificates that expire", func(t *testing.T) { s.expire(t, namespace) })
	}
	t.Run("a crash of all pods", func(t *testing.T) { s.crash(t, namespace) })
	t.Run("without a pod nothing is opened", func(t *testing.T) { s.withoutPods(t, namespace) })
	t.Run("policies that were stored before", func(t *testing.T) { s.storedBefore(t, namespace) })
	s.wantRights(t)
	t.Run("docs/emergency.md", func(t *testing.T) { s.emergencies(t) })
	t.Run("helm uninstall", func(t *testing.T) { s.uninstalls(t) })
	s.startCertManager(t)
	t.Run("kubectl and cert-manager", func(t *testing.T) { s.byKubectl(t) })
}

// distrust makes the new CA all that is trusted, by the commands of docs/certificates.md.
func (s *Site) distrust(t *testing.T, namespace string) {
	before := s.signer(t)
	s.Admin(t, "annotate", "secret", "-n", cluster.OpgateNamespace, caSecret, "opgate.io/rotate-ca=leaked", "--overwrite")
	signer, err := base64.StdEncoding.DecodeString(s.wantAnotherSigner(t, before))
	if err != nil {
		t.Fatal(err)
	}
	s.Admin(t, "patch", "secret", "-n", cluster.OpgateNamespace, caSecret, "--type=json", "-p",
		`[{"op":"copy","from":"/data/tls.crt","path":"/data/ca.crt"}]`)
	s.wantTrusted(t, signer)
	s.WantGate(t, namespace)
}

// overwrite damages what the pods have filled in.
func (s *Site) overwrite(t *testing.T, namespace string) {
	before := s.caBundles(t)[0]
	pem, _ := harness.Authority(t, time.Hour)
	foreign := base64.StdEncoding.EncodeToString(pem)
	s.Admin(t, "patch", "mutatingwebhookconfiguration", "opgate", "--type=json", "--patch",
		`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)
	s.Admin(t, "patch", "validatingwebhookconfiguration", "opgate", "--type=json", "--patch",
		`[{"op":"replace","path":"/webhooks/1/clientConfig/caBundle","value":"`+foreign+`"}]`)
	s.Admin(t, "patch", "customresourcedefinition", registrations[harness.DefinitionResource], "--type=json", "--patch",
		`[{"op":"replace","path":"/spec/conversion/webhook/clientConfig/caBundle","value":"`+foreign+`"}]`)
	s.wantTrusted(t, before)
	s.WantGate(t, namespace)
}

// wantTrusted waits until every caBundle is the given one.
func (s *Site) wantTrusted(t *testing.T, want []byte) {
	t.Helper()
	harness.Eventually(t, "the caBundles are as they should be", func(context.Context) error {
		for _, bundle := range s.caBundles(t) {
			if !bytes.Equal(bundle, want) {
				return fmt.Errorf("one is\n%s", bundle)
			}
		}
		return nil
	})
}

// undisturbed goes from a chart of another version, with other values, to this one while requests come in, after
// certificates and pods were replaced. TestRollback does so with the program of another commit.
func (s *Site) undisturbed(t *testing.T, namespace string) {
	s.Admin(t, "delete", "validatingwebhookconfiguration", "opgate") // it comes back with the next upgrade
	s.wantHeld(t, namespace)
	previous := t.TempDir()
	if err := os.CopyFS(previous, os.DirFS(harness.ChartDir)); err != nil {
		t.Fatal(err)
	}
	setChartVersion(t, previous, earlierVersion)
	s.RunHelm(t, "upgrade", "opgate", previous, "--reuse-values", "--set",
		"log.level=debug,"+patiently(), "--wait")
	s.WantGate(t, namespace)
	s.wantImage(t, true)
	harness.Eventually(t, "the pods that are less patient are gone", func(context.Context) error {
		if all, staying := len(s.Node.Pods(cluster.OpgateNamespace)), len(s.Pods(t)); all > staying {
			return fmt.Errorf("there are %d, and %d stay", all, staying)
		}
		return nil
	})
	s.underLoad(t, namespace, func() {
		s.rotateAndRestart(t)
		s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reset-values", "--set", Quick(), "--wait")
	})
	s.wantImage(t, false)
}

// earlierVersion is the version of charts to come from, and of their image.
const earlierVersion = "0.0.1"

// setChartVersion sets the version of a chart in a directory.
func setChartVersion(t *testing.T, dir, version string) {
	t.Helper()
	chart, err := os.ReadFile(dir + "/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(chart, &fields); err != nil {
		t.Fatal(err)
	}
	fields["version"], fields["appVersion"] = version, version
	if chart, err = yaml.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/Chart.yaml", chart, 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantImage wants the Deployment to have the image of earlierVersion, or another.
func (s *Site) wantImage(t *testing.T, earlier bool) {
	t.Helper()
	image := s.Admin(t, "get", "deployment", "-n", cluster.OpgateNamespace, "opgate", "-o",
		"jsonpath={.spec.template.spec.containers[0].image}")
	if strings.HasSuffix(image, ":"+earlierVersion) != earlier {
		t.Errorf("the image is %s", image)
	}
}

// expire has a pod paused until its certificate has ended, where they are short-lived.
func (s *Site) expire(t *testing.T, namespace string) {
	// The liveness probe ends a pod that is paused for a minute.
	life := min(speed.Scale(15*time.Second), 45*time.Second)
	s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reuse-values", "--wait", "--set", fmt.Sprintf(
		"certificates.selfManaged.caLifetime=%s,certificates.selfManaged.certificateLifetime=%s", seconds(4*life),
		seconds(life)))
	paused := s.Pods(t)[0]
	before, err := certificateAt(paused.Addresses["webhook"])
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Node.Signal(paused, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the certificate has ended", func(context.Context) error {
		if left := time.Until(before.NotAfter); left > 0 {
			return fmt.Errorf("it has %s left", left)
		}
		return nil
	})
	s.WantGate(t, namespace) // the other pod has renewed its own
	if err := s.Node.Signal(paused, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the pod has another", func(context.Context) error {
		now, err := certificateAt(paused.Addresses["webhook"])
		if err == nil && !now.NotAfter.After(time.Now()) {
			err = fmt.Errorf("the one it has ended at %s", now.NotAfter)
		}
		return err
	})
	if after := s.Pods(t)[0]; after.Name != paused.Name || after.PID != paused.PID {
		t.Errorf("pod %s has been restarted", paused.Name)
	}
	s.WantGate(t, namespace)
	s.RunHelm(t, "upgrade", "opgate", harness.ChartDir, "--reset-values", "--wait", "--set", Quick())
}

// crash kills all pods at once, the one that holds the Lease among them. The next to lead has to wait until that ends.
func (s *Site) crash(t *testing.T, namespace string) {
	holder := func() string {
		return s.Admin(t, "get", "lease", "-n", cluster.OpgateNamespace, "opgate-loop", "-o",
			"jsonpath={.spec.holderIdentity}")
	}
	harness.Eventually(t, "one leads", func(context.Context) error {
		if holder() == "" {
			return errors.New("none does")
		}
		return nil
	})
	killed := holder()
	for _, pod := range s.Pods(t) {
		if err := s.Node.Signal(pod, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, "another leads", func(context.Context) error {
		if now := holder(); now == killed || now == "" {
			return fmt.Errorf("%q does", now)
		}
		return nil
	})
	s.overwrite(t, namespace)
}

// storedBefore starts a release where policies are stored in v1beta1: the API server has to ask it to convert them
// before it can read them and be ready.
func (s *Site) storedBefore(t *testing.T, namespace string) {
	if err := s.SetStorageVersion(t.Context(), harness.Earlier); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "a policy is stored in v1beta1", func(ctx context.Context) error {
		s.Admin(t, "annotate", "operatorpolicy", "-n", cluster.PolicyNamespace, namespace, "--overwrite",
			fmt.Sprintf("test/at=%d", time.Now().UnixNano()))
		stored, err := s.StoredPolicies(ctx)
		if key := cluster.PolicyNamespace + "/" + namespace; err == nil &&
			!strings.HasSuffix(stored[key], harness.Earlier) {
			err = fmt.Errorf("it is stored in %s", stored[key])
		}
		return err
	})
	s.Admin(t, "scale", "deployment", "-n", cluster.OpgateNamespace, "opgate", "--replicas=0")
	s.Admin(t, "delete", "pods", "-n", cluster.OpgateNamespace, "-l", "app.kubernetes.io/name=opgate", "--force",
		"--grace-period=0")
	if err := s.SetStorageVersion(t.Context(), harness.Present); err != nil {
		t.Fatal(err)
	}
	s.Admin(t, "scale", "deployment", "-n", cluster.OpgateNamespace, "opgate", "--replicas=2")
	s.Admin(t, "rollout", "status", "deployment", "-n", cluster.OpgateNamespace, "opgate")
	s.WantGate(t, namespace)
}
