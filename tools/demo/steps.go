package demo

import "github.com/opgate/opgate/e2e/cluster"

// step is a command of a user, and its result.
type step struct {
	title    string // a sentence, without a full stop
	commands []command
}

// command is a call of kubectl or opgate, and what must come of it. DIGEST in its arguments is the last digest that an
// earlier one printed.
type command struct {
	user cluster.User
	args []string
	// plan is a version: PLAN in args is the name of the plan for it that waits in namespace shop.
	plan string
	// opgate is set for a command of opgate in place of kubectl, as an admin.
	opgate bool
	// differs is set for a command that ends with exit code 1 to report that something differs.
	differs bool
	// show is a manifest to print before the command.
	show string
	// refused is whether the API server must say no.
	refused bool
	// output are texts that the output must have in it, with single spaces between words.
	output []string
}

// steps is the demo. Later steps build on earlier ones.
func steps() []step {
	return []step{{
		title: "An admin allows one version of the etcd operator, from one catalog, in namespace shop",
		commands: []command{{
			user:   cluster.Admin,
			show:   "policy.yaml",
			args:   []string{"apply", "-f", "policy.yaml"},
			output: []string{"operatorpolicy.policy.open-cluster-management.io/etcd created"},
		}},
	}, {
		title: "A tenant subscribes and asks for automatic approval: admitted, but the API server stores Manual",
		commands: []command{{
			user:   cluster.Tenant,
			show:   "subscription.yaml",
			args:   []string{"apply", "-f", "subscription.yaml"},
			output: []string{"subscription.operators.coreos.com/etcd created"},
		}, {
			user: cluster.Tenant,
			args: []string{"get", "subscription", "etcd", "-o",
				"custom-columns=NAME:.metadata.name,APPROVAL:.spec.installPlanApproval"},
			output: []string{"Manual"},
		}},
	}, {
		title: "A Subscription to the same operator from a foreign catalog is refused",
		commands: []command{{
			user:    cluster.Tenant,
			show:    "subscription-foreign.yaml",
			args:    []string{"apply", "-f", "subscription-foreign.yaml"},
			refused: true,
			output:  []string{"bargain-catalog", "operatorhubio-catalog"},
		}},
	}, {
		title: "OLM plans to install a version that is not on the list: nobody can approve that, not even an admin",
		commands: []command{{
			user:   cluster.OLM,
			show:   "installplan-0.9.4.yaml",
			args:   []string{"create", "-f", "installplan-0.9.4.yaml"},
			output: []string{"installplan.operators.coreos.com/install-etcd-0.9.4 created"},
		}, {
			user: cluster.OLM,
			show: "installplan-0.9.4-status.yaml",
			args: []string{"patch", "installplan", "install-etcd-0.9.4", "-n", "shop", "--subresource=status",
				"--type=merge",
				"--patch-file=installplan-0.9.4-status.yaml"},
			output: []string{"patched"},
		}, {
			user: cluster.Admin,
			args: []string{"patch", "installplan", "install-etcd-0.9.4", "-n", "shop", "--type=merge",
				"--patch", `{"spec":{"approved":true}}`},
			refused: true,
			output:  []string{"etcdoperator.v0.9.4", "etcdoperator.v0.9.2", cluster.HeldByBackstop},
		}},
	}, {
		title: "A plan for the version on the list can be approved",
		commands: []command{{
			user:   cluster.OLM,
			args:   []string{"create", "-f", "installplan-0.9.2.yaml"},
			output: []string{"installplan.operators.coreos.com/install-etcd-0.9.2 created"},
		}, {
			user: cluster.OLM,
			args: []string{"patch", "installplan", "install-etcd-0.9.2", "-n", "shop", "--subresource=status",
				"--type=merge",
				"--patch-file=installplan-0.9.2-status.yaml"},
			output: []string{"patched"},
		}, {
			user: cluster.Admin,
			args: []string{"patch", "installplan", "install-etcd-0.9.2", "-n", "shop", "--type=merge",
				"--patch", `{"spec":{"approved":true}}`},
			output: []string{"installplan.operators.coreos.com/install-etcd-0.9.2 patched"},
		}, {
			user:   cluster.Admin,
			args:   []string{"get", "installplans", "-n", "shop"},
			output: []string{"etcdoperator.v0.9.4 Manual false", "etcdoperator.v0.9.2 Manual true"},
		}},
	}, {
		title: "A tenant tries to go around approval by writing the status that makes OLM install: refused",
		commands: []command{{
			user: cluster.Tenant,
			args: []string{"patch", "installplan", "install-etcd-0.9.4", "--subresource=status", "--type=merge",
				"--patch", `{"status":{"phase":"Installing"}}`},
			refused: true,
			output:  []string{"install-etcd-0.9.4", "Installing", cluster.HeldByBackstop},
		}},
	}, {
		title: "A cluster admin says what every operator must satisfy, in any namespace, also those that no policy names",
		commands: []command{{
			user:   cluster.Admin,
			show:   "constraint.yaml",
			args:   []string{"apply", "-f", "constraint.yaml"},
			output: []string{"constraint.operators.coreos.com/verified created"},
		}, {
			user:    cluster.Tenant,
			show:    "subscription-vault.yaml",
			args:    []string{"apply", "-f", "subscription-vault.yaml"},
			refused: true,
			output:  []string{"subscription/constraint", "operators come from the catalog that was verified"},
		}},
	}, {
		title: "Policies can wait for one another, but not for ever: what closes a circle is refused",
		commands: []command{{
			user:   cluster.Admin,
			show:   "order-storage.yaml",
			args:   []string{"apply", "-f", "order-storage.yaml"},
			output: []string{"policy.policy.open-cluster-management.io/storage created"},
		}, {
			user:    cluster.Admin,
			args:    []string{"apply", "-f", "order-database.yaml"},
			refused: true,
			output: []string{"policy/dependency-cycle",
				"Policy policies/database -> Policy policies/storage -> Policy policies/database"},
		}},
	}}
}
