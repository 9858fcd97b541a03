package gate

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestA1A2OtherNamespaces: an author of policies in one namespace protects another one from deletion, or has a policy that
// informs report on it, and is refused; with the rights to do it themselves, and in their own namespace, they are not
// (threats O78, O79).
func TestA1A2OtherNamespaces(t *testing.T) {
	e := harness.Shared(t)
	own, victim := e.NewNamespace(t), e.NewNamespace(t)
	const author = "--as=author"
	grant := func(name, namespace, verb, resource string) {
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "role", name, "-n", namespace, "--verb="+verb, "--resource="+resource)
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "create", "rolebinding", name, "-n", namespace, "--role="+name, "--user=author")
	}
	grant("author", own, "create,update,get,patch", "operatorpolicies.policy.open-cluster-management.io")
	policy := func(name, target, action, deletion string) string {
		u := harness.OperatorPolicy(target)
		u.SetName(name)
		u.SetNamespace(own)
		harness.WithField(u, action, "spec", "remediationAction")
		if deletion != "" {
			harness.WithField(u, deletion, "spec", "deletion")
		}
		delete(u.Object["spec"].(map[string]any)["subscription"].(map[string]any), "source")
		delete(u.Object["spec"].(map[string]any)["subscription"].(map[string]any), "sourceNamespace")
		return harness.AsJSON(t, u)
	}
	create := []string{author, "create", "-f", "-"}
	subscription := harness.Subscription(victim, "secret", "hidden-catalog", "Manual")
	harness.WithField(subscription, "gold", "spec", "channel")
	e.Put(t, subscription)
	e.Sync(t)
	harness.WantRefused(t, e.Cluster, cluster.Admin, policy("a1", victim, "enforce", "Deny"), create,
		"spec.deletion keeps from deletion Namespace "+victim+", which its author may not delete (operatorpolicy/author-right)")
	harness.WantRefused(t, e.Cluster, cluster.Admin, policy("a2", victim, "inform", ""), create,
		"reports on Subscriptions in namespace "+victim+", which its author may not get (operatorpolicy/author-right)")
	result, err := e.Kubectl(t.Context(), cluster.Admin, policy("a2", victim, "enforce", ""), append(create, "--dry-run=server")...)
	if err != nil || result.ExitCode != 0 || strings.Contains(result.Stdout+result.Stderr, "hidden-catalog") {
		t.Errorf(harness.Final+"a dry run tells of another namespace: %v\n%s%s", err, result.Stdout, result.Stderr)
	}

	t.Run("control: the own namespace", func(t *testing.T) {
		harness.Kubectl(t, e.Cluster, cluster.Admin, policy("own-a1", own, "enforce", "Deny"), create...)
		harness.Kubectl(t, e.Cluster, cluster.Admin, policy("own-a2", own, "inform", ""), create...)
	})
	t.Run("control: the author has the rights", func(t *testing.T) {
		grant("reads", victim, "get", "subscriptions.operators.coreos.com")
		grant("deletes", victim, "delete", "namespaces,operatorgroups.operators.coreos.com")
		for name, deletion := range map[string]string{"a1": "Deny", "a2": ""} {
			action := map[string]string{"a1": "enforce", "a2": "inform"}[name]
			harness.Kubectl(t, e.Cluster, cluster.Admin, policy(name, victim, action, deletion), create...)
			mark := harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", "operatorpolicy", name, "-n", own, "-o",
				`jsonpath={.metadata.annotations.opgate\.io/verified}`)
			if mark == "" {
				t.Errorf(harness.Final+"%s is not marked", name)
			}
		}
	})
	for _, name := range []string{"a1", "a2", "own-a1", "own-a2"} {
		harness.Kubectl(t, e.Cluster, cluster.Admin, "", "patch", "operatorpolicy", name, "-n", own, "--type=merge", "-p",
			`{"spec":{"deletion":"Allow"}}`)
	}
	harness.Eventually(t, "delete the policies", func(context.Context) error {
		result, err := e.Kubectl(t.Context(), cluster.Admin, "", "delete", "operatorpolicy", "--all", "-n", own)
		if err == nil && result.ExitCode != 0 {
			err = errors.New(result.Stderr)
		}
		return err
	})
}
