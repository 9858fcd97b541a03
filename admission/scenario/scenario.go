// Package scenario reads scenario files: one write by one user to a cluster in a known state, and exactly what the gate
// must answer. Those in e2e/scenarios run twice, through the handlers of package admission and through a real API
// server, so that the two cannot drift apart. `opgate test` plays those of users.
//
// A scenario is a txtar file. Its comment starts with one sentence that states what it shows, for many of them
// what an attacker tries; then come headers:
//
//	rules:  bundle/version                         the rule IDs that must speak, by refusing or warning
//	threat: O12                                  for an attack, its ID in docs/threats.md
//	user:   tenant                               admin, tenant or olm
//	do:     create | replace | replace-status | approve KIND NS/NAME | patch KIND NS/NAME | delete KIND NS/NAME
//	with:   ../policies                          files and directories with more of what exists, for opgate test alone
//	now:    2026-11-28T22:00:00Z                 the time of the write, for opgate test alone
//
// An object without a namespace is named NAME alone.
//
// Its files are cluster.yaml (objects of OLM that exist before, status included, and Namespaces that have labels),
// policies.yaml and constraints.yaml, written in this order before the gate judges; write.yaml (or, for patch, a merge
// patch in write.json); want, whose first line is Allow, Deny or Hold and whose second, for a refusal, is the exact
// message; warnings, one exact warning on each line, in any order; and stored.json, a merge patch that must change
// nothing of what is stored after an allowed write. Without warnings there must be none. backstop is what the API
// server answers by itself, before the webhooks: its refusal without the ending "; held by the API server
// (ValidatingAdmissionPolicy opgate-backstop)", with which no webhook warns, or "Manual" where it stores this approval
// and no webhook warns of that. Without the file the answer is the webhooks'. Webhooks let deletions pass, and what
// leads to one: there want is Allow, and backstop a refusal that ends in "; held by the API server
// (ValidatingAdmissionPolicy opgate-deletion)", with ${UID} for the UID of the object. catalog.yaml holds the
// PackageManifests that catalogs offer.
//
// ${KUBERNETES} and ${OPENSHIFT} stand in any file for the versions of the cluster.
//
// A bare API server has no package server: what needs one is for the handlers alone.
package scenario

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/rules/verdict"
)

// Scenario is one file.
type Scenario struct {
	// Name is the file's base name without its ending.
	Name string
	// Title is the sentence at the top.
	Title string
	// Rules must all occur, each in the refusal, a warning or a change.
	Rules []verdict.RuleID
	// Threat is the ID of the attack that it is, "" for none.
	Threat string
	// User is admin, tenant or olm.
	User string
	// Verb is create, replace, replace-status, patch (an approval is a patch) or delete.
	Verb string
	// Kind, Namespace and Object name the target of a patch or a deletion.
	Kind, Namespace, Object string
	// Cluster and Policies exist before, in this order. Policies are OperatorPolicies, then Constraints.
	Cluster, Policies []*unstructured.Unstructured
	// Catalog are the PackageManifests that are served; nil where nothing is known of catalogs.
	Catalog []*unstructured.Unstructured
	// Write is the object written; nil for a patch and a deletion.
	Write *unstructured.Unstructured
	// Patch is the merge patch sent; nil for the other verbs.
	Patch []byte
	// Decision is Allow, Deny or Hold; Message is the refusal.
	Decision, Message string
	// Warnings are sorted.
	Warnings []string
	// Backstop is what the API server answers by itself; "" where it leaves the write to the webhooks.
	Backstop string
	// Stored is a merge patch that leaves the stored object as it is; nil where nothing is said of it.
	Stored []byte
	// With are files and directories with more objects that exist before, relative to the scenario's directory.
	With []string
	// Now is the time of the write; zero for the present.
	Now time.Time

	// Text is that of the file, with versions in place of their placeholders.
	Text []byte

	// lines are where the headers and the files begin in the text, by their names.
	lines map[string]int
}

// Line is where a header or a file of the scenario begins, counted from 1; 1 if it has none of this name.
func (s *Scenario) Line(of string) int { return max(1, s.lines[of]) }

// Fault is what is wrong with a scenario, with the line of its file.
type Fault struct {
	Line int
	Err  error
}

// Error returns "LINE: what is wrong", for behind the name of the file and a colon.
func (f *Fault) Error() string { return strconv.Itoa(f.Line) + ": " + f.Err.Error() }

func (f *Fault) Unwrap() error { return f.Err }

// StoresManual is Backstop where the API server changes installPlanApproval.
const StoresManual = "Manual"

// isHeldDeletion reports whether the API server refuses a deletion, or what leads to one.
func (s *Scenario) isHeldDeletion() bool { return strings.Contains(s.Backstop, "(deletion/") }

// Written returns which of some objects is written, nil on create, and the object after the write, nil for a deletion,
// as the API server computes it.
func (s *Scenario) Written(existing []*unstructured.Unstructured) (old, object *unstructured.Unstructured, err error) {
	if s.Verb == "create" {
		return nil, s.Write, nil
	}
	kind, namespace, name := s.Kind, s.Namespace, s.Object
	if s.Write != nil {
		kind, namespace, name = s.Write.GetKind(), s.Write.GetNamespace(), s.Write.GetName()
	}
	at := slices.IndexFunc(existing, func(u *unstructured.Unstructured) bool {
		return strings.EqualFold(u.GetKind(), kind) && u.GetNamespace() == namespace && u.GetName() == name
	})
	if at < 0 {
		return nil, nil, fmt.Errorf("there is no %s %s/%s to write to", kind, namespace, name)
	}
	old = existing[at]
	switch s.Verb {
	case "replace": // the status is a subresource
		object = s.Write.DeepCopy()
		object.Object["status"] = old.DeepCopy().Object["status"]
	case "replace-status":
		object = old.DeepCopy()
		object.Object["status"] = s.Write.Object["status"]
	case "patch":
		before, err := json.Marshal(old.Object)
		if err != nil {
			return nil, nil, err
		}
		merged, err := jsonpatch.MergePatch(before, s.Patch)
		if err != nil {
			return nil, nil, err
		}
		object = &unstructured.Unstructured{}
		err = json.Unmarshal(merged, &object.Object)
		return old, object, err
	}
	return old, object, nil
}

// Versions are those of the cluster that scenarios are played on, such as "1.36.2" and "4.19.3".
type Versions struct{ Kubernetes, OpenShift string }

// The placeholders of versions.
const (
	KubernetesPlaceholder = "${KUBERNETES}"
	OpenShiftPlaceholder  = "${OPENSHIFT}"
)

// Insert replaces the placeholders in text by the versions. Those of unknown versions stay.
func (v *Versions) Insert(text string) string {
	return strings.NewReplacer(KubernetesPlaceholder, cmp.Or(v.Kubernetes, KubernetesPlaceholder),
		OpenShiftPlaceholder, cmp.Or(v.OpenShift, OpenShiftPlaceholder)).Replace(text)
}
