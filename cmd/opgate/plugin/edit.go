package plugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// edit is a change of a policy that ends a reason.
type edit struct {
	Source string       `json:"source"`
	Rule   rules.RuleID `json:"rule"`
	// Edit is a sentence, Command the kubectl command that makes it.
	Edit    string `json:"edit"`
	Command string `json:"command"`
}

// edits returns, for the reasons of a plan that an edit of one OperatorPolicy ends, that edit. Each is tried: the plan is judged with it.
func (q *question) edits(plan *olm.InstallPlan, v *rules.Verdict) []edit {
	edits := []edit{}
	replacements := q.state.Namespace(plan.Metadata.Namespace).Replacements(plan)
	for i := range v.CSVs {
		c := &v.CSVs[i]
		at := slices.IndexFunc(replacements, func(r rules.Replacement) bool { return r.CSV == c.CSV })
		if at < 0 {
			continue
		}
		for _, r := range v.Reasons {
			key, ok := strings.CutPrefix(r.Source, rules.KindOperatorPolicy+" ")
			if !ok || !slices.Contains(c.Because, r.Message) {
				continue
			}
			if e, ok := q.tried(plan, key, &replacements[at], &r); ok {
				edits = append(edits, e)
			}
		}
	}
	return edits
}

// tried returns the edit that ends a reason, if there is one.
func (q *question) tried(plan *olm.InstallPlan, key string, csv *rules.Replacement, r *rules.Reason) (edit, bool) {
	var policy map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(q.policies[key], &policy) != nil {
		return edit{}, false
	}
	propose := rules.RuleOf(r.Rule).Edit
	if propose == nil {
		return edit{}, false
	}
	what, patch := propose(rules.EditInput{Policy: policy, CSV: csv, Message: r.Message})
	if patch == nil {
		return edit{}, false
	}
	apply(policy, patch)
	edited, err := json.Marshal(policy)
	if err != nil {
		return edit{}, false
	}
	var decode snapshot.Reader
	ns := q.state.With(decode.Read(snapshot.OperatorPolicies, edited)).Namespace(plan.Metadata.Namespace)
	after := rules.JudgePlan(rules.PlanInput{Plan: plan, Namespace: ns})
	remains := slices.ContainsFunc(after.Reasons, func(other rules.Reason) bool {
		return other.Source == r.Source && (other.Rule == r.Rule && other.Message == r.Message || other.Rule == rules.RulePolicyUnreadable)
	})
	var operations strings.Builder
	encoder := json.NewEncoder(&operations)
	encoder.SetEscapeHTML(false) // ranges have > and <
	if err := encoder.Encode(patch); remains || err != nil || strings.Contains(operations.String(), "'") {
		return edit{}, false
	}
	namespace, name, _ := strings.Cut(key, "/")
	return edit{Source: r.Source, Rule: r.Rule, Edit: what + maintainedBy(policy),
		Command: fmt.Sprintf("kubectl patch operatorpolicies.%s %s -n %s --type=json -p '%s'", dependency.PolicyGroup, name, namespace, strings.TrimSpace(operations.String()))}, true
}

// maintainedBy says that a Policy writes an OperatorPolicy.
func maintainedBy(policy map[string]any) string {
	object := unstructured.Unstructured{Object: policy}
	by, ok := object.GetLabels()[dependency.LabelPolicy]
	if !ok {
		return ""
	}
	return " (Policy " + text.Name(object.GetNamespace()) + "/" + text.Name(by) + " writes it: edit its template)"
}

// apply makes operations on an object. Those on a list that does not exist have no effect.
func apply(object map[string]any, patch []rules.PatchOperation) {
	for _, o := range patch {
		path := strings.Split(strings.TrimPrefix(o.Path, "/"), "/")
		last := len(path) - 1
		if path[last] != "-" {
			_ = unstructured.SetNestedField(object, o.Value, path...) // without its parent the edit has no effect
			continue
		}
		if list, found, err := unstructured.NestedSlice(object, path[:last]...); found && err == nil {
			_ = unstructured.SetNestedSlice(object, append(list, o.Value), path[:last]...) // it was found
		}
	}
}
