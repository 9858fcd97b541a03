// Package change computes what an InstallPlan changes beyond what is installed: the rights, webhooks, definitions,
// images and settings that a new version of an operator brings along. It is pure: contents and installed objects go in,
// a Set comes out, and the same contents give the same digest in every cluster.
package change

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"slices"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// Class is the kind of a Difference. The reviewable ones are the fields of spec.consent of an OperatorPolicy.
type Class string

// The classes, in the order in which a diff shows them.
const (
	// Permissions are rules of RBAC that nothing installed covers.
	Permissions Class = "permissions"
	// Webhooks are admission and conversion webhooks that are new, or that match more than before.
	Webhooks Class = "webhooks"
	// BreakingCRDs are changes of CustomResourceDefinitions that existing objects or clients may not survive.
	BreakingCRDs Class = "breakingCRDs"
	// PodSecurity are settings of pods that reach the node: host namespaces, host paths, privileges.
	PodSecurity Class = "podSecurity"
	// Images are images from a registry that nothing installed comes from.
	Images Class = "images"
	// Scope are new objects of cluster-scoped kinds, and changed install modes.
	Scope Class = "scope"
	// Definitions are new CustomResourceDefinitions and versions. Never held.
	Definitions Class = "crds"
	// Requirements are packages, APIs and versions of Kubernetes that are required now, and deprecations. Never held.
	Requirements Class = "requirements"
)

// Reviewable are the classes that a policy can hold, in the order of the constants.
var Reviewable = []Class{Permissions, Webhooks, BreakingCRDs, PodSecurity, Images, Scope}

// Risk orders differences of a class.
type Risk int

// The risks.
const (
	// Notable is every difference that is not Risky.
	Notable Risk = iota
	// Risky grants control of the cluster or a node: wildcards, escalate, bind, impersonate, secrets, nodes, privileged
	// pods, webhooks on all kinds.
	Risky
)

func riskIf(risky bool) Risk {
	if risky {
		return Risky
	}
	return Notable
}

// Difference is one difference, in words without anything that differs between clusters.
type Difference struct {
	Class Class `json:"class"`
	Risk  Risk  `json:"risk"`
	// Text is one line, such as "cluster-wide: get, list on secrets (core)".
	Text string `json:"text"`
}

// Set is what one ClusterServiceVersion of a plan changes.
type Set struct {
	// CSV, Package and Version are those that the plan brings. Channel and Catalog are where it comes from.
	CSV, Package, Version string
	// Release is that of the version; empty if it has none.
	Release          string
	Channel, Catalog string
	// From, FromVersion and FromRelease are what it replaces; empty for a first installation, for which everything is a
	// difference.
	From, FromVersion, FromRelease string
	// Differences are sorted: risky ones first, then by class and text.
	Differences []Difference
	// Notes are what the reader of a diff must know, such as that the installed operator has all rights already.
	Notes []string
	// Fault is why the contents could not be read; empty if they could. Then Differences say nothing.
	Fault string
	// Spec is the olm.CSVSpec.ContentsDigest of the ClusterServiceVersion.
	Spec [sha256.Size]byte
	// Contents is a digest of all that the bundle writes, except for what differs between clusters.
	Contents [sha256.Size]byte
}

// Compare returns what `to` changes beyond `from`: the installed ClusterServiceVersion with the objects of its bundle,
// and all stored CustomResourceDefinitions that `to` writes. from is not nil; its CSV is "" before a first
// installation. Compare is total: what cannot be compared is the Fault of the Set.
func Compare(from, to *Contents) *Set {
	s := &Set{CSV: to.CSV, Package: to.Package, Version: to.Version, Release: to.Release, From: from.CSV,
		FromVersion: from.Version, FromRelease: from.Release}
	err := s.compare(from, to)
	if err != nil {
		s.Differences, s.Notes, s.Fault = nil, nil, text.Truncate(err.Error(), maxText)
		return s
	}
	s.finish()
	return s
}

func (s *Set) compare(from, to *Contents) (err error) {
	// The libraries that compare were written for manifests of good will.
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%s cannot be compared: %v", text.Name(to.CSV), cause)
		}
	}()
	switch {
	case to.Fault != "":
		return fmt.Errorf("%s", to.Fault)
	case from.Fault != "":
		return fmt.Errorf("what is installed cannot be read: %s", from.Fault)
	}
	s.Spec = to.specDigest()
	for _, part := range []func(*Set, *Contents, *Contents) error{
		compareRights, compareWebhooks, compareDefinitions, comparePods, compareImages, compareScope,
		compareRequirements,
	} {
		if err := part(s, from, to); err != nil {
			return err
		}
	}
	return nil
}

func compareRights(s *Set, from, to *Contents) error {
	before, after, err := both(from, to, (*Contents).readRights)
	if err != nil {
		return err
	}
	if err := after.checkParts(); err != nil {
		return fmt.Errorf("%s cannot be compared: %w", text.Name(to.CSV), err)
	}
	s.comparePermissions(before, after)
	s.Contents = to.digest(after)
	return nil
}

// both reads a part of what is installed, and of what is compared with it.
func both[T any](from, to *Contents, read func(*Contents) (T, error)) (before, after T, err error) {
	if before, err = read(from); err != nil {
		return before, after, fmt.Errorf("what is installed cannot be read: %w", err)
	}
	after, err = read(to)
	return before, after, err
}

// add adds a difference.
func (s *Set) add(class Class, risk Risk, format string, args ...any) {
	s.Differences = append(s.Differences, Difference{Class: class, Risk: risk, Text: line(format, args...)})
}

// note adds a note.
func (s *Set) note(format string, args ...any) { s.Notes = append(s.Notes, line(format, args...)) }

// classOrder is the order of the constants.
var classOrder = append(slices.Clone(Reviewable), Definitions, Requirements)

// finish sorts the differences, drops duplicates and counts those above maxPerClass.
func (s *Set) finish() {
	slices.SortFunc(s.Differences, compareDifferences)
	s.Differences = slices.Compact(s.Differences)
	counts := map[Class]int{}
	more := map[Class]Difference{}
	s.Differences = slices.DeleteFunc(s.Differences, func(d Difference) bool {
		counts[d.Class]++
		if counts[d.Class] <= maxPerClass {
			return false
		}
		rest := more[d.Class]
		more[d.Class] = Difference{Class: d.Class, Risk: max(rest.Risk, d.Risk)}
		return true
	})
	for class, d := range more {
		d.Text = fmt.Sprintf("and %d more", counts[class]-maxPerClass)
		s.Differences = append(s.Differences, d)
	}
	slices.SortFunc(s.Differences, compareDifferences)
	slices.Sort(s.Notes)
	s.Notes = slices.Compact(s.Notes)
}

func compareDifferences(a, b Difference) int {
	return cmp.Or(cmp.Compare(b.Risk, a.Risk), cmp.Compare(slices.Index(classOrder, a.Class),
		slices.Index(classOrder, b.Class)), cmp.Compare(a.Text, b.Text))
}

// Summary returns the differences of some classes on one line, the riskiest first and the rest counted:
// "permissions: cluster-wide: * on secrets; webhooks: ...; and 12 more". It is empty if there are none.
func (s *Set) Summary(classes []Class) string {
	const most = 5
	summary, class, count := "", Class(""), 0
	for _, d := range s.Differences {
		if !slices.Contains(classes, d.Class) {
			continue
		}
		if count++; count > most {
			continue
		}
		if summary != "" {
			summary += "; "
		}
		if d.Class != class {
			class = d.Class
			summary += string(class) + ": "
		}
		summary += text.Truncate(d.Text, maxSummaryText)
	}
	if count > most {
		summary += fmt.Sprintf("; and %d more", count-most)
	}
	return summary
}

// maxSummaryText bounds one difference in a summary, in bytes.
const maxSummaryText = 160

// normalForm is what a digest covers: nothing that differs between clusters, so the same change has the same digest
// everywhere.
type normalForm struct {
	Package     string       `json:"package"`
	CSV         string       `json:"csv"`
	Version     string       `json:"version"`
	Release     string       `json:"release,omitempty"`
	Differences []Difference `json:"differences"`
	Contents    string       `json:"contents"`
}

// Digest returns "sha256:" and 64 hex digits, which identify the change in all clusters; "" with a Fault. It leaves out
// the catalog and the channel, and the name of what is replaced; what that had shows in the differences.
func (s *Set) Digest() string {
	if s.Fault != "" {
		return ""
	}
	form, err := json.Marshal(normalForm{Package: s.Package, CSV: s.CSV, Version: s.Version, Release: s.Release,
		Differences: s.Differences, Contents: hex.EncodeToString(s.Contents[:])})
	if err != nil {
		return "" // which holds; strings and numbers always encode
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(form))
}

// digest returns the digest of all that a bundle writes: the spec of its ClusterServiceVersion, its rights, and its
// other objects. It leaves out what differs between clusters or between a plan and a ConfigMap: names and owners of
// derived RBAC objects, status, and metadata that the API server sets.
func (c *Contents) digest(r *rights) [sha256.Size]byte {
	h := sha256.New()
	if c.rawSpec != nil {
		rest := *c
		rest.spec.Replaces = "" // from the channel
		strategy := &rest.spec.InstallStrategy.StrategySpec
		permissions := append(accountRules("cluster-wide", strategy.ClusterPermissions),
			accountRules("in its namespaces", strategy.Permissions)...)
		strategy.ClusterPermissions, strategy.Permissions = nil, nil
		fmt.Fprintf(h, "spec %x %q\n", olm.ContentsDigest(rest.typedSpec()), permissions)
		metadata := fields{}
		metadata.readMap(annotationPath, c.annotations)
		metadata.readMap(labelPath, c.labels)
		for _, path := range sortedKeys(metadata) {
			fmt.Fprintf(h, "%q %q\n", path, sortedKeys(metadata[path]))
		}
	}
	for _, holder := range r.holders() {
		fmt.Fprintf(h, "%q %q\n", holder.String(), sorted(r.roles[holder]))
		for _, rule := range normalRules(r.rules[holder]) {
			fmt.Fprintf(h, "%s\n", ruleKey(&rule))
		}
	}
	derived := c.derivedRules()
	for i := range c.objects {
		if o := &c.objects[i]; !derived.has(o) {
			o.digest(h)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// accountRules returns which ServiceAccount has which rules, in one order.
func accountRules(where string, permissions []v1alpha1.StrategyDeploymentPermissions) []string {
	all := make([]string, len(permissions))
	for i := range permissions {
		all[i] = fmt.Sprintf("%s %q %s", where, permissions[i].ServiceAccountName, rulesKey(permissions[i].Rules))
	}
	return sorted(all)
}

// volatile are the fields of metadata that the API server or OLM set.
var volatile = []string{"namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
	"ownerReferences", "selfLink"}

// digest writes the digest of an object without its status and volatile metadata.
func (o *object) digest(h hash.Hash) {
	var fields map[string]json.RawMessage
	if kjson.UnmarshalCaseSensitivePreserveInts(o.raw, &fields) != nil {
		fmt.Fprintf(h, "%x\n", sha256.Sum256(o.raw))
		return
	}
	delete(fields, "status")
	var metadata map[string]json.RawMessage
	if kjson.UnmarshalCaseSensitivePreserveInts(fields["metadata"], &metadata) == nil {
		delete(fields, "metadata")
		for _, name := range volatile {
			delete(metadata, name)
		}
		digestFields(h, "metadata", metadata)
	}
	digestFields(h, o.Kind, fields)
}

// digestFields writes the digests of fields.
func digestFields(h hash.Hash, of string, fields map[string]json.RawMessage) {
	fmt.Fprintf(h, "%q\n", of)
	for _, name := range sortedKeys(fields) {
		if string(fields[name]) != "null" {
			fmt.Fprintf(h, "%q %x\n", name, olm.ContentsDigest(fields[name]))
		}
	}
}
