package docs

import (
	"regexp"
	"strings"
	"testing"
)

// commands are the blocks of shell commands in documents, each with the tests that run it, or run the same with other
// names, and where there are none with the reason.
var commands = []struct {
	document, begins string
	tests            []string
	why              string
}{
	{document: "README.md", begins: "$ kubectl patch installplan install-etcd-0.9.4", tests: []string{"TestReadme"}},
	{document: "docs/first-hour.md", tests: []string{"TestLoopOLM/stories 1 to 7 as one walk", "TestReadme",
		"TestDocument", "TestCheckCluster"}},
	{document: "README.md", begins: "$ bin/opgate check -f manifests/samples/subscription-catalog-deny",
		tests: []string{"TestReadmes"}},
	{document: "README.md", begins: "helm install opgate", tests: []string{"TestInstall"}},
	{document: "README.md", begins: "make test", why: "runs the tests"},
	{document: "docs/backstop.md", begins: "opgate compile", tests: []string{"TestBackstop"}},
	{document: "docs/backup.md", begins: "kubectl get operatorpolicies,policies", tests: []string{"TestRestore"}},
	{document: "docs/backup.md", begins: "kubectl rollout restart", tests: []string{"TestInstall"}},
	{document: "docs/backup.md", begins: "kubectl create namespace opgate-system", tests: []string{"TestRestore"}},
	{document: "docs/certificates.md", begins: "kubectl annotate secret opgate-ca", tests: []string{"TestInstall"}},
	{document: "docs/certificates.md", begins: "kubectl get secret opgate-ca",
		why: "needs openssl, which tests do not require"},
	{document: "docs/certificates.md", begins: "kubectl patch secret opgate-ca", tests: []string{"TestInstall"}},
	{document: "docs/check.md", begins: "opgate check .", tests: []string{"TestDocument"}},
	{document: "docs/check.md", begins: "$ opgate check .", tests: []string{"TestFirstPullRequest"}},
	{document: "docs/check.md", begins: "$ sed -i s/stable/alpha/", tests: []string{"TestFirstPullRequest"}},
	{document: "docs/check.md", begins: "git worktree",
		why: "needs two branches; TestScripts compares two directories"},
	{document: "docs/check.md", begins: "opgate check --live", tests: []string{"TestCheckCluster"}},
	{document: "docs/check.md", begins: "kustomize build", why: "needs kustomize; TestScripts pipes manifests"},
	{document: "docs/lockfile.md", begins: "opgate adopt -A", tests: []string{"TestScripts", "TestLoopOLM/a lockfile"}},
	{document: "docs/lockfile.md", begins: "opgate suggest -A", tests: []string{"TestScripts", "TestLoopOLM/a lockfile"}},
	{document: "docs/test.md", begins: "opgate test", tests: []string{"TestDocument"}},
	{document: "docs/consent.md", begins: "kubectl annotate installplan", tests: []string{"TestConsentByAnnotation"}},
	{document: "docs/consent.md", begins: "kubectl create rolebinding approvers",
		tests: []string{"TestConsentByAnnotation"}},
	{document: "docs/consent.md", begins: "opgate diff shop/install-x7", tests: []string{"TestLoopOLM"}},
	{document: "docs/constraints.md", begins: "$ kubectl get constraints", tests: []string{"TestPrinterColumns"}},
	{document: "docs/constraints.md", begins: "kubectl patch constraint maintenance",
		why: "it changes one value; TestRecipes judges with either"},
	{document: "docs/conversion.md", begins: "kubectl get operatorpolicies -A", tests: []string{"TestConversionMigrate"}},
	{document: "docs/conversion.md", begins: "kubectl patch customresourcedefinition",
		tests: []string{"TestConversionEmergency"}},
	{document: "docs/deletion.md", begins: "kubectl patch operatorpolicy", tests: []string{"TestDeletion"}},
	{document: "docs/deletion.md", begins: "kubectl annotate subscription", tests: []string{"TestDeletion"}},
	{document: "docs/diff.md", begins: "opgate diff --from-bundle", tests: []string{"TestBundles"}},
	{document: "docs/diff.md", begins: "kubectl opgate diff", tests: []string{"TestLoopOLM"}},
	{document: "docs/diff.md", begins: "$ opgate diff -f", tests: []string{"TestDocument"}},
	{document: "docs/diff.md", begins: "opgate diff --catalog", tests: []string{"TestCatalog"}},
	{document: "docs/diff.md", begins: "kubectl get installplans",
		why: "prints objects of a cluster; TestFiles compares such objects"},
	{document: "docs/disconnected.md", begins: "helm install opgate", tests: []string{"TestInstall", "TestValues"}},
	{document: "docs/emergency.md", begins: "kubectl -n opgate-system get", tests: []string{"TestInstall"}},
	{document: "docs/backstop.md", begins: "kubectl get events", tests: []string{"TestBackstopKept"}},
	{document: "docs/image.md", begins: "make image  ", tests: []string{"TestImage", "TestBaseAndPush"}},
	{document: "docs/image.md", begins: "docker buildx build", tests: []string{"TestDockerfileMakesTheSameImage"}},
	{document: "docs/image.md", begins: "git checkout", why: "needs a release, its registry and crane"},
	{document: "docs/image.md", begins: "helm upgrade --install", tests: []string{"TestInstall", "TestValues"}},
	{document: "docs/image.md", begins: "crane copy", why: "needs two registries, crane and skopeo"},
	{document: "docs/image.md", begins: "make image ARCHIVE",
		why: "needs kind and k3d; the archive is tested by TestImage"},
	{document: "docs/release.md", begins: "make release-dry-run", tests: []string{"TestInstallRelease"}},
	{document: "docs/release.md", begins: "cosign verify-blob",
		why: "needs cosign; TestInstallRelease verifies the same by its libraries"},
	{document: "docs/release.md", begins: "cosign verify ",
		why: "needs cosign; TestInstallRelease verifies the same by its libraries"},
	{document: "docs/release.md", begins: "cd tools", tests: []string{"TestInstallRelease"}},
	{document: "docs/release.md", begins: "helm install", tests: []string{"TestInstallRelease", "TestManifest"}},
	{document: "docs/lockfile.md", begins: "kubectl opgate plan", tests: []string{"TestScripts", "TestLoopOLM/a lockfile"}},
	{document: "docs/lockfile.md", begins: "opgate report", tests: []string{"TestScripts", "TestLoopOLM/a lockfile"}},
	{document: "docs/reports.md", begins: "helm repo add", why: "needs a network and nodes"},
	{document: "docs/reports.md", begins: "helm upgrade", tests: []string{"TestValues"}},
	{document: "docs/reports.md", begins: "kubectl get reports", tests: []string{"TestReports"}},
	{document: "docs/install.md",
		begins: "helm install opgate manifests/chart/opgate --namespace opgate-system --create-namespace --set ordering",
		tests:  []string{"TestUninstall"}},
	{document: "docs/install.md",
		begins: "helm install opgate manifests/chart/opgate --namespace opgate-system --create-namespace --set olm.identity=system:admin",
		tests:  []string{"TestHostedControlPlane", "TestValues"}},
	{document: "docs/migration/acm.md", begins: "helm install opgate", tests: []string{"TestACM"}},
	{document: "docs/install.md",
		begins: "helm install opgate manifests/chart/opgate --namespace opgate-system --create-namespace\n",
		tests:  []string{"TestInstall"}},
	{document: "docs/install.md",
		begins: "helm install opgate manifests/chart/opgate --namespace opgate-system --create-namespace \\",
		tests:  []string{"TestInstallCertManager"}},
	{document: "docs/install.md",
		begins: "helm install opgate manifests/chart/opgate --namespace opgate-system --create-namespace --take",
		tests:  []string{"TestUninstall"}},
	{document: "docs/install.md", begins: "kubectl label namespace",
		why: "the tests' namespaces have no level; TestPodSecurity holds the pods to it"},
	{document: "docs/install.md", begins: "kubectl apply --server-side -k",
		tests: []string{"TestInstall", "TestOverlays"}},
	{document: "docs/install.md", begins: "kubectl rollout status", tests: []string{"TestInstall"}},
	{document: "docs/install.md", begins: "helm test", tests: []string{"TestInstall", "TestHelm3"}},
	{document: "docs/install.md", begins: "kubectl get deployments",
		tests: []string{"TestReadme", "TestInstall"}},
	{document: "docs/install.md",
		begins: "helm upgrade opgate manifests/chart/opgate --namespace opgate-system --reset-then-reuse-values   #",
		why:    "TestInstall upgrades with --reset-values and with --reuse-values, and has the UID"},
	{document: "docs/upgrade.md", begins: "kubectl annotate policies", tests: []string{"TestDependency"}},
	{document: "docs/install.md", begins: "make bundle",
		why: "needs a registry and docker; TestValidators and TestCatalog judge what it writes, TestBundle installs it"},
	{document: "docs/install.md", begins: "kubectl delete subscriptions.operators.coreos.com opgate",
		tests: []string{"TestBundle"}},
	{document: "docs/install.md", begins: "helm uninstall", tests: []string{"TestInstall"}},
	{document: "docs/install.md", begins: "kubectl delete -f manifests/base/webhooks.yaml",
		tests: []string{"TestInstall"}},
	{document: "docs/install.md", begins: "kubectl patch policies", tests: []string{"TestDependencyWatches"}},
	{document: "docs/install.md", begins: "kubectl patch customresourcedefinition", tests: []string{"TestInstall"}},
	{document: "docs/install.md", begins: "kubectl delete clusterserviceversions",
		why: "TestUninstall deletes the same kinds one at a time"},
	{document: "docs/install.md", begins: "kubectl delete configmaps", tests: []string{"TestDocumentedRemoval"}},
	{document: "docs/install.md", begins: "kubectl delete clusterrole opgate-backstop",
		tests: []string{"TestInstall"}},
	{document: "docs/install.md", begins: "kubectl create rolebinding policy-authors", tests: []string{"TestReadme"}},
	{document: "docs/install.md", begins: "kubectl create clusterrolebinding constraint-authors",
		tests: []string{"TestReadme"}},
	{document: "docs/install.md", begins: "kubectl create clusterrole operator-break-glass",
		tests: []string{"TestReadme"}},
	{document: "docs/install.md", begins: "kubectl create clusterrolebinding prometheus-opgate",
		tests: []string{"TestReadme"}},
	{document: "docs/install.md", begins: "kubectl create secret docker-registry",
		why: "needs a registry with passwords; TestValues has the values"},
	{document: "docs/operatorpolicy.md", begins: "$ kubectl describe installplan install-x7", tests: []string{"TestLoopAlone"}},
	{document: "docs/ordering.md", tests: []string{"TestDependency"}},
	{document: "docs/performance.md", begins: "make bench  ",
		why: "measures for minutes; TestLoopRequests is a test itself"},
	{document: "docs/performance.md", begins: "make bench BENCH_FLAGS='--rounds",
		why: "measures for minutes; TestRun of bench/bench runs one round"},
	{document: "docs/plugin.md", begins: "ln -s", tests: []string{"TestPluginCompletes"}},
	{document: "docs/plugin.md", begins: "$ kubectl opgate pending", tests: []string{"TestPluginDocument"}},
	{document: "docs/plugin.md", begins: "kubectl opgate pending -l", tests: []string{"TestPlugin", "TestFormats"}},
	{document: "docs/plugin.md", begins: "$ kubectl opgate why", tests: []string{"TestPluginDocument"}},
	{document: "docs/plugin.md", begins: "kubectl create clusterrolebinding", tests: []string{"TestPluginRights"}},
	{document: "docs/rules.md", begins: "kubectl patch installplan install-x7", tests: []string{"TestReadme"}},
	{document: "docs/performance.md", begins: "make scale",
		why: "measures for an hour; TestScale runs it on three namespaces"},
	{document: "docs/stability.md", begins: "go test ./docs", tests: []string{"TestStableNames", "TestStableCommands"}},
	{document: "docs/upgrade.md", begins: "helm upgrade opgate",
		why: "TestInstall upgrades with --reset-values and with --reuse-values"},
	{document: "docs/upgrade.md", begins: "helm rollback opgate",
		why: "there is no release to go back to; TestInstall upgrades from another version of the chart"},
	{document: "docs/sources.md", begins: "kubectl get pods -n olm -l olm.catalogSource",
		tests: []string{"TestMovedTag"}},
}

// TestCommands holds commands to the README and the documents: each block of shell commands is listed once, with tests
// that exist or with a reason, and nothing is listed that no document has.
func TestCommands(t *testing.T) {
	exists := tests(t)
	found := make([]int, len(commands))
	block := regexp.MustCompile("(?sm)^```(sh|shell|console|text)\n(.*?)^```$")
	for name, text := range source(t, ".md") {
		if name != "README.md" && (!strings.HasPrefix(name, "docs/") || strings.HasPrefix(name, "docs/decisions/")) {
			continue
		}
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			if m[1] == "text" && !strings.HasPrefix(m[2], "$ ") {
				continue // what something prints
			}
			listed := 0
			for i, c := range commands {
				if c.document == name && strings.HasPrefix(m[2], c.begins) {
					found[i]++
					listed++
				}
			}
			if listed != 1 {
				t.Errorf("%s has a block that is listed %d times:\n%s", name, listed, m[2])
			}
		}
	}
	for i, c := range commands {
		if found[i] == 0 || found[i] > 1 && c.begins != "" {
			t.Errorf("%s has %d blocks that begin with %q", c.document, found[i], c.begins)
		}
		if (len(c.tests) == 0) == (c.why == "") {
			t.Errorf("%s, %q: want tests, or a reason where there are none", c.document, c.begins)
		}
		for _, name := range c.tests {
			if !exists(name) {
				t.Errorf("%s, %q names %s, which is no test", c.document, c.begins, name)
			}
		}
	}
}
