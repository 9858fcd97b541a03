package dependency

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

const (
	// maxWaits bounds the dependencies that a status lists, maxWaitTemplates the templates that each of them names.
	maxWaits         = 20
	maxWaitTemplates = 5
)

// readWaits reads the pending dependencies of a status.
func readWaits(list []policyv1.DependencyStatus) []Wait {
	list = list[:min(len(list), maxWaits)]
	waits := make([]Wait, 0, len(list))
	for i := range list {
		d := &list[i]
		w := Wait{
			Ref:    Ref{Group: PolicyGroup, Kind: d.Kind, Namespace: d.Namespace, Name: d.Name},
			Reason: Reason(d.Reason), Want: State(d.Compliance), State: State(d.State), Templates: d.Templates,
		}
		if d.APIVersion != "" {
			gv, _ := schema.ParseGroupVersion(d.APIVersion)
			w.Ref.Group = gv.Group
		}
		waits = append(waits, w)
	}
	return waits
}

// wanted identifies one entry of the list: two templates may want the same object in different states.
type wanted struct {
	Ref
	want State
}

// listWaits returns the list for the status, one entry per object and state, and the total number of entries. For an object that has not
// been read yet, it repeats the previous entry.
func listWaits(outcomes []TemplateOutcome, before []policyv1.DependencyStatus) ([]policyv1.DependencyStatus, int) {
	said := map[wanted]*policyv1.DependencyStatus{}
	for i, w := range readWaits(before) {
		said[wanted{w.Ref, w.Want}] = &before[i]
	}
	lines := map[wanted]*policyv1.DependencyStatus{}
	var order []wanted
	for i := range outcomes {
		for j := range outcomes[i].Unmet {
			f := &outcomes[i].Unmet[j]
			k := wanted{f.Ref, f.Want}
			line := lines[k]
			if line == nil {
				line = lineOf(f, said[k])
				lines[k], order = line, append(order, k)
			}
			if len(line.Templates) < maxWaitTemplates && !slices.Contains(line.Templates, outcomes[i].Template) {
				line.Templates = append(line.Templates, outcomes[i].Template)
			}
		}
	}
	slices.SortFunc(order, func(a, b wanted) int { return cmp.Or(a.Compare(b.Ref), cmp.Compare(a.want, b.want)) })
	var list []policyv1.DependencyStatus
	for _, k := range order[:min(len(order), maxWaits)] {
		list = append(list, *lines[k])
	}
	return list, len(order)
}

func lineOf(f *Finding, before *policyv1.DependencyStatus) *policyv1.DependencyStatus {
	line := &policyv1.DependencyStatus{
		Kind: f.Kind, Namespace: f.Namespace, Name: f.Name, Compliance: policyv1.ComplianceState(f.Want),
		Reason: string(f.Reason), Message: f.Text,
	}
	if f.Version != "" {
		line.APIVersion = schema.GroupVersion{Group: f.Group, Version: f.Version}.String()
	}
	if known(f.State) {
		line.State = policyv1.ComplianceState(f.State)
	}
	if f.Unread && before != nil {
		line.Reason, line.Message, line.State = before.Reason, before.Message, before.State
	}
	return line
}
