// Package scenario reads the scenario files in e2e/scenarios: one write by one user to a cluster in a known
// state, and exactly what the gate must answer. Every file runs twice, through the handlers of package
// admission and through a real API server, so that the two cannot drift apart.
//
// A scenario is a txtar file. Its comment starts with one sentence that states what it shows, for many of them
// what an attacker tries; then come headers:
//
//	rules:  bundle/version                         the rule IDs that must speak, by refusing or warning
//	threat: O12                                  for an attack, its ID in docs/threats.md
//	user:   tenant                               admin, tenant or olm
//	do:     create | replace | replace-status | approve KIND NS/NAME | patch KIND NS/NAME | delete KIND NS/NAME
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
// and no webhook warns of that. Without the file the answer is the webhooks'. Webhooks let deletions pass, and what leads
// to one: there want is Allow, and backstop a refusal that ends in "; held by the API server (ValidatingAdmissionPolicy
// opgate-deletion)", with ${UID} for the UID of the object. catalog.yaml holds the PackageManifests
// that catalogs offer.
//
// ${KUBERNETES} and ${OPENSHIFT} stand in any file for the versions of the cluster.
//
// A bare API server has no package server: what needs one is for the handlers alone.
package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/rules"
)

// Scenario is one file.
type Scenario struct {
	// Name is the file's base name without its ending.
	Name string
	// Title is the sentence at the top.
	Title string
	// Rules must all occur, each in the refusal, a warning or a change.
	Rules []rules.RuleID
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

	text []byte
}

// ForHandlersOnly reports whether a scenario needs what a bare API server does not have.
func (s *Scenario) ForHandlersOnly() bool { return s.Catalog != nil }

// StoresManual is Backstop where the API server changes installPlanApproval.
const StoresManual = "Manual"

// WithBackstop is the answer where the API server holds the policies by itself as well. It evaluates admission policies
// before it calls validating webhooks, and a refusal is the end.
func (s *Scenario) WithBackstop() (message string, warnings []string) {
	switch s.Backstop {
	case "":
		return s.Message, s.Warnings
	case StoresManual:
		return s.Message, slices.DeleteFunc(slices.Clone(s.Warnings), func(w string) bool {
			return strings.Contains(w, "("+string(rules.RuleSubscriptionApproval)+")")
		})
	}
	return s.Backstop + "; " + s.HeldBy(), nil
}

// HeldByBackstop and HeldByDeletion end refusals that are the API server's own.
const (
	HeldByBackstop = "held by the API server (ValidatingAdmissionPolicy opgate-backstop)"
	HeldByDeletion = "held by the API server (ValidatingAdmissionPolicy opgate-deletion)"
)

// HeldBy ends the refusal of the API server.
func (s *Scenario) HeldBy() string {
	if s.isHeldDeletion() {
		return HeldByDeletion
	}
	return HeldByBackstop
}

// isHeldDeletion reports whether the API server refuses a deletion, or what leads to one.
func (s *Scenario) isHeldDeletion() bool { return strings.Contains(s.Backstop, "(deletion/") }

// UIDPlaceholder is in Backstop in place of the UID of the object.
const UIDPlaceholder = "${UID}"

// Select returns the scenarios that are attacks and, for each rule that speaks in none of these, the first one by name,
// refusals before warnings.
func Select(scenarios []*Scenario) []*Scenario {
	selected := map[*Scenario]bool{}
	spoken := map[rules.RuleID]bool{}
	add := func(s *Scenario) {
		selected[s] = true
		for _, id := range s.Rules {
			spoken[id] = true
		}
	}
	for _, s := range scenarios {
		if s.Threat != "" {
			add(s)
		}
	}
	for _, refused := range []bool{true, false} {
		for _, s := range scenarios {
			isNew := slices.ContainsFunc(s.Rules, func(id rules.RuleID) bool { return !spoken[id] })
			if isNew && refused == (s.Message != "") {
				add(s)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(scenarios), func(s *Scenario) bool { return !selected[s] })
}

// IsApart reports whether all that a scenario depends on is in namespaces of its own, so that Apart separates it from
// others.
func (s *Scenario) IsApart() bool {
	for _, u := range slices.Concat(s.Cluster, s.Policies, s.written()) {
		selectsAll := false
		if u.GetKind() == "OperatorGroup" {
			targets, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "targetNamespaces")
			selectsAll = len(targets) == 0
		}
		if u.GetNamespace() == "" || slices.Contains(shared, u.GetNamespace()) || selectsAll {
			return false
		}
	}
	return true
}

// shared are the namespaces that scenarios have in common.
var shared = []string{"olm", "opgate-system"}

func (s *Scenario) written() []*unstructured.Unstructured {
	if s.Write == nil {
		return nil
	}
	return []*unstructured.Unstructured{s.Write}
}

// Apart returns a scenario with a suffix to the name of each of its namespaces, in what is written and in what is
// answered.
func (s *Scenario) Apart(suffix string) (*Scenario, error) {
	names := []string{s.Namespace}
	text := string(s.text)
	for _, match := range namespaceField.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		switch {
		case name == "" || slices.Contains(shared, name):
		case name == policyNamespace: // a word of messages as well
			text = policyNamespaces.ReplaceAllStringFunc(text, func(found string) string {
				return strings.Replace(found, name, name+suffix, 1)
			})
		default:
			text = regexp.MustCompile(`\b`+name+`\b`).ReplaceAllString(text, name+suffix)
		}
	}
	return parse(s.Name, []byte(text))
}

// policyNamespace is the namespace of OperatorPolicies.
const policyNamespace = "policies"

var (
	namespaceField   = regexp.MustCompile(`[\s{]namespace: ([a-z0-9-]+)`)
	policyNamespaces = regexp.MustCompile(`(namespace:? |")` + policyNamespace + `\b|\b` + policyNamespace + `/`)
)

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

const (
	kubernetesPlaceholder = "${KUBERNETES}"
	openShiftPlaceholder  = "${OPENSHIFT}"
)

// Insert replaces the placeholders in text by the versions.
func (v *Versions) Insert(text string) string {
	return strings.NewReplacer(kubernetesPlaceholder, v.Kubernetes, openShiftPlaceholder, v.OpenShift).Replace(text)
}

// Abstract replaces the versions in text by their placeholders.
func (v *Versions) Abstract(text string) string {
	return strings.NewReplacer(v.Kubernetes, kubernetesPlaceholder, v.OpenShift, openShiftPlaceholder).Replace(text)
}

// Load reads all scenarios of a directory, sorted by name, for a cluster.
func Load(dir string, versions Versions) ([]*Scenario, error) {
	files := os.DirFS(dir)
	paths, err := fs.Glob(files, "*.txtar")
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no scenarios in %s", dir)
	}
	scenarios := make([]*Scenario, len(paths))
	for i, path := range paths {
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, err
		}
		if scenarios[i], err = parse(strings.TrimSuffix(path, ".txtar"), []byte(versions.Insert(string(data)))); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return scenarios, nil
}

func parse(name string, data []byte) (*Scenario, error) {
	archive := txtar.Parse(data)
	s := &Scenario{Name: name, text: data}
	if err := s.parseHeaders(string(archive.Comment)); err != nil {
		return nil, err
	}
	for _, f := range archive.Files {
		if err := s.parseFile(f.Name, f.Data); err != nil {
			return nil, fmt.Errorf("file %s: %w", f.Name, err)
		}
	}
	return s, s.validate()
}

func (s *Scenario) parseHeaders(comment string) error {
	title, headers, _ := strings.Cut(comment, "\n\n")
	s.Title = strings.Join(strings.Fields(title), " ")
	for line := range strings.Lines(headers) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		key, value, found := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case !found:
			return fmt.Errorf("header %q has no colon", line)
		case key == "rules":
			for _, id := range strings.Fields(strings.ReplaceAll(value, ",", " ")) {
				s.Rules = append(s.Rules, rules.RuleID(id))
			}
		case key == "threat":
			s.Threat = value
		case key == "user":
			s.User = value
		case key == "do":
			if err := s.parseDo(strings.Fields(value)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("header %q is not one of rules, threat, user, do", key)
		}
	}
	return nil
}

func (s *Scenario) parseDo(words []string) error {
	if len(words) == 0 {
		return errors.New("do is empty")
	}
	s.Verb = words[0]
	switch s.Verb {
	case "create", "replace", "replace-status":
		if len(words) == 1 {
			return nil
		}
	case "approve", "patch", "delete":
		if len(words) == 3 {
			if s.Verb == "approve" {
				s.Verb, s.Patch = "patch", []byte(`{"spec":{"approved":true}}`)
			}
			s.Kind, s.Object = words[1], words[2]
			if namespace, name, found := strings.Cut(words[2], "/"); found {
				s.Namespace, s.Object = namespace, name
			}
			return nil
		}
	}
	return fmt.Errorf("do %q is not one of: create, replace, replace-status, approve KIND NS/NAME, patch KIND NS/NAME, "+
		"delete KIND NS/NAME", strings.Join(words, " "))
}

func (s *Scenario) parseFile(name string, data []byte) (err error) {
	switch name {
	case "cluster.yaml":
		s.Cluster, err = objects(data)
	case "policies.yaml":
		s.Policies, err = objects(data)
	case "constraints.yaml": // behind policies.yaml
		var constraints []*unstructured.Unstructured
		constraints, err = objects(data)
		s.Policies = append(s.Policies, constraints...)
	case "catalog.yaml":
		s.Catalog, err = objects(data)
	case "write.yaml":
		var written []*unstructured.Unstructured
		if written, err = objects(data); err == nil && len(written) != 1 {
			return fmt.Errorf("has %d objects and needs one", len(written))
		}
		if err == nil {
			s.Write = written[0]
		}
	case "write.json":
		s.Patch = data
	case "want":
		decision, message, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
		s.Decision, s.Message = decision, strings.TrimSpace(message)
	case "warnings":
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" {
				s.Warnings = append(s.Warnings, line)
			}
		}
		slices.Sort(s.Warnings)
	case "backstop":
		s.Backstop = strings.TrimSpace(string(data))
	case "stored.json":
		s.Stored = data
	default:
		return errors.New("is not a file that scenarios have")
	}
	return err
}

func (s *Scenario) validate() error {
	switch {
	case s.Title == "":
		return errors.New("there is no title")
	case s.User != "admin" && s.User != "tenant" && s.User != "olm":
		return fmt.Errorf("user %q is not one of admin, tenant, olm", s.User)
	case s.Verb == "":
		return errors.New("there is no do header")
	case s.Verb == "delete" && (s.Patch != nil || s.Write != nil):
		return errors.New("a deletion writes nothing")
	case s.Verb != "delete" && ((s.Verb == "patch") != (s.Patch != nil) || (s.Verb == "patch") == (s.Write != nil)):
		return errors.New("needs write.yaml, or write.json for a patch, and not both")
	case !slices.Contains([]string{rules.Allow.String(), rules.Deny.String(), rules.Hold.String()}, s.Decision):
		return fmt.Errorf("wants %q, which is not Allow, Deny or Hold", s.Decision)
	case s.Decision == rules.Allow.String() && s.Backstop != "" && s.Backstop != StoresManual && !s.isHeldDeletion():
		return errors.New("the API server refuses what the webhooks allow")
	case (s.Decision == rules.Allow.String()) != (s.Message == ""):
		return errors.New("a refusal has a message and an allowed write has none")
	}
	for _, patch := range [][]byte{s.Patch, s.Stored} {
		if patch != nil && !json.Valid(patch) {
			return errors.New("a patch is not JSON")
		}
	}
	return nil
}

func objects(data []byte) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	for i, document := range strings.Split("\n"+string(data), "\n---\n") {
		var u unstructured.Unstructured
		if err := yaml.UnmarshalStrict([]byte(document), &u.Object); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		if len(u.Object) > 0 {
			list = append(list, &u)
		}
	}
	return list, nil
}
