package inspect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// Edit is a change of a policy that ends a reason.
type Edit struct {
	Source verdict.PolicyRef `json:"source"`
	Rule   verdict.RuleID    `json:"rule"`
	// Edit is a sentence, Command the kubectl command that makes it.
	Edit    string `json:"edit"`
	Command string `json:"command"`
}

// Edits are what is tried to end the reasons of a plan.
type Edits struct {
	// Policies are the JSON of the OperatorPolicies, by namespace/name.
	Policies map[string][]byte
	// With returns the cluster with another state of a policy.
	With func(*snapshot.Object) *snapshot.Snapshot
	// Now is that of Cluster.
	Now time.Time
}

// Of returns, for the reasons of a plan that an edit of one OperatorPolicy ends, that edit. Each is tried: the plan is
// judged with it.
func (e *Edits) Of(a *Answer, ns *state.Namespace) []Edit {
	edits := []Edit{}
	replacements := carrier.Replacements(ns, a.Plan)
	for i := range replacements {
		for _, r := range a.ReasonsOf(replacements[i].CSV) {
			if found, ok := e.tried(a.Plan, &replacements[i], &r); ok {
				edits = append(edits, found)
			}
		}
	}
	return edits
}

// tried returns the edit that ends a reason, if there is one.
func (e *Edits) tried(plan *olm.InstallPlan, csv *state.Replacement, r *verdict.Reason) (Edit, bool) {
	var policy map[string]any
	written, propose := e.Policies[r.From.Key()], rules.RuleOf(r.Rule).Edit
	if r.From.Kind != verdict.KindOperatorPolicy || propose == nil ||
		kjson.UnmarshalCaseSensitivePreserveInts(written, &policy) != nil {
		return Edit{}, false
	}
	patch := propose(verdict.EditInput{
		Policy: policy, CSV: csv.CSV, Version: csv.Version, Channel: csv.Channel, Catalog: csv.Catalog,
		Digest: r.Digest,
	})
	var operations strings.Builder
	encoder := json.NewEncoder(&operations)
	encoder.SetEscapeHTML(false) // ranges have > and <
	if err := encoder.Encode(patch); patch == nil || err != nil || strings.Contains(operations.String(), "'") {
		return Edit{}, false
	}
	decoded, err := jsonpatch.DecodePatch([]byte(operations.String()))
	if err != nil {
		return Edit{}, false
	}
	edited, err := decoded.Apply(written)
	if err != nil { // it has no list to add to
		return Edit{}, false
	}
	var decode snapshot.Reader
	ns := e.With(decode.Read(snapshot.OperatorPolicies, edited)).Namespace(plan.Metadata.Namespace)
	after := rules.JudgePlan(rules.PlanInput{Plan: plan, Namespace: ns, Now: e.Now})
	if slices.ContainsFunc(after.Reasons, func(other verdict.Reason) bool {
		return other.From == r.From && (other.Rule == r.Rule && other.Message == r.Message ||
			other.Rule == bundle.RulePolicyUnreadable)
	}) {
		return Edit{}, false
	}
	return Edit{Source: r.From, Rule: r.Rule, Edit: inWords(patch) + maintainedBy(policy),
		Command: fmt.Sprintf("kubectl patch operatorpolicies.%s %s -n %s --type=json -p '%s'", dependency.PolicyGroup,
			r.From.Name, r.From.Namespace, strings.TrimSpace(operations.String()))}, true
}

// inWords returns the edits of a patch: "add \"etcd.v0.9.4\" to spec.versions", "spec.deprecated: Allow".
func inWords(patch []verdict.PatchOperation) string {
	words := make([]string, len(patch))
	for i, o := range patch {
		field, isItem := strings.CutSuffix(strings.ReplaceAll(o.Path[1:], "/", "."), ".-")
		words[i] = field + ": " + text.Name(fmt.Sprint(o.Value))
		if isItem {
			words[i] = "add " + text.Quote(fmt.Sprint(o.Value)) + " to " + field
		}
	}
	return strings.Join(words, " and ")
}

// maintainedBy says that a Policy writes an OperatorPolicy.
func maintainedBy(policy map[string]any) string {
	object := unstructured.Unstructured{Object: policy}
	by, ok := object.GetLabels()[metakey.Policy]
	if !ok {
		return ""
	}
	return " (Policy " + text.Name(object.GetNamespace()) + "/" + text.Name(by) + " writes it: edit its template)"
}
