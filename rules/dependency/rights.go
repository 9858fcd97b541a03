package dependency

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/lookup"
	"github.com/opgate/opgate/rules/verdict"
)

// Right is a right to objects of a resource: to one object or, if Name is empty, to all; in a namespace or, if that is
// empty, cluster-wide.
type Right struct{ Verb, Group, Resource, Namespace, Name string }

// Wide returns the right to all objects of the resource, and then the right itself: one answer may hold for many needs.
func (r Right) Wide() []Right {
	return slices.Compact([]Right{{Verb: r.Verb, Group: r.Group, Resource: r.Resource}, r})
}

// String returns the right as text, for the user who grants it.
func (r Right) String() string {
	what := r.Verb + " " + schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
	if r.Name != "" {
		what += " " + text.Name(r.Name)
	}
	if r.Namespace == "" {
		return what + " in the whole cluster"
	}
	return what + " in namespace " + text.Name(r.Namespace)
}

// Need is something that the author of a Policy needs a right to.
type Need struct {
	// Rights are checked in this order until one is granted: any is enough.
	Rights []Right
	// Narrow is the kind that the mark of the Policy records if the right is missing; nil if the Policy is refused
	// then.
	Narrow *schema.GroupKind

	Rule verdict.RuleID
	// Field does something with an object that its author may not do: "makes", "create".
	Field, Does, Object, May string
}

// MaxQuestions bounds how many rights of a user are checked for one write: each is a request to the API server, so that
// a user's writes must not cause many. All are checked at the same time.
const MaxQuestions = 20

// Authors returns what the author of an OperatorPolicy needs rights to that is a template of a Policy, by its JSON: Opgate
// writes it, so the rights are ones of the author of the Policy.
type Authors func(policy *policyv1.Policy, raw []byte) []Need

// Needs returns what the author of a Policy needs rights to: the loop applies templates and reads their dependencies
// with its own rights, which must not extend those of the author. Unchanged parts were verified
// for their own author. A disabled Policy needs nothing until it is enabled. Before is the stored Policy if it has a
// valid mark, else nil.
func Needs(policy, before *policyv1.Policy, known Verification, authors Authors) []Need {
	if policy.Spec.Disabled {
		return nil
	}
	if before != nil && before.Spec.Disabled {
		before = nil
	}
	read := Read(policy)
	return append(templateNeeds(policy, read, before, authors), dependencyNeeds(read, before, known)...)
}

func templateNeeds(policy *policyv1.Policy, read *Policy, before *policyv1.Policy, authors Authors) []Need {
	known := map[Ref][]byte{}
	if before != nil && before.Spec.RemediationAction == policy.Spec.RemediationAction {
		for _, t := range Read(before).Templates {
			known[t.Ref] = before.Spec.PolicyTemplates[t.Index].ObjectDefinition.Raw
		}
	}
	var needed []Need
	asked := map[Right]bool{}
	for _, t := range read.Templates {
		raw, stays := known[t.Ref]
		if !t.Readable || stays && bytes.Equal(raw, policy.Spec.PolicyTemplates[t.Index].ObjectDefinition.Raw) {
			continue // an unreadable template is not applied
		}
		right := createRight(t.Ref)
		if !asked[right] {
			asked[right] = true
			needed = append(needed, Need{Rights: []Right{right}, Rule: RulePolicyEscalation,
				Field: fmt.Sprintf("spec.policy-templates[%d]", t.Index), Does: "makes", Object: t.Ref.String(), May: "create"})
		}
		for _, need := range ofTemplate(policy, &t, authors) {
			if !asked[need.Rights[0]] {
				asked[need.Rights[0]] = true
				needed = append(needed, need)
			}
		}
	}
	return needed
}

// dependencyNeeds is about cluster-scoped objects and other namespaces: the author may depend on any object in the
// Policy's own.
func dependencyNeeds(read *Policy, before *policyv1.Policy, verified Verification) []Need {
	seen := map[Ref]bool{}
	kinds := map[schema.GroupKind]bool{}
	if before != nil {
		for _, t := range Read(before).Templates {
			for _, d := range t.Dependencies {
				seen[d.Ref] = true
				kinds[schema.GroupKind{Group: d.Group, Kind: d.Kind}] = true
			}
		}
		for _, kind := range verified.Narrow { // the present author may have the right
			delete(kinds, kind)
		}
	}
	var needed []Need
	for _, t := range read.Templates {
		for _, d := range t.Dependencies {
			kind := schema.GroupKind{Group: d.Group, Kind: d.Kind}
			if !d.scopeKnown() && !kinds[kind] {
				kinds[kind] = true
				if possible(kind) {
					needed = append(needed, Need{Rights: []Right{getRight(d.Ref, "", "")}, Narrow: &kind})
				}
			}
			if seen[d.Ref] || d.Namespace == read.Namespace {
				continue
			}
			seen[d.Ref] = true
			needed = append(needed, Need{Rights: getRights(d.Ref), Rule: RulePolicyDependencyAccess,
				Field: d.Path, Does: "waits for", Object: d.String(), May: "get"})
		}
	}
	return needed
}

// possible reports whether a CustomResourceDefinition could define a kind. Other kinds have no objects.
func possible(kind schema.GroupKind) bool {
	return len(validation.IsDNS1035Label(strings.ToLower(kind.Kind))) == 0 &&
		len(validation.IsDNS1123Subdomain(kind.Group)) == 0
}

// createRight returns the right to create an object of a template. Policy kinds are namespaced, in the namespace of
// their Policy; the scope of other kinds is not known here, so the right to create them cluster-wide is required, which
// covers both scopes.
func createRight(object Ref) Right {
	right := rightTo("create", object)
	if object.Group == policyv1.Group {
		right.Namespace = object.Namespace
	}
	return right
}

// getRights returns the rights that each allow a user to get an object, the widest first: its answer may hold for many
// objects.
func getRights(object Ref) []Right {
	return slices.Compact([]Right{getRight(object, "", ""), getRight(object, object.Namespace, ""),
		getRight(object, object.Namespace, object.Name)})
}

func getRight(object Ref, namespace, name string) Right {
	right := rightTo("get", object)
	right.Namespace, right.Name = namespace, name
	return right
}

func rightTo(verb string, object Ref) Right {
	plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: object.Group, Kind: object.Kind})
	right := Right{Verb: verb, Group: object.Group, Resource: plural.Resource}
	if object.Group == GatekeeperConstraintGroup { // which has no plurals
		right.Resource = singular.Resource
	}
	return right
}

// RefuseLacking refuses an object whose author lacks a right. Unknown is set if that could not be determined.
func RefuseLacking(v *verdict.Verdict, need *Need, unknown bool) {
	f := verdict.Finding{Decision: verdict.Deny, Field: need.Field,
		What:     need.Field + " " + need.Does + " " + need.Object + ", which its author may not " + need.May,
		Accepted: "it needs the right to " + need.Rights[len(need.Rights)-1].String()}
	if unknown {
		f.Decision, f.Accepted = verdict.Hold, "try again"
		f.What = "whether its author may " + need.May + " " + need.Object + ", as " + need.Field + " does, could not be checked"
	}
	v.Add(need.Rule, f)
	*v = v.Sorted()
}

// RefuseTooManyQuestions refuses a Policy whose author needs more rights than are checked. Number is how many at least.
func RefuseTooManyQuestions(v *verdict.Verdict, number int) {
	v.Add(RulePolicyEscalation, verdict.Finding{Decision: verdict.Deny, Field: "spec",
		What: fmt.Sprintf("whether its author may create what it makes, and get what it waits for, takes %d access reviews, at most %d are made",
			number, MaxQuestions),
		Accepted: fmt.Sprintf("split it into Policies that make at most %d kinds and wait for at most %d objects in other namespaces each, "+
			"or let a user who may get all objects of these kinds write it", MaxQuestions/4, MaxQuestions/4)})
}

// RefuseUnmarked refuses a Policy that would be stored without a mark, and therefore ignored.
func RefuseUnmarked(v *verdict.Verdict, generated bool) {
	fix := "the mutating webhook policies.opgate.io has to run before: try again"
	if generated {
		fix = "write metadata.name in place of metadata.generateName"
	}
	v.Add(RulePolicyEscalation, verdict.Finding{Decision: verdict.Hold, Field: "metadata.annotations", Accepted: fix,
		What: "that the rights of its author were verified could not be recorded in annotation " + metakey.Verified})
}

// NarrowKinds returns what the mark of a Policy records: the kinds whose right is missing.
func NarrowKinds(missing []*Need) Verification {
	var v Verification
	for _, need := range missing {
		if need.Narrow != nil {
			v.Narrow = append(v.Narrow, *need.Narrow)
		}
	}
	return v
}

// MarkChange sets the mark of an object that has these annotations; nil if it already has it.
func MarkChange(annotations map[string]string, mark string) []verdict.Change {
	const path = "/metadata/annotations"
	switch {
	case annotations[metakey.Verified] == mark:
		return nil
	case annotations == nil:
		return []verdict.Change{{Rule: RulePolicyEscalation, Path: path,
			Value: map[string]string{metakey.Verified: mark}}}
	}
	return []verdict.Change{{Rule: RulePolicyEscalation,
		Path: path + "/" + strings.ReplaceAll(metakey.Verified, "/", "~1"), Value: mark}}
}

// LookupNeed returns the need of a lookup. It copies what that has, a part of the text of the template, which is not
// kept while rights are asked about.
func LookupNeed(l lookup.Lookup, rule verdict.RuleID, field string) Need {
	right := Right{Verb: "get", Group: strings.Clone(l.Group), Resource: strings.Clone(l.Resource()),
		Namespace: strings.Clone(l.Namespace), Name: strings.Clone(l.Name)}
	object := l.Kind
	switch {
	case l.Kind == lookup.Any:
		object = "objects of a computed kind"
	case l.Name == "":
		object = "any " + l.Kind
	case l.Namespace == "":
		object += " " + l.Name
	default:
		object += " " + l.Namespace + "/" + l.Name
	}
	return Need{Rights: []Right{right}, Rule: rule, Field: field, Does: "looks up", Object: object, May: "get"}
}

// ofTemplate returns the needs of an OperatorPolicy that a template of a Policy makes.
func ofTemplate(policy *policyv1.Policy, t *Template, authors Authors) []Need {
	if t.Ref.Group != policyv1.Group || t.Ref.Kind != verdict.KindOperatorPolicy {
		return nil
	}
	needs, at := authors(policy, policy.Spec.PolicyTemplates[t.Index].ObjectDefinition.Raw), fmt.Sprintf("spec.policy-templates[%d]", t.Index)
	for _, l := range lookup.Of(policy.Spec.PolicyTemplates[t.Index].ObjectDefinition) {
		needs = append(needs, LookupNeed(l, RulePolicyEscalation, at))
	}
	for i := range needs {
		needs[i].Rule, needs[i].Field = RulePolicyEscalation, at
	}
	return needs
}

// Digest is the hash of a Policy's spec, independent of its JSON encoding.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a Policy's spec. It fails if the spec cannot be encoded.
func DigestOf(p *policyv1.Policy) (Digest, error) {
	raw, err := Canonical(p.Spec)
	if err != nil {
		return Digest{}, fmt.Errorf("encode the spec: %w", err)
	}
	return sha256.Sum256(raw), nil
}

// Canonical returns the JSON of a value with sorted keys.
func Canonical(value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var content any
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return nil, err
	}
	return json.Marshal(content)
}

// Verification is the content of a valid mark.
type Verification struct {
	// Narrow are kinds that the author may get only if they are namespaced.
	Narrow []schema.GroupKind
}

// Sign returns the mark of a Policy whose author's rights were verified. Narrow kinds are sorted and deduplicated.
func Sign(key []byte, p *policyv1.Policy, digest Digest, v Verification) string {
	kinds := make([]string, len(v.Narrow))
	for i, kind := range v.Narrow {
		kinds[i] = kind.String()
	}
	slices.Sort(kinds)
	fields := append([]string{""}, slices.Compact(kinds)...)
	fields[0] = signature(key, p, digest, fields[1:])
	return strings.Join(fields, " ")
}

// Verify reads the mark of a Policy. It is not ok unless the key signed it for this spec, namespace and name.
func Verify(key []byte, p *policyv1.Policy, digest Digest) (v Verification, ok bool) {
	fields := strings.Fields(p.Annotations[metakey.Verified])
	if len(key) == 0 || len(fields) == 0 || p.Name == "" ||
		!hmac.Equal([]byte(fields[0]), []byte(signature(key, p, digest, fields[1:]))) {
		return Verification{}, false
	}
	for _, kind := range fields[1:] {
		v.Narrow = append(v.Narrow, schema.ParseGroupKind(kind))
	}
	return v, true
}

// signature covers everything that was verified. It excludes the UID, which is not known yet when a Policy is created.
func signature(key []byte, p *policyv1.Policy, digest Digest, narrow []string) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s v1\n%q %q\n%x\n%q", metakey.Verified, p.Namespace, p.Name, digest, narrow)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// namespacedKinds are the namespaced kinds of ConstraintGroup.
var namespacedKinds = []string{"Subscription", "InstallPlan", "ClusterServiceVersion", "CatalogSource", "OperatorGroup",
	"OperatorCondition"}

// scopeKnown reports whether it is known without a cluster whether the kind is namespaced.
func (r Ref) scopeKnown() bool {
	return r.clusterScoped() || r.Group == PolicyGroup ||
		r.Group == ConstraintGroup && slices.Contains(namespacedKinds, r.Kind)
}

// UnverifiedText is why the templates of a Policy without a valid mark are not applied.
const UnverifiedText = "the rights of the Policy's author were not verified when it was written (" + string(RulePolicyEscalation) + "): " +
	"a user with the right to create what it makes has to write it again, with annotation " +
	metakey.Verified + " changed or left out, while opgate answers"

// Uncovered returns why a template is not applied although its Policy has a valid mark, "" if it is: the right to a
// dependency that turned out to be cluster-scoped, and has no namespace therefore (Policy.Scoped), was not verified.
func (v Verification) Uncovered(t *Template) string {
	for _, d := range t.Dependencies {
		if d.Namespace == "" && !d.clusterScoped() &&
			(d.scopeKnown() || slices.Contains(v.Narrow, schema.GroupKind{Group: d.Group, Kind: d.Kind})) {
			return "it waits for " + d.String() +
				", which is in no namespace, and the right of the Policy's author to get it was not verified (" + string(RulePolicyDependencyAccess) + "): " +
				"a user with the right to get all of its kind has to write the Policy again, with annotation " +
				metakey.Verified + " changed or left out"
		}
	}
	return ""
}
