package gate

import (
	"os"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

func TestControlPlane(t *testing.T) {
	t.Parallel()
	c := harness.StartCluster(t, cluster.Options{Log: t.Output()})

	t.Run("kinds are served", func(t *testing.T) {
		for group, resources := range map[string][]string{
			"operators.coreos.com": {
				"catalogsources", "clusterserviceversions", "installplans", "olmconfigs",
				"operatorconditions", "operatorgroups", "operators", "subscriptions",
			},
			"policy.open-cluster-management.io": {"operatorpolicies", "policies", "policysets"},
		} {
			served := harness.Kubectl(t, c, cluster.Admin, "", "api-resources", "--api-group", group, "-o", "name")
			for _, resource := range resources {
				if want := resource + "." + group + "\n"; !strings.Contains(served, want) {
					t.Errorf("%s is not served; %s has\n%s", strings.TrimSpace(want), group, served)
				}
			}
		}
	})

	t.Run("users are who they say", func(t *testing.T) {
		for user, want := range map[cluster.User]string{
			cluster.Admin:  "admin",
			cluster.Tenant: "tenant",
			cluster.OLM:    "system:serviceaccount:olm:olm-operator-serviceaccount",
			cluster.Opgate: "system:serviceaccount:opgate-system:opgate",
		} {
			got := harness.Kubectl(t, c, user, "", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
			if got != want {
				t.Errorf("%s is %q, want %q", user, got, want)
			}
			groups := harness.Kubectl(t, c, user, "", "auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}")
			if strings.Contains(groups, "system:masters") {
				t.Errorf("%s is in system:masters, which nothing restrains", user)
			}
		}
	})

	t.Run("users may do what they need and no more", func(t *testing.T) {
		tests := []struct {
			user cluster.User
			verb string
			on   string
			in   string
			want string
		}{
			{cluster.Admin, "*", "*.*", "shop", "yes"},
			{cluster.OLM, "update", "installplans/status", "shop", "yes"},
			{cluster.Tenant, "create", "subscriptions", "shop", "yes"},
			{cluster.Tenant, "update", "installplans", "shop", "yes"},
			{cluster.Tenant, "update", "installplans/status", "shop", "yes"},
			{cluster.Tenant, "list", "clusterserviceversions", "shop", "yes"},
			{cluster.Tenant, "update", "clusterserviceversions", "shop", "no"},
			{cluster.Tenant, "create", "subscriptions", "olm", "no"},
			{cluster.Tenant, "create", "operatorpolicies", "policies", "no"},
			{cluster.Tenant, "get", "operatorpolicies", "policies", "no"},
			{cluster.Opgate, "watch", "operatorpolicies", "policies", "yes"},
			{cluster.Opgate, "watch", "installplans", "shop", "yes"},
			{cluster.Opgate, "create", "subjectaccessreviews.authorization.k8s.io", "", "yes"},
			{cluster.Opgate, "patch", "installplans", "shop", "yes"},
			{cluster.Opgate, "create", "installplans", "shop", "no"},
			{cluster.Opgate, "update", "catalogsources", "olm", "no"},
			{cluster.Tenant, "create", "policies.policy.open-cluster-management.io", "shop", "yes"},
			{cluster.Tenant, "create", "policies.policy.open-cluster-management.io", "policies", "no"},
			{cluster.Opgate, "watch", "policysets", "policies", "yes"},
			{cluster.Opgate, "update", "operatorpolicies", "policies", "yes"}, // as templates of Policies
			{cluster.Opgate, "update", "policies.policy.open-cluster-management.io", "policies", "no"},
			{cluster.Opgate, "create", "policies.policy.open-cluster-management.io", "policies", "no"},
			{cluster.Opgate, "delete", "policysets", "policies", "no"},
			{cluster.Opgate, "update", "leases/opgate-loop", "opgate-system", "yes"},
			{cluster.Opgate, "update", "leases/another", "opgate-system", "no"},
			{cluster.Opgate, "update", "leases/opgate-loop", "shop", "no"},
			{cluster.Opgate, "get", "secrets/opgate-ca", "opgate-system", "yes"},
			{cluster.Opgate, "watch", "secrets/opgate-marks", "opgate-system", "yes"},
			{cluster.Opgate, "get", "secrets", "opgate-system", "no"},
		}
		for _, test := range tests {
			args := []string{"auth", "can-i", test.verb, test.on}
			if test.in != "" {
				args = append(args, "--namespace", test.in)
			}
			result, err := c.Kubectl(t.Context(), test.user, "", args...)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(result.Stdout); got != test.want {
				t.Errorf("%s %s %s in %q: got %q, want %q\n%s", test.user, test.verb, test.on, test.in, got, test.want, result.Stderr)
			}
		}
	})

	t.Run("tenant works in shop by default", func(t *testing.T) {
		harness.Kubectl(t, c, cluster.Tenant, `
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata:
  name: smoke
spec:
  name: etcd
  channel: alpha
  source: catalog
  sourceNamespace: olm
`, "create", "-f", "-")
		if got := harness.Kubectl(t, c, cluster.Admin, "", "get", "subscriptions", "-n", "shop", "-o", "name"); !strings.Contains(got, "smoke") {
			t.Errorf("shop has %q, want the tenant's subscription", got)
		}
	})

	t.Run("a new namespace is the tenant's", func(t *testing.T) {
		if err := c.CreateTenantNamespace(t.Context(), "shop-2"); err != nil {
			t.Fatal(err)
		}
		harness.Kubectl(t, c, cluster.Tenant, "", "get", "subscriptions", "-n", "shop-2")
	})

	t.Run("stop leaves nothing behind", func(t *testing.T) {
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
			t.Errorf("%s is still there (%v)", c.Dir(), err)
		}
	})
}
