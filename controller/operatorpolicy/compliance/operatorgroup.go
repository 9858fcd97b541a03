package compliance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/stream"
)

// operatorGroup compares the OperatorGroup of the namespace with that of the policy; usable is false
// if OLM could not install the operator with it.
//
// A group that is not usable only prevents the creation of a Subscription: the policy still governs an
// operator that is installed, and its plans are still approved.
func (e *evaluation) operatorGroup() (f Condition, actions []Action, usable bool) {
	switch groups := e.Namespace.Groups(); {
	case len(groups) == 0:
		return e.missingGroup()
	case len(groups) > 1:
		names := make([]string, len(groups))
		related := make([]policyv1beta2.RelatedObject, len(groups))
		for i := range groups {
			names[i] = groups[i].Metadata.Name
			related[i] = e.related(kindOperatorGroup, groups[i].Metadata, policyv1beta2.NonCompliant,
				relatedTooManyGroups)
		}
		return condition(TypeOperatorGroup, metav1.ConditionFalse, "TooManyOperatorGroups", fmt.Sprintf(
			"there is more than one OperatorGroup in namespace %s, so that OLM installs nothing there: %s",
			e.wanted.namespace, text.Names(names, maxListed)), related...), nil, false
	case e.wanted.group != nil && e.wanted.group.Name != groups[0].Metadata.Name:
		return e.otherGroup(groups[0]), nil, false
	}
	return e.presentGroup(e.Namespace.Groups()[0])
}

// otherGroup is for a namespace that has a group of another name. A second one would stop
// OLM from installing anything there, so none is created.
func (e *evaluation) otherGroup(group *olm.OperatorGroup) Condition {
	missing := olm.ObjectMeta{Namespace: e.wanted.namespace, Name: e.wanted.group.Name}
	return condition(TypeOperatorGroup, metav1.ConditionFalse, "OperatorGroupMismatch", fmt.Sprintf(
		"the OperatorGroup %s does not match the policy: metadata.name is %s, want %s; a namespace can have only one",
		named(&group.Metadata), text.Quote(group.Metadata.Name), text.Quote(missing.Name)),
		e.related(kindOperatorGroup, group.Metadata, policyv1beta2.NonCompliant, relatedMismatch),
		e.related(kindOperatorGroup, missing, policyv1beta2.NonCompliant, relatedMissing))
}

// presentGroup is for the only group of the namespace, if the policy names it or names
// none.
func (e *evaluation) presentGroup(group *olm.OperatorGroup) (Condition, []Action, bool) {
	as := func(state policyv1beta2.ComplianceState, reason string) policyv1beta2.RelatedObject {
		return e.related(kindOperatorGroup, group.Metadata, state, reason)
	}
	live := groupContent(group)
	if differing := e.groupDifferences(group, live); len(differing) > 0 {
		return e.differentGroup(group, live, differing)
	}
	// An existing OperatorGroup counts only if the operator can use it.
	if problem := e.unsupported(&group.Metadata, live); problem != "" {
		if spec, _ := e.defaultGroup(); len(spec) > 0 && e.madeTooEarly(group, live) {
			return e.differentGroup(group, live, e.withMark(group, live, differences(live, spec, "spec"), spec))
		}
		return condition(TypeOperatorGroup, metav1.ConditionFalse, "OperatorGroupMismatch", problem,
			as(policyv1beta2.NonCompliant, relatedMismatch)), nil, false
	}
	related := as(policyv1beta2.Compliant, relatedFound)
	if e.wanted.group == nil && group.Metadata.GenerateName != e.wanted.namespace+"-" {
		return condition(TypeOperatorGroup, metav1.ConditionTrue, "PreexistingOperatorGroupFound",
			"the policy does not specify an OperatorGroup but one already exists in the namespace - assuming that OperatorGroup is correct"+selectsNothing(live), related), nil, true
	}
	return condition(TypeOperatorGroup, metav1.ConditionTrue, "OperatorGroupMatches",
		"the OperatorGroup matches what is required by the policy"+e.otherScope(group, live)+selectsNothing(live),
		related), nil, true
}

// groupDifferences compares a group with the one that the policy names. Beside its target namespaces the group has no
// selector, and the reverse. What the policy has set in a group that it created, and does not set any more, goes as well,
// but for the account: without one OLM installs as cluster admin.
func (e *evaluation) groupDifferences(group *olm.OperatorGroup, live map[string]any) []difference {
	if e.wanted.group == nil {
		return nil
	}
	want := maps.Clone(e.wanted.group.Fields)
	before, _, _ := rules.Created(e.Key, e.Policy, kindOperatorGroup, &group.Metadata)
	if e.wanted.group.Targets() {
		before = append(before, operatorpolicy.GroupTargets, operatorpolicy.GroupSelector)
	}
	for _, field := range before {
		if _, set := want[field]; !set && field != operatorpolicy.GroupAccount {
			want[field] = nil
		}
	}
	return e.withMark(group, live, differences(live, want, "spec"), e.wanted.group.Fields)
}

// withMark adds to the differences of a group that an enforced policy created a mark with other fields.
func (e *evaluation) withMark(
	group *olm.OperatorGroup, live map[string]any, differing []difference, fields map[string]any,
) []difference {
	if _, marked, _ := rules.Created(e.Key, e.Policy, kindOperatorGroup, &group.Metadata); !marked || !e.enforced {
		return differing
	}
	mark := e.mark(map[string]any{}, kindOperatorGroup, &group.Metadata, fields)
	return append(differing, differences(live, mark, "metadata", "annotations")...)
}

// otherScope states for which namespaces a group is that the policy would have created for others, to follow a sentence;
// "" for one that is as the policy sets it, or of which that is not known.
func (e *evaluation) otherScope(group *olm.OperatorGroup, live map[string]any) string {
	wrote, marked, created := rules.Created(e.Key, e.Policy, kindOperatorGroup, &group.Metadata)
	would := map[string]any{}
	if e.wanted.group == nil {
		would, _ = e.defaultGroup()
	}
	asMade := &operatorpolicy.Group{Fields: would}
	targeted := slices.Contains(wrote, operatorpolicy.GroupTargets) || slices.Contains(wrote, operatorpolicy.GroupSelector)
	targets, known := targetsOf(live)
	switch {
	case e.wanted.group.Targets(), e.wanted.group == nil && !created, created && targeted != asMade.Targets(),
		stream.Withheld(object(live, "spec")[operatorpolicy.GroupTargets]),
		known && operatorpolicy.Same(operatorpolicy.GroupTargets, anySlice(targets), would[operatorpolicy.GroupTargets]):
		return ""
	}
	scope := "what its spec.selector selects"
	switch {
	case known && len(targets) == 0:
		scope = "all namespaces"
	case known:
		scope = text.Names(targets, maxListed)
	}
	if e.wanted.group != nil && !marked {
		return "; it is for " + scope + ", which stays, since the policy names no target namespaces"
	}
	return "; the policy created it for other namespaces: another client has changed it, and it is for " + scope +
		" now; name the target namespaces in spec.operatorGroup to have them enforced"
}

// madeTooEarly reports whether this policy created a group for all namespaces before it was known that the operator
// does not support that, and no other Subscription exists there that may need it.
func (e *evaluation) madeTooEarly(group *olm.OperatorGroup, live map[string]any) bool {
	targets, known := targetsOf(live)
	return known && len(targets) == 0 && e.wanted.group == nil && e.generated(group) &&
		!slices.ContainsFunc(e.Namespace.Subscriptions(), func(s *olm.Subscription) bool { return s.Spec.Package != e.wanted.name })
}

// generated reports whether this policy created a group because there was none.
func (e *evaluation) generated(group *olm.OperatorGroup) bool {
	return group.Metadata.GenerateName == e.wanted.namespace+"-" &&
		e.createdByPolicy(kindOperatorGroup, &group.Metadata)
}

func (e *evaluation) differentGroup(
	group *olm.OperatorGroup, live map[string]any, differences []difference,
) (Condition, []Action, bool) {
	f := condition(TypeOperatorGroup, metav1.ConditionFalse, "OperatorGroupMismatch",
		"the OperatorGroup "+named(&group.Metadata)+" does not match the policy: "+differing(differences),
		e.related(kindOperatorGroup, group.Metadata, policyv1beta2.NonCompliant, relatedMismatch))
	if e.leavesGroup(&f) || !e.enforced {
		return f, nil, false
	}
	done := condition(TypeOperatorGroup, metav1.ConditionTrue, "OperatorGroupUpdated",
		"the OperatorGroup "+named(&group.Metadata)+" was updated to match the policy",
		e.related(kindOperatorGroup, group.Metadata, policyv1beta2.Compliant, relatedUpdated))
	return f, []Action{{Live: live, Object: corrected(live, differences), Done: done,
		Failed: f.because("enforced")}}, true
}

// leavesGroup adds to a condition whose the group is that the policy names, and reports whether it is another policy's.
func (e *evaluation) leavesGroup(f *Condition) bool {
	holder, field, why := rules.GroupHolder(e.Key, e.Namespace, e.Rules)
	if holder != nil {
		f.Message += "; it belongs to " + holder.Source() + ", " + why + ", so this policy does not write it: leave " + field +
			" to that policy, or install the operator in another namespace"
	}
	return holder != nil
}

// missingGroup is for a namespace without a group.
func (e *evaluation) missingGroup() (Condition, []Action, bool) {
	o := olm.ObjectMeta{Namespace: e.wanted.namespace, Name: noName}
	metadata, fields := map[string]any{"namespace": o.Namespace}, map[string]any(nil)
	spec, recorded, note := map[string]any(nil), e.recordedGroup(), ""
	if e.wanted.group != nil {
		o.Name = e.wanted.group.Name
		fields = e.wanted.group.Fields
		metadata["name"], spec = o.Name, maps.Clone(fields)
		if account := recorded[operatorpolicy.GroupAccount]; account != nil && spec[operatorpolicy.GroupAccount] == nil {
			spec[operatorpolicy.GroupAccount], note = account,
				fmt.Sprintf(" with serviceAccountName %s of the one that was deleted", text.Quote(fmt.Sprint(account)))
		}
	} else {
		o.GenerateName = o.Namespace + "-"
		metadata["generateName"] = o.GenerateName
		if spec, note = recorded, " with the spec of the one that was deleted"; spec == nil {
			spec, note = e.defaultGroup()
		}
		fields = spec
	}
	metadata["annotations"] = e.mark(map[string]any{}, kindOperatorGroup, &o, fields)
	f := condition(TypeOperatorGroup, metav1.ConditionFalse, "OperatorGroupMissing",
		"the required OperatorGroup was not found in namespace "+o.Namespace,
		e.related(kindOperatorGroup, o, policyv1beta2.NonCompliant, relatedMissing))
	if e.wanted.group != nil {
		f.Message = "the required OperatorGroup " + named(&o) + " was not found"
	}
	if spec == nil {
		f.Message += "; " + note
		return f, nil, false
	}
	// Creating a group that could not be used would only delay that condition.
	if problem := e.unsupported(&o, map[string]any{"spec": spec}); problem != "" {
		f.Message += "; " + problem
		return f, nil, false
	}
	if e.leavesGroup(&f) {
		return f, nil, false
	}
	if !e.enforced {
		f.Message += notCreated
		return f, nil, false
	}
	done := condition(TypeOperatorGroup, metav1.ConditionTrue, "OperatorGroupCreated",
		"the required OperatorGroup was created in namespace "+o.Namespace+note, e.created(kindOperatorGroup, o))
	return f, []Action{{
		Object: map[string]any{"apiVersion": olm.V1.String(), "kind": kindOperatorGroup,
			"metadata": metadata, "spec": spec},
		Done: done, Failed: f.because("created"),
	}}, true
}

// recordedGroup returns the spec of the group that was deleted beside what is installed, nil if none is recorded. A
// user who may delete groups must not make Opgate create one for more namespaces, or without the account that OLM
// installs as.
func (e *evaluation) recordedGroup() (spec map[string]any) {
	record := e.Namespace.Record()
	if record == nil || record.Group == nil {
		return nil
	}
	if err := json.Unmarshal(record.Group.Spec, &spec); err != nil {
		panic(err) // it was decoded when the record was read
	}
	return spec
}

// defaultGroup returns the spec of the group that is created if the policy names none: for all namespaces, or
// if the operator does not support that, for its own. It is nil, with the reason, if only the author
// of the policy knows the intended namespaces.
func (e *evaluation) defaultGroup() (spec map[string]any, note string) {
	modes := e.installModes()
	own := []string{e.wanted.namespace}
	switch {
	case modes == nil || supports(modes, e.wanted.namespace, nil):
		return map[string]any{}, ""
	case supports(modes, e.wanted.namespace, own):
		return map[string]any{"targetNamespaces": anySlice(own)},
			" for that namespace only, because " + e.wanted.name + " does not support AllNamespaces"
	}
	return nil, fmt.Sprintf(
		"%s supports neither AllNamespaces nor OwnNamespace (supported are %s), so spec.operatorGroup has to name its target namespaces", e.wanted.name, modeNames(modes))
}

// unsupported returns why the operator cannot be installed with a group, or "".
func (e *evaluation) unsupported(group *olm.ObjectMeta, live map[string]any) string {
	modes := e.installModes()
	targets, known := targetsOf(live)
	if modes == nil || !known || supports(modes, e.wanted.namespace, targets) {
		return ""
	}
	return fmt.Sprintf("the OperatorGroup %s cannot be used for %s: its mode is %s, supported are %s",
		named(group), e.wanted.name, modeOf(e.wanted.namespace, targets), modeNames(modes))
}

// installModes returns the modes that the operator supports: of the installed version, else of the one that the
// channel offers; nil if neither is known.
func (e *evaluation) installModes() map[string]bool {
	for _, csv := range []*olm.CSV{e.csv, e.csvNamed(e.current())} {
		if csv != nil && csv.Status.InstallModes != nil {
			return csv.Status.InstallModes
		}
	}
	if channel := e.manifest.Channel(e.channel); channel != nil {
		return channel.InstallModes
	}
	return nil
}

// The install modes of OLM.
const (
	allNamespaces   = "AllNamespaces"
	ownNamespace    = "OwnNamespace"
	singleNamespace = "SingleNamespace"
	multiNamespace  = "MultiNamespace"
)

// targetsOf returns the target namespaces of a group, nil for all of them. The result of a selector is known
// filter after OLM has written it to the status.
func targetsOf(group map[string]any) (targets []string, known bool) {
	spec := object(group, "spec")
	if targets, _, _ = unstructured.NestedStringSlice(spec, "targetNamespaces"); len(targets) > 0 {
		return targets, true
	}
	if stream.Withheld(spec["targetNamespaces"]) {
		return nil, false
	}
	if selector, _ := spec["selector"].(map[string]any); operatorpolicy.EmptySelector(selector) && !stream.Withheld(spec["selector"]) {
		return nil, true
	}
	targets, _, _ = unstructured.NestedStringSlice(group, "status", "namespaces") // none if it is no list
	return targets, len(targets) > 0
}

// selectsNothing is for a group of which OLM has found no namespace by its selector, to follow a sentence; "" for
// others. OLM then leaves approved plans where they are, and says why on the plan only.
func selectsNothing(group map[string]any) string {
	spec := object(group, "spec")
	_, known := targetsOf(group)
	if known || stream.Withheld(spec["targetNamespaces"]) || stream.Withheld(spec["selector"]) {
		return ""
	}
	return "; OLM has found no namespace that its spec.selector selects, and installs nothing here until there is one"
}

func modeOf(own string, targets []string) string {
	switch {
	case len(targets) == 0 || slices.Contains(targets, ""):
		return allNamespaces
	case len(targets) > 1:
		return multiNamespace
	case targets[0] == own:
		return ownNamespace
	}
	return singleNamespace
}

// supports reports whether an operator with these modes runs with these targets. One that watches several
// namespaces, including its own, needs both modes (OLM: InstallModeSet.Supports).
func supports(modes map[string]bool, own string, targets []string) bool {
	mode := modeOf(own, targets)
	return modes[mode] && (mode != multiNamespace || !slices.Contains(targets, own) || modes[ownNamespace])
}

// modeNames lists the supported modes.
func modeNames(modes map[string]bool) string {
	var names []string
	for _, mode := range slices.Sorted(maps.Keys(modes)) {
		if modes[mode] {
			names = append(names, mode)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return text.Names(names, maxListed)
}
