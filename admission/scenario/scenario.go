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
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
	// With are files and directories with more objects that exist before, relative to the scenario's directory.
	With []string

	text []byte
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

// The placeholders of versions.
const (
	KubernetesPlaceholder = "${KUBERNETES}"
	OpenShiftPlaceholder  = "${OPENSHIFT}"
)

// replacements are the placeholders with their versions, as far as these are known.
func (v *Versions) replacements() (list [][2]string) {
	for _, r := range [][2]string{{KubernetesPlaceholder, v.Kubernetes}, {OpenShiftPlaceholder, v.OpenShift}} {
		if r[1] != "" {
			list = append(list, r)
		}
	}
	return list
}

// Insert replaces the placeholders in text by the versions. Those of unknown versions stay.
func (v *Versions) Insert(text string) string {
	for _, r := range v.replacements() {
		text = strings.ReplaceAll(text, r[0], r[1])
	}
	return text
}

// Abstract replaces the versions in text by their placeholders.
func (v *Versions) Abstract(text string) string {
	for _, r := range v.replacements() {
		text = strings.ReplaceAll(text, r[1], r[0])
	}
	return text
}

// Load reads all scenarios of a directory, sorted by name, for a cluster. They must stand for themselves: none refers to
// files beside it.
func Load(dir string, versions Versions) ([]*Scenario, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+Extension))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no scenarios in %s", dir)
	}
	scenarios := make([]*Scenario, len(paths))
	for i, path := range paths {
		data, err := os.ReadFile(path) //nolint:gosec // a file that the caller names
		if err != nil {
			return nil, err
		}
		if scenarios[i], err = Parse(path, data, versions); err != nil {
			return nil, fmt.Errorf("%s:%w", path, err)
		}
		if s := scenarios[i]; s.With != nil {
			return nil, fmt.Errorf("%s:%d: with is for opgate test alone", path, s.Line("with"))
		}
	}
	return scenarios, nil
}

// Extension ends the names of scenario files.
const Extension = ".txtar"

// Parse reads the scenario that a file holds, for a cluster. Its error is a *Fault.
func Parse(path string, data []byte, versions Versions) (*Scenario, error) {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	return parse(strings.TrimSuffix(filepath.Base(path), Extension), []byte(versions.Insert(string(data))))
}

// Update returns the text of a scenario file with the message and the warnings that its write got. The decision stays: a
// wrong one needs review. Versions for which the file has placeholders are replaced by them.
func Update(data []byte, message string, warnings []string, versions Versions) []byte {
	known := Versions{}
	if bytes.Contains(data, []byte(KubernetesPlaceholder)) {
		known.Kubernetes = versions.Kubernetes
	}
	if bytes.Contains(data, []byte(OpenShiftPlaceholder)) {
		known.OpenShift = versions.OpenShift
	}
	archive := txtar.Parse(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")))
	want := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want" })
	if want < 0 {
		return data
	}
	decision, _, _ := strings.Cut(string(archive.Files[want].Data), "\n")
	text := strings.TrimSpace(decision) + "\n"
	if message != "" {
		text += message + "\n"
	}
	archive.Files[want].Data = []byte(known.Abstract(text))
	archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == "warnings" })
	if len(warnings) > 0 {
		archive.Files = append(archive.Files, txtar.File{Name: "warnings", Data: []byte(known.Abstract(strings.Join(warnings, "\n") + "\n"))})
	}
	return txtar.Format(archive)
}

func parse(name string, data []byte) (*Scenario, error) {
	archive := txtar.Parse(data)
	s := &Scenario{Name: name, text: data, lines: map[string]int{}}
	if err := s.parseHeaders(string(archive.Comment)); err != nil {
		return nil, err
	}
	line := 1 + strings.Count(string(archive.Comment), "\n")
	for _, f := range archive.Files {
		if _, twice := s.lines[f.Name]; twice {
			return nil, &Fault{line, fmt.Errorf("file %s is defined twice", f.Name)}
		}
		s.lines[f.Name] = line
		if err := s.parseFile(f.Name, f.Data); err != nil {
			at := 0
			if inFile, ok := errors.AsType[*Fault](err); ok {
				at, err = inFile.Line, inFile.Err
			}
			return nil, &Fault{line + at, fmt.Errorf("file %s: %w", f.Name, err)}
		}
		line += 1 + strings.Count(string(f.Data), "\n")
	}
	if of, err := s.validate(); err != nil {
		return nil, &Fault{s.Line(of), err}
	}
	return s, nil
}

func (s *Scenario) parseHeaders(comment string) error {
	title, headers, _ := strings.Cut(comment, "\n\n")
	s.Title = strings.Join(strings.Fields(title), " ")
	number := 2 + strings.Count(title, "\n")
	for line := range strings.Lines("\n" + headers) {
		if line = strings.TrimSpace(line); line != "" {
			if err := s.parseHeader(line, number); err != nil {
				return &Fault{number, err}
			}
		}
		number++
	}
	return nil
}

func (s *Scenario) parseHeader(line string, number int) error {
	key, value, found := strings.Cut(line, ":")
	if !found {
		return fmt.Errorf("header %q has no colon", line)
	}
	if _, twice := s.lines[key]; twice {
		return fmt.Errorf("header %q is defined twice", key)
	}
	s.lines[key] = number
	words := strings.Fields(value)
	switch key {
	case "rules":
		for _, id := range strings.Fields(strings.ReplaceAll(value, ",", " ")) {
			s.Rules = append(s.Rules, rules.RuleID(id))
		}
	case "threat":
		s.Threat = strings.TrimSpace(value)
	case "user":
		s.User = strings.TrimSpace(value)
	case "do":
		return s.parseDo(words)
	case "with":
		if s.With = words; len(words) == 0 {
			return errors.New("with is empty")
		}
	default:
		return fmt.Errorf("header %q is not one of rules, threat, user, do, with", key)
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

// validate returns what is wrong, and the header or the file that it is wrong in.
func (s *Scenario) validate() (of string, err error) {
	switch allowed := s.Decision == rules.Allow.String(); {
	case s.Title == "":
		return "", errors.New("there is no title")
	case s.User != "admin" && s.User != "tenant" && s.User != "olm":
		return "user", fmt.Errorf("user %q is not one of admin, tenant, olm", s.User)
	case s.Verb == "":
		return "", errors.New("there is no do header")
	case s.Verb == "delete" && (s.Patch != nil || s.Write != nil):
		return "do", errors.New("a deletion writes nothing")
	case s.Verb != "delete" && ((s.Verb == "patch") != (s.Patch != nil) || (s.Verb == "patch") == (s.Write != nil)):
		return "do", errors.New("needs write.yaml, or write.json for a patch, and not both")
	case !slices.Contains([]string{rules.Allow.String(), rules.Deny.String(), rules.Hold.String()}, s.Decision):
		return "want", fmt.Errorf("wants %q, which is not Allow, Deny or Hold", s.Decision)
	case allowed && s.Backstop != "" && s.Backstop != StoresManual && !s.isHeldDeletion():
		return "backstop", errors.New("the API server refuses what the webhooks allow")
	case allowed && s.Message != "":
		return "want", errors.New("an allowed write has no message")
	}
	for _, rule := range s.Rules {
		if !slices.ContainsFunc(rules.Rules(), func(r rules.Rule) bool { return r.ID == rule }) {
			return "rules", fmt.Errorf("there is no rule %q", rule)
		}
	}
	for name, patch := range map[string][]byte{"write.json": s.Patch, "stored.json": s.Stored} {
		if patch != nil && !json.Valid(patch) {
			return name, errors.New("a patch is not JSON")
		}
	}
	return "", nil
}

// lineInYAML is how errors of YAML name a line.
var lineInYAML = regexp.MustCompile(`\bline (\d+): `)

// objects decodes documents. Its errors are Faults with lines that are counted from 1 in data.
func objects(data []byte) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	before := 0
	for i, document := range strings.Split("\n"+string(data), "\n---\n") {
		var u unstructured.Unstructured
		if err := yaml.UnmarshalStrict([]byte(document), &u.Object); err != nil {
			line, why := before, err.Error()
			if m := lineInYAML.FindStringSubmatch(why); m != nil {
				n, _ := strconv.Atoi(m[1])                              // digits; too many of them count as none
				line, why = line+n-1, strings.Replace(why, m[0], "", 1) // the file has other lines
			}
			return nil, &Fault{line, fmt.Errorf("document %d: %s", i+1, why)}
		}
		if len(u.Object) > 0 && (u.GetKind() == "" || u.GetAPIVersion() == "" || u.GetName() == "") {
			return nil, &Fault{before, fmt.Errorf("document %d: apiVersion, kind or metadata.name is missing", i+1)}
		}
		if len(u.Object) > 0 {
			list = append(list, &u)
		}
		before += 2 + strings.Count(document, "\n")
	}
	return list, nil
}
