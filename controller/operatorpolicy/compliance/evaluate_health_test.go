package compliance

import (
	"strings"
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
)

func TestEvaluateCSV(t *testing.T) {
	first := func(change func(*Installed)) given { return func(in *fixture) { change(in.CSVs[0]) } }
	for _, s := range []scenario{
		{
			name: "7.1 a ClusterServiceVersion that fails", given: []given{running, first(func(c *Installed) {
				c.Status.Phase, c.Status.Reason, c.Status.Message = "Failed", "UnsupportedOperatorGroup",
					"AllNamespaces InstallModeType not supported"
			})},
			want:    map[string]string{TypeClusterServiceVersion: "False UnsupportedOperatorGroup"},
			says:    map[string]string{TypeClusterServiceVersion: "ClusterServiceVersion (etcd.v1.2.0) - AllNamespaces InstallModeType not supported"},
			related: map[string][]string{kindClusterServiceVersion: {"etcd.v1.2.0 NonCompliant UnsupportedOperatorGroup"}},
		},
		{
			name: "R-ST-6 no reason: the phase", given: []given{running,
				first(func(c *Installed) { c.Status.Phase, c.Status.Reason, c.Status.Message = "Pending", "", "" })},
			want:    map[string]string{TypeClusterServiceVersion: "False Pending"},
			says:    map[string]string{TypeClusterServiceVersion: "ClusterServiceVersion (etcd.v1.2.0) - its phase is Pending"},
			related: map[string][]string{kindClusterServiceVersion: {"etcd.v1.2.0 NonCompliant Pending"}},
		},
		{
			name: "R-ST-6 neither reason nor phase", given: []given{running,
				first(func(c *Installed) { c.Status.Phase, c.Status.Reason, c.Status.Message = "", "", "" })},
			want: map[string]string{TypeClusterServiceVersion: "False Unknown"},
		},
		{
			name:  "R-ST-6 a reason that no condition takes",
			given: []given{running, first(func(c *Installed) { c.Status.Reason = "needs a rest ✨" })},
			want:  map[string]string{TypeClusterServiceVersion: "True Succeeded"},
		},
		{
			name: "24.2 a version that is not allowed",
			given: []given{running, spec(
				func(s *policyv1beta2.OperatorPolicySpec) { s.Versions = []string{"pie.v3.14159"} })},
			want:    map[string]string{TypeClusterServiceVersion: "False UnapprovedVersion"},
			says:    map[string]string{TypeClusterServiceVersion: "ClusterServiceVersion (etcd.v1.2.0) is not an approved version: allowed is pie.v3.14159"},
			related: map[string][]string{kindClusterServiceVersion: {"etcd.v1.2.0 NonCompliant ClusterServiceVersion (etcd.v1.2.0) is not an approved version"}},
		},
		{
			name: "a version out of range", given: []given{running,
				spec(func(s *policyv1beta2.OperatorPolicySpec) { s.VersionRange = ">=1.10.0" })},
			want: map[string]string{TypeClusterServiceVersion: "False UnapprovedVersion"},
		},
		{
			name: "a listed version, and startingCSV beside the list", given: []given{running, func(in *fixture) {
				in.Policy.Spec.Versions, in.Policy.Spec.Subscription.StartingCSV = []string{"a, b"}, "etcd.v1.2.0"
			}},
			want: map[string]string{TypeClusterServiceVersion: "True InstallSucceeded"},
		},
		{
			name: "the installed version is gone", given: []given{running, func(in *fixture) { in.CSVs = nil }},
			want: map[string]string{TypeClusterServiceVersion: "False ClusterServiceVersionMissing",
				TypeDeployment: "True NoRelevantDeployments"},
			says: map[string]string{TypeClusterServiceVersion: "the required ClusterServiceVersion etcd.v1.2.0 was not found",
				TypeDeployment: "there are no relevant Deployments because the ClusterServiceVersion is missing"},
			related: map[string][]string{kindClusterServiceVersion: {"etcd NonCompliant Resource not found but should exist"}},
		},
		{
			name: "a copy is not installed here", given: []given{ready, subscription("etcd"),
				csv("etcd.v1.2.0", func(c *Installed) { c.CopiedFrom, c.Package = "elsewhere", "" })},
			want: map[string]string{TypeClusterServiceVersion: "False ClusterServiceVersionMissing"},
		},
		{
			name: "one that no Subscription refers to is shown", given: []given{ready, csv("etcd.v1.2.0")},
			want: map[string]string{TypeClusterServiceVersion: "False ClusterServiceVersionMissing",
				TypeDeployment: "False NoExistingDeployments"},
			says:    map[string]string{TypeClusterServiceVersion: "no Subscription refers to ClusterServiceVersion etcd.v1.2.0, which is installed in namespace shop"},
			related: map[string][]string{kindClusterServiceVersion: {"etcd.v1.2.0 Compliant InstallSucceeded"}},
		},
		{
			name:  "OLM has written it and not noted it in the Subscription yet",
			given: []given{running, func(in *fixture) { in.Subscriptions[0].Status.InstalledCSV = "" }},
			want:  map[string]string{TypeClusterServiceVersion: "True InstallSucceeded"},
		},
		{
			name: "one that no Subscription refers to and that is not allowed",
			given: []given{ready, csv("etcd.v1.2.0"),
				spec(func(s *policyv1beta2.OperatorPolicySpec) { s.Versions = []string{"etcd.v1.3.0"} })},
			want: map[string]string{TypeClusterServiceVersion: "False UnapprovedVersion"},
		},
		{
			name:  "one of another package is not ours",
			given: []given{ready, csv("vault.v1.2.0", func(c *Installed) { c.Package = "vault" })},
			want:  map[string]string{TypeClusterServiceVersion: "False ClusterServiceVersionMissing"},
			says:  map[string]string{TypeClusterServiceVersion: "the required ClusterServiceVersion was not found"},
		},
	} {
		s.run(t)
	}
}

func TestEvaluateWorkload(t *testing.T) {
	two := func(in *fixture) { in.CSVs[0].Status.Deployments = []string{"etcd-operator", "etcd-backup"} }
	compliant := config(func(c *policyv1beta2.ComplianceConfig) { c.DeploymentsUnavailable = policyv1beta2.ConfigCompliant })
	for _, s := range []scenario{
		{
			name: "11.2 CustomResourceDefinitions", given: []given{running,
				func(in *fixture) { in.CRDs = []CRD{{ObjectMeta: olm.ObjectMeta{Name: "etcds.example.com", UID: "u"}}} }},
			want:    map[string]string{TypeCustomResourceDefinition: "True RelevantCRDFound"},
			related: map[string][]string{kindCustomResourceDefinition: {"etcds.example.com Compliant Resource found as expected"}},
		},
		{
			name:    "7.2 R-ST-11 no Deployment exists",
			given:   []given{running, two, func(in *fixture) { clear(in.Deployments) }},
			want:    map[string]string{TypeDeployment: "False NoExistingDeployments"},
			says:    map[string]string{TypeDeployment: "none of the operator's Deployments exist: etcd-backup, etcd-operator"},
			related: map[string][]string{kindDeployment: {"etcd-backup NonCompliant Resource not found but should exist", "etcd-operator NonCompliant Resource not found but should exist"}},
		},
		{
			name:  "R-ST-11 no Deployment exists, which is tolerated",
			given: []given{running, compliant, func(in *fixture) { clear(in.Deployments) }},
			want:  map[string]string{TypeDeployment: "True NoExistingDeployments"},
		},
		{
			name: "R-ST-11 one Deployment is missing", given: []given{running, two},
			want: map[string]string{TypeDeployment: "False DeploymentsUnavailable"},
			says: map[string]string{TypeDeployment: "the operator's Deployments are not all available; missing: etcd-backup"},
		},
		{
			name: "one is down and one missing", given: []given{running, two, deployment("etcd-operator", false)},
			want:    map[string]string{TypeDeployment: "False DeploymentsUnavailable"},
			says:    map[string]string{TypeDeployment: "the operator's Deployments are not all available; without their minimum availability: etcd-operator; missing: etcd-backup"},
			related: map[string][]string{kindDeployment: {"etcd-backup NonCompliant Resource not found but should exist", "etcd-operator NonCompliant Deployment Unavailable"}},
		},
		{
			name: "one is down, which is tolerated", given: []given{running, compliant,
				deployment("etcd-operator", false)},
			want: map[string]string{TypeDeployment: "True DeploymentsUnavailable"},
			related: map[string][]string{kindDeployment: {"etcd-operator Compliant Deployment Unavailable " +
				"(policy compliance is not impacted due to spec.complianceConfig.deploymentsUnavailable)"}},
		},
		{
			name: "an operator without Deployments", given: []given{running,
				func(in *fixture) { in.CSVs[0].Status.Deployments = nil }},
			want: map[string]string{TypeDeployment: "True NoRelevantDeployments"},
		},
	} {
		s.run(t)
	}
}

// prevented is a Subscription that OLM does not resolve.
func prevented(message string) given {
	return func(in *fixture) { failing("ErrorPreventedResolution", message)(in.Subscriptions[0]) }
}

// others are further CatalogSources that are not ready.
func others(catalogs ...string) given {
	return func(in *fixture) {
		own := in.CatalogSource
		for _, c := range append(catalogs, "olm/community") {
			namespace, name, _ := strings.Cut(c, "/")
			in.Catalogs = append(in.Catalogs, olm.Catalog{Namespace: namespace, Name: name})
		}
		in.CatalogSource = func(c olm.Catalog) *olm.CatalogSource {
			if c.Name == "community" {
				return own(c)
			}
			live := &olm.CatalogSource{Metadata: olm.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
			live.Status.Connection.State = "CONNECTING"
			return live
		}
	}
}

func TestEvaluateCatalog(t *testing.T) {
	const blocks = ` is unhealthy: its state is "CONNECTING", and OLM resolves nothing in namespace shop until it is healthy or deleted`
	const tolerated = "; policy compliance is not impacted due to spec.complianceConfig.catalogSourceUnhealthy"
	matters := config(func(c *policyv1beta2.ComplianceConfig) { c.CatalogSourceUnhealthy = policyv1beta2.ConfigNonCompliant })
	for _, s := range []scenario{
		{
			name: "8.3 absent", given: []given{running, func(in *fixture) {
				in.CatalogSource = func(olm.Catalog) *olm.CatalogSource { return nil }
			},
				asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Source = "fake" })},
			want:    map[string]string{TypeCatalogSourcesUnhealthy: "False CatalogSourcesNotFound"},
			says:    map[string]string{TypeCatalogSourcesUnhealthy: "CatalogSource olm/fake was not found" + tolerated},
			related: map[string][]string{kindCatalogSource: {"fake Compliant Resource not found but should exist"}},
		},
		{
			name: "8.4 unhealthy", given: []given{running, catalogState("TRANSIENT_FAILURE")},
			want:    map[string]string{TypeCatalogSourcesUnhealthy: "False CatalogSourcesFoundUnhealthy"},
			related: map[string][]string{kindCatalogSource: {"community Compliant Resource found as expected but is unhealthy"}},
		},
		{
			name: "M-14 others keep OLM from resolving",
			given: []given{running, prevented("error using catalogsource olm/broken: no connection"),
				others("olm/broken", "shop/local", "elsewhere/unseen")},
			want: map[string]string{TypeCatalogSourcesUnhealthy: "False CatalogSourcesFoundUnhealthy"},
			says: map[string]string{TypeCatalogSourcesUnhealthy: "CatalogSource was found; CatalogSource olm/broken" +
				blocks + "; CatalogSource shop/local" + blocks + tolerated},
			related: map[string][]string{kindCatalogSource: {"community Compliant Resource found as expected",
				"broken Compliant Resource found as expected but is unhealthy",
				"local Compliant Resource found as expected but is unhealthy"}},
		},
		{
			name: "M-14 and it matters", given: []given{running,
				prevented("error using catalogsource olm/broken: no connection"), others("olm/broken"), matters},
			want: map[string]string{TypeCatalogSourcesUnhealthy: "True CatalogSourcesFoundUnhealthy"},
			related: map[string][]string{kindCatalogSource: {"community Compliant Resource found as expected",
				"broken NonCompliant Resource found as expected but is unhealthy"}},
		},
		{
			name: "M-14 a global catalog that only the message names",
			given: []given{running, prevented("error using catalogsource market/global: no connection"),
				others("market/global", "market/glob")},
			want: map[string]string{TypeCatalogSourcesUnhealthy: "False CatalogSourcesFoundUnhealthy"},
			says: map[string]string{TypeCatalogSourcesUnhealthy: "CatalogSource was found; CatalogSource market/global" + blocks + tolerated},
		},
		{
			name: "M-14 its own is unhealthy too", given: []given{running, prevented("down"),
				catalogState("TRANSIENT_FAILURE"), others("olm/broken")},
			want: map[string]string{TypeCatalogSourcesUnhealthy: "False CatalogSourcesFoundUnhealthy"},
			says: map[string]string{TypeCatalogSourcesUnhealthy: `CatalogSource olm/community was found but is unhealthy: its state is "TRANSIENT_FAILURE"; ` +
				"CatalogSource olm/broken" + blocks + tolerated},
		},
		{
			name: "M-14 OLM resolves all the same", given: []given{running, others("olm/broken")},
			want: map[string]string{TypeCatalogSourcesUnhealthy: "False CatalogSourcesFound"},
		},
		{
			name: "M-14 OLM fails for another reason", given: []given{running, others("olm/broken"),
				func(in *fixture) { failing(reasonUnsatisfiable, "subscription etcd exists")(in.Subscriptions[0]) }},
			want: map[string]string{TypeCatalogSourcesUnhealthy: "False CatalogSourcesFound"},
		},
		{
			name: "8.5 unhealthy, and it matters", given: []given{running, catalogState("TRANSIENT_FAILURE"), matters},
			want:    map[string]string{TypeCatalogSourcesUnhealthy: "True CatalogSourcesFoundUnhealthy"},
			says:    map[string]string{TypeCatalogSourcesUnhealthy: `CatalogSource olm/community was found but is unhealthy: its state is "TRANSIENT_FAILURE"`},
			related: map[string][]string{kindCatalogSource: {"community NonCompliant Resource found as expected but is unhealthy"}},
		},
		{
			name: "R-ST-8 without a state", given: []given{running, catalogState("")},
			want: map[string]string{TypeCatalogSourcesUnhealthy: "False LastObservedUnknown"},
		},
		{
			name: "R-ST-8 without a state, and it matters", given: []given{running, catalogState(""), matters},
			want:    map[string]string{TypeCatalogSourcesUnhealthy: "True LastObservedUnknown"},
			related: map[string][]string{kindCatalogSource: {"community NonCompliant Resource found but current state is unknown"}},
		},
		{
			name: "R-LP-7 not known yet", given: []given{ready, defaults, matters},
			want:    map[string]string{TypeCatalogSourcesUnhealthy: "True CatalogSourcesNotFound"},
			says:    map[string]string{TypeCatalogSourcesUnhealthy: "the CatalogSource is not known, because the package etcd was not (yet) found in a catalog"},
			related: map[string][]string{kindCatalogSource: {"- NonCompliant Resource not found but should exist"}},
		},
	} {
		s.run(t)
	}
}
