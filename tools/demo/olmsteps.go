package demo

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/olm"
)

// olmTimeout is for one step of OLM, such as an installation. It takes seconds.
const olmTimeout = "--timeout=10m"

// olmSteps is the demo with OLM, in which only Opgate creates and approves. Later steps build on earlier ones.
func olmSteps() []step {
	return []step{{
		title: "What OLM could install, from its catalog",
		commands: []command{{
			user:   cluster.Tenant,
			args:   []string{"get", "packagemanifests"},
			output: []string{"etcd"},
		}},
	}, {
		title: "An admin wants the etcd operator in namespace shop, in one version and no other, and new rights and webhooks reviewed",
		commands: []command{{
			user:   cluster.Admin,
			show:   "olm-policy.yaml",
			args:   []string{"apply", "-f", "olm-policy.yaml"},
			output: []string{"operatorpolicy.policy.open-cluster-management.io/etcd created"},
		}},
	}, {
		title: "Opgate creates what OLM needs and approves the plan for that version, and OLM installs it",
		commands: append(installed("etcdoperator.v0.9.2"), command{
			user:   cluster.Admin,
			args:   []string{"get", "operatorgroups,subscriptions", "-n", cluster.ShopNamespace},
			output: []string{"operatorgroup.operators.coreos.com/shop-", "subscription.operators.coreos.com/etcd"},
		}),
	}, {
		title: "OLM plans the upgrade to the next version. That is not on the list, so Opgate leaves the plan alone",
		commands: []command{
			waitForPolicy(`{.status.conditions[?(@.type=="InstallPlanCompliant")].reason}=InstallPlanRequiresApproval`),
			plans("etcdoperator.v0.9.4 Manual false", "etcdoperator.v0.9.2 Manual true"),
			status("Compliant enforce etcd etcdoperator.v0.9.2"),
			{
				user: cluster.Admin,
				args: []string{"get", "operatorpolicy", "etcd", "-n", cluster.PolicyNamespace, "-o",
					`jsonpath={.status.conditions[?(@.type=="InstallPlanCompliant")].message}{"\n"}`},
				output: []string{"awaits approval", "allowed is etcdoperator.v0.9.2"},
			},
		},
	}, {
		title: "Nobody else can approve it either",
		commands: []command{{
			user: cluster.Admin,
			plan: "etcdoperator.v0.9.4",
			args: []string{"patch", "installplan", "PLAN", "-n", cluster.ShopNamespace, "--type=merge",
				"--patch", `{"spec":{"approved":true}}`},
			refused: true,
			output:  []string{"etcdoperator.v0.9.4", "allowed is etcdoperator.v0.9.2"},
		}},
	}, {
		title: "The admin puts the version on the list. It asks for rights that the installed one does not have, so the upgrade is still held",
		commands: []command{
			patchPolicy(`{"spec":{"versions":["etcdoperator.v0.9.2","etcdoperator.v0.9.4"]}}`),
			{
				user: cluster.Admin,
				plan: "etcdoperator.v0.9.4",
				args: []string{"patch", "installplan", "PLAN", "-n", cluster.ShopNamespace, "--type=merge",
					"--patch", `{"spec":{"approved":true}}`},
				refused: true,
				output:  []string{"(bundle/consent)", "secrets", "sha256:"},
			},
			{
				opgate:  true,
				user:    cluster.Admin,
				plan:    "etcdoperator.v0.9.4",
				args:    []string{"diff", cluster.ShopNamespace + "/PLAN"},
				differs: true,
				output:  []string{"secrets", "sha256:"},
			},
		},
	}, {
		title: "The admin consents to exactly this change, by its digest, and that is all it takes",
		commands: append(append([]command{
			patchPolicy(`{"spec":{"consent":{"accepted":["DIGEST"]}}}`),
		}, installed("etcdoperator.v0.9.4")...),
			plans("etcdoperator.v0.9.4 Manual true"),
			waitForPolicy(`{.status.installedVersion}=etcdoperator.v0.9.4`),
			waitForPolicy(`{.status.compliant}=Compliant`),
			status("Compliant enforce etcd etcdoperator.v0.9.4"),
		),
	}, {
		title: "The admin wants the operator gone, and Opgate removes what it is made of",
		commands: []command{
			patchPolicy(`{"spec":{"complianceType":"mustnothave"}}`),
			{
				user: cluster.Admin,
				args: []string{"wait", "clusterserviceversion/etcdoperator.v0.9.4", "-n", cluster.ShopNamespace,
					"--for=delete", olmTimeout},
			},
			waitForPolicy(`{.status.compliant}=Compliant`),
			{
				user: cluster.Admin,
				args: []string{"get", "operatorgroups,subscriptions,clusterserviceversions", "-n",
					cluster.ShopNamespace},
				output: []string{"No resources found"},
			},
		},
	}}
}

// installed waits until OLM reports that a version is installed.
func installed(csv string) []command {
	resource := "clusterserviceversion/" + csv
	return []command{{
		user: cluster.Admin,
		args: []string{"wait", resource, "-n", cluster.ShopNamespace, "--for=create", olmTimeout},
	}, {
		user: cluster.Admin,
		args: []string{"wait", resource, "-n", cluster.ShopNamespace, "--for=jsonpath={.status.phase}=Succeeded",
			olmTimeout},
	}}
}

func patchPolicy(patch string) command {
	return command{
		user: cluster.Admin,
		args: []string{"patch", "operatorpolicy", "etcd", "-n", cluster.PolicyNamespace, "--type=merge", "--patch",
			patch},
		output: []string{"operatorpolicy.policy.open-cluster-management.io/etcd patched"},
	}
}

func waitForPolicy(jsonpath string) command {
	return command{
		user: cluster.Admin,
		args: []string{"wait", "operatorpolicy/etcd", "-n", cluster.PolicyNamespace, "--for=jsonpath=" + jsonpath,
			olmTimeout},
	}
}

func status(output ...string) command {
	return command{user: cluster.Admin, args: []string{"get", "operatorpolicy", "etcd", "-n", cluster.PolicyNamespace},
		output: output}
}

func plans(output ...string) command {
	return command{user: cluster.Admin, args: []string{"get", "installplans", "-n", cluster.ShopNamespace},
		output: output}
}

// packages are those of the catalog. The last version of the etcd operator asks for a right that the others do not
// have.
func packages() []olm.Package {
	all := olm.Packages()
	for i := range all {
		if all[i].Name != "etcd" {
			continue
		}
		all[i].ClusterPermissions = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"},
			Verbs: []string{"get", "list"}}}
		all[i].Release = func(version string, p *olm.Package) {
			if version == "0.9.4" {
				p.ClusterPermissions = append(p.ClusterPermissions[:1:1],
					rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}})
			}
		}
	}
	return all
}
