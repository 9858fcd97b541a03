package gate

import (
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestControlPlane makes sure that the cluster of these tests is what they take it for.
func TestControlPlane(t *testing.T) {
	e := harness.Shared(t)
	c := e.Cluster

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
			{user: cluster.Admin, verb: "*", on: "*.*", in: "shop", want: "yes"},
			{user: cluster.OLM, verb: "update", on: "installplans/status", in: "shop", want: "yes"},
			{user: cluster.Tenant, verb: "create", on: "subscriptions", in: "shop", want: "yes"},
			{user: cluster.Tenant, verb: "update", on: "installplans", in: "shop", want: "yes"},
			{user: cluster.Tenant, verb: "update", on: "installplans/status", in: "shop", want: "yes"},
			{user: cluster.Tenant, verb: "list", on: "clusterserviceversions", in: "shop", want: "yes"},
			{user: cluster.Tenant, verb: "update", on: "clusterserviceversions", in: "shop", want: "no"},
			{user: cluster.Tenant, verb: "create", on: "subscriptions", in: "olm", want: "no"},
			{user: cluster.Tenant, verb: "create", on: "operatorpolicies", in: "policies", want: "no"},
			{user: cluster.Tenant, verb: "get", on: "operatorpolicies", in: "policies", want: "no"},
			{user: cluster.Opgate, verb: "create", on: "installplans", in: "shop", want: "no"},
			{
				user: cluster.Tenant,
				verb: "create",
				on:   "policies.policy.open-cluster-management.io",
				in:   "shop",
				want: "yes",
			},
			{
				user: cluster.Tenant,
				verb: "create",
				on:   "policies.policy.open-cluster-management.io",
				in:   "policies",
				want: "no",
			},
			{user: cluster.Opgate, verb: "update", on: "leases/opgate-loop", in: "opgate-system", want: "yes"},
			{user: cluster.Opgate, verb: "update", on: "leases/another", in: "opgate-system", want: "no"},
			{user: cluster.Opgate, verb: "get", on: "secrets", in: "opgate-system", want: "no"},
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
				t.Errorf("%s %s %s in %q: got %q, want %q\n%s", test.user, test.verb, test.on, test.in, got, test.want,
					result.Stderr)
			}
		}
	})

	t.Run("tenant works in shop by default", func(t *testing.T) {
		harness.Afterwards(t, c, "delete", "subscription", "-n", "shop", "smoke")
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
		if got := harness.Kubectl(t, c, cluster.Admin, "", "get", "subscriptions", "-n", "shop", "-o",
			"name"); !strings.Contains(got, "smoke") {
			t.Errorf("shop has %q, want the tenant's subscription", got)
		}
	})

	t.Run("a new namespace is the tenant's", func(t *testing.T) {
		if err := c.CreateTenantNamespace(t.Context(), "shop-2"); err != nil {
			t.Fatal(err)
		}
		harness.Kubectl(t, c, cluster.Tenant, "", "get", "subscriptions", "-n", "shop-2")
	})
}
