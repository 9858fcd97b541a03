package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
)

// resolutionFailed is the condition of a Subscription that OLM could not resolve.
const resolutionFailed = "ResolutionFailed"

// unreferencedPattern matches what OLM writes of a ClusterServiceVersion that is installed without a Subscription.
var unreferencedPattern = regexp.MustCompile(`clusterserviceversion (\S+) exists and is not referenced`)

// Unreferenced returns the names of the ClusterServiceVersions that, by OLM's condition, no Subscription refers to.
func Unreferenced(s *olm.Subscription) []string {
	c := s.Condition(resolutionFailed)
	if c == nil {
		return nil
	}
	var names []string
	for _, match := range unreferencedPattern.FindAllStringSubmatch(c.Message, -1) {
		names = append(names, strings.TrimRight(match[1], ",:"))
	}
	return names
}

// FailureOutdated reports whether OLM could not resolve a Subscription for a ClusterServiceVersion that is gone, or
// that the Subscription refers to by now. OLM v0.42 may resolve while it deletes a replaced one, v0.46 while it links a
// new one, and neither resolves again.
func FailureOutdated(s *olm.Subscription, csvs []*olm.CSV) bool {
	return slices.ContainsFunc(Unreferenced(s), func(name string) bool {
		return name == s.Status.CurrentCSV || !slices.ContainsFunc(csvs,
			func(c *olm.CSV) bool { return c.Metadata.Name == name })
	})
}

// Lost returns the ClusterServiceVersion that a Subscription should refer to and does not, nil if there is none: OLM does
// not find it again after the Subscription was created anew, and resolves nothing in the namespace. A copy is never
// returned: it is installed elsewhere.
func Lost(s *olm.Subscription, csvs []*olm.CSV) *olm.CSV {
	if s == nil || s.Status.InstalledCSV != "" || s.Status.CurrentCSV != "" {
		return nil
	}
	var unclear *olm.CSV
	for _, name := range Unreferenced(s) {
		i := slices.IndexFunc(csvs, func(c *olm.CSV) bool { return c.Metadata.Name == name && c.Metadata.Labels.CopiedFrom == "" })
		if i < 0 || csvs[i].Status.Reason == "Copied" {
			continue
		}
		csv, of := csvs[i], csvs[i].Metadata.Annotations.OperatorNamespace
		switch {
		case of != "" && of != s.Metadata.Namespace:
		case csv.Bundle.Package == s.Spec.Package:
			return csv
		case csv.Bundle.Package == "":
			unclear = csv
		}
	}
	return unclear
}

// Dangling reports whether OLM treats a deleted plan as pending.
func Dangling(s *olm.Subscription, ns *state.Namespace) bool {
	return s.Status.State == olm.StateUpgradePending && s.Status.InstallPlan.Name != "" &&
		!slices.ContainsFunc(ns.Plans(), func(p *olm.InstallPlan) bool { return p.Metadata.Name == s.Status.InstallPlan.Name })
}

// RepairByHand returns, as a clause, what is wrong with a Subscription that OLM does not resolve any more, and the command
// by which a user repairs it as the loop does for an enforced policy; "" if nothing is.
func RepairByHand(s *olm.Subscription, ns *state.Namespace) string {
	command := func(status string) string {
		return fmt.Sprintf("kubectl patch subscriptions.operators.coreos.com %s --namespace %s --subresource=status --type=merge "+
			"--patch '{\"status\":{%s}}'", text.Name(s.Metadata.Name), text.Name(s.Metadata.Namespace), status)
	}
	if csv := Lost(s, ns.CSVs()); csv != nil {
		name := text.Name(csv.Metadata.Name)
		return "it lost track of its ClusterServiceVersion " + name + ", which an enforced policy links again; without one: " +
			command(`"currentCSV":"`+name+`"`)
	}
	if Dangling(s, ns) {
		return "OLM waits for InstallPlan " + text.Name(s.Status.InstallPlan.Name) +
			", which is gone, and an enforced policy makes it plan again; without one: " +
			command(`"installPlanRef":null,"installplan":null,"currentCSV":null,"state":null`)
	}
	return ""
}
