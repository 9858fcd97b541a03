package dependency

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// Read reads a Policy with any content: a template that cannot be applied has a Fault that says why.
func Read(p *policyv1.Policy) *Policy {
	return read(p, func(string, string) bool { return false })
}

// read reads a Policy where cluster reports which kinds are cluster-scoped, besides those that are known to be.
func read(p *policyv1.Policy, cluster func(group, kind string) bool) *Policy {
	out := &Policy{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, Generation: p.Generation,
		Disabled: p.Spec.Disabled, Deleting: p.DeletionTimestamp != nil, NamesKnown: true,
		State: State(p.Status.ComplianceState), ObservedGeneration: p.Status.ObservedGeneration,
	}
	if n := len(p.Name); n > MaxPolicyName {
		out.fault(field.Invalid(field.NewPath("metadata", "name"), p.Name, fmt.Sprintf(
			"has %d characters; the name becomes a label of what the templates make: write at most %d", n,
			MaxPolicyName)))
	}
	out.Evaluating = out.State == Unknown && hasReason(p.Status.Conditions, ReasonNotEvaluated)
	out.Excluded = hasReason(p.Status.Conditions, ReasonExcluded)
	out.PendingDependencies = p.Status.Dependencies[:min(len(p.Status.Dependencies), maxPending)]

	own := out.readDependencies("spec.dependencies", p.Spec.Dependencies)
	out.Templates = make([]Template, len(p.Spec.PolicyTemplates))
	extras := make([]dependencies, len(out.Templates))
	for i, written := range p.Spec.PolicyTemplates {
		path := "spec.policy-templates[" + strconv.Itoa(i) + "]"
		out.Templates[i] = out.readTemplate(i, written)
		if written != nil {
			extras[i] = out.readDependencies(path+".extraDependencies", written.ExtraDependencies)
		}
	}
	out.readMet(own, extras, p.Status.Details) // as they are written: all replicas agree on that
	for _, list := range slices.Concat(extras, []dependencies{own}) {
		for _, d := range list.list {
			d.scope(cluster)
		}
	}
	for i := range out.Templates {
		out.Templates[i].Ref.scope(cluster)
	}
	out.unite(own, extras)
	out.sameNames()
	out.HidesTemplates = slices.ContainsFunc(out.Templates, func(t Template) bool {
		return !t.Readable && len(t.Dependencies) > 0
	})
	return out
}

// dependencies is a list of dependencies, and the faults of the list.
type dependencies struct {
	list  []*Dependency
	fault string
}

func (p *Policy) readDependencies(path string, written []policyv1.PolicyDependency) dependencies {
	var read dependencies
	if len(written) > 0 {
		read.list = make([]*Dependency, len(written))
	}
	for i := range written {
		w := &written[i]
		d := Dependency{Want: State(w.Compliance), Path: path + "[" + strconv.Itoa(i) + "]",
			Ref: Ref{Group: PolicyGroup, Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}}
		if w.APIVersion != "" {
			if err := validateAPIVersion(field.NewPath(d.Path, "apiVersion"), w.APIVersion); err != nil {
				read.fault = cmp.Or(read.fault, err.Error())
				p.fault(err)
			}
			gv, _ := schema.ParseGroupVersion(w.APIVersion)
			d.Group, d.Version = gv.Group, gv.Version
		}
		if d.Namespace == "" {
			d.Namespace = p.Namespace
		}
		switch {
		case d.clusterScoped():
			d.Namespace = ""
		case ownNamespaceOnly(d.Ref) && d.Namespace != p.Namespace:
			ignored := d.Namespace
			d.Namespace = p.Namespace
			p.Warnings = append(p.Warnings, Warning{Path: d.Path + ".namespace",
				Text: "namespace " + text.Name(ignored) + " is ignored for kind " + text.Name(d.Kind) +
					": " + d.String() + " is waited for"})
		}
		read.list[i] = &d
	}
	return read
}

// validateAPIVersion refuses in particular a group without a version: it would be read as a version, and the Policy
// would wait forever.
func validateAPIVersion(path *field.Path, apiVersion string) *field.Error {
	group, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		version = apiVersion
	}
	if len(validation.IsDNS1035Label(version)) == 0 && (!grouped || len(validation.IsDNS1123Subdomain(group)) == 0) {
		return nil
	}
	return field.Invalid(path, apiVersion, `is not an API version: write "<group>/<version>", for example "`+
		policyv1.GroupVersion.String()+`", or leave it out for that group`)
}

// fault adds a fault of a field. They are bounded, since each takes kilobytes.
func (p *Policy) fault(err *field.Error) {
	if len(p.Faults) < verdict.MaxFaults {
		p.Faults = append(p.Faults, err)
	}
}

// ownNamespaceOnly reports whether a reference always means an object in the namespace of the Policy, whatever
// namespace is written: templates create objects of these kinds only there.
func ownNamespaceOnly(r Ref) bool {
	return r.Group == PolicyGroup && r.Kind != KindPolicy && strings.HasSuffix(r.Kind, "Policy")
}

// partialObject is the part of a template's object that is read. The rest is for the controller of its kind.
type partialObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// maxName is the maximum length of an object name.
const maxName = 253

func (p *Policy) readTemplate(index int, written *policyv1.PolicyTemplate) Template {
	t := Template{Index: index, Name: "template-" + strconv.Itoa(index)}
	fault := func(text string) Template {
		t.Fault = text
		return t
	}
	var h partialObject
	if written == nil || len(written.ObjectDefinition.Raw) == 0 {
		p.NamesKnown = false
		return fault("the template has no objectDefinition")
	}
	t.IgnorePending = written.IgnorePending
	if err := kjson.UnmarshalCaseSensitivePreserveInts(written.ObjectDefinition.Raw, &h); err != nil {
		p.NamesKnown = false
		return fault("objectDefinition cannot be read: " + unreadable(err))
	}
	if h.Metadata.Name == "" || len(h.Metadata.Name) > maxName {
		p.NamesKnown = false
		if h.Metadata.Name == "" {
			return fault("objectDefinition has no metadata.name")
		}
		return fault(fmt.Sprintf("objectDefinition has a metadata.name of %d characters, at most %d are allowed",
			len(h.Metadata.Name), maxName))
	}
	t.Name = h.Metadata.Name
	if h.Kind == "" {
		return fault("objectDefinition has no kind")
	}
	if h.APIVersion == "" {
		return fault("objectDefinition has no apiVersion")
	}
	gv, err := schema.ParseGroupVersion(h.APIVersion)
	if err != nil {
		return fault("objectDefinition has apiVersion " + text.Name(h.APIVersion) + `, which is not "group/version"`)
	}
	t.Ref, t.Version, t.Readable = Ref{Group: gv.Group, Kind: h.Kind, Namespace: p.Namespace, Name: t.Name}, gv.Version,
		true
	if t.Ref.clusterScoped() {
		t.Ref.Namespace = ""
	}
	t.Suspendable = t.Ref.Suspendable()
	if message, ok := h.Metadata.Annotations[metakey.HubError]; ok {
		t.HubError = text.Truncate(message, 1000)
		if t.HubError == "" {
			t.HubError = "annotation " + metakey.HubError + " is set"
		}
	}
	if len(p.Name) > MaxPolicyName {
		return fault(p.Faults[0].Error())
	}
	return t
}

// unreadable returns a decoding error without its Go specifics: the library has no type for such errors.
func unreadable(err error) string {
	value, place, found := strings.Cut(err.Error(), " into Go ")
	if !found {
		return text.Truncate(err.Error(), 200)
	}
	place, _, _ = strings.Cut(place, " of type ")
	_, field, named := strings.Cut(place[strings.LastIndexByte(place, ' ')+1:], ".")
	if !named {
		field = "it"
	}
	return field + " has the wrong type, " + text.Truncate(strings.TrimPrefix(value, "json: cannot unmarshal "), 200)
}

// MaxPolicyName is the maximum length of a Policy's name: its objects have it as a label value.
const MaxPolicyName = 63

// sameNames sets a fault on templates that share a name, by which the status identifies templates. None of them is
// applied, since it is ambiguous which is meant.
func (p *Policy) sameNames() {
	first := make(map[string]int, len(p.Templates))
	for i := range p.Templates {
		t := &p.Templates[i]
		if t.Name == "template-"+strconv.Itoa(i) && !t.Readable {
			continue // nearly always a generated name
		}
		j, seen := first[t.Name]
		if !seen {
			first[t.Name] = i
			continue
		}
		for _, same := range []*Template{&p.Templates[j], t} {
			same.Fault = fmt.Sprintf(
				"the name %s is used by more than one template, spec.policy-templates[%d] and [%d]: give each its own",
				text.Name(t.Name), j, i)
		}
	}
}

const (
	// maxUnion bounds the dependencies of all templates of one Policy together, except those that all share: the union
	// of two lists of some hundreds, for each of some hundred templates, would be far larger than the Policy.
	maxUnion = 20_000
	// maxObjects bounds the objects that one Policy depends on: each is watched.
	maxObjects = 1_000
	// maxClashes bounds the clashes that are reported.
	maxClashes = 100
)

// unite sets the dependencies of each template to the union of the Policy's and its own: one per object.
func (p *Policy) unite(own dependencies, extras []dependencies) {
	shared := p.merge(own.list, nil)
	spent, objects := 0, refsOf(shared.list)
	for i := range p.Templates {
		t, extra := &p.Templates[i], extras[i]
		union := shared
		if len(extra.list) > 0 {
			if spent += len(own.list) + len(extra.list); spent > maxUnion {
				t.fault(fmt.Sprintf("the templates of the Policy have more than %d dependencies together: put what they have in common into spec.dependencies, or split the Policy", maxUnion))
				continue
			}
			union = p.merge(own.list, extra.list)
			more := refsOf(union.list)
			if maps.Copy(more, objects); len(more) > maxObjects {
				t.fault(fmt.Sprintf("the templates of the Policy wait for more than %d objects together: split the Policy", maxObjects))
				continue
			}
			objects = more
		}
		t.Dependencies = union.list
		for _, text := range []string{own.fault, extra.fault, union.fault} {
			if text != "" {
				t.fault(text)
			}
		}
	}
}

func refsOf(list []*Dependency) map[Ref]struct{} {
	refs := make(map[Ref]struct{}, len(list))
	for i := range list {
		refs[list[i].Ref] = struct{}{}
	}
	return refs
}

// fault sets the fault of a template unless it has one.
func (t *Template) fault(text string) {
	if t.Fault == "" {
		t.Fault = text
	}
}

// merge merges two sorted lists into one, with one entry per object, and records contradictions.
func (p *Policy) merge(own, extra []*Dependency) dependencies {
	if len(own)+len(extra) == 0 {
		return dependencies{}
	}
	all := slices.Concat(own, extra)
	slices.SortStableFunc(all, func(a, b *Dependency) int { return a.Compare(b.Ref) })
	merged := dependencies{list: all[:0]}
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Ref == all[0].Ref {
			n++
		}
		one, same := all[0], all[:n]
		if n > 1 {
			one = p.mergeSame(same, len(extra) > 0, &merged)
		}
		merged.list = append(merged.list, one) // never overtakes the reads, which are ahead of it
		all = all[n:]
	}
	merged.list = slices.Clip(merged.list)
	return merged
}

// mergeSame merges entries that name the same object, and records their contradictions. For a template it does not
// repeat those of the Policy's own list.
func (p *Policy) mergeSame(same []*Dependency, template bool, merged *dependencies) *Dependency {
	one := same[0]
	if i := slices.IndexFunc(same, func(d *Dependency) bool { return d.Version != "" }); i > 0 {
		versioned := *one
		versioned.Version, one = same[i].Version, &versioned
	}
	known := template && !slices.ContainsFunc(same,
		func(d *Dependency) bool { return strings.HasPrefix(d.Path, "spec.policy-templates[") })
	for _, clash := range []Clash{
		clashOf(same, RulePolicyDependencyConflict, "states", func(d *Dependency) string { return string(d.Want) }),
		clashOf(same, RulePolicyDependencyDuplicate, "API versions", func(d *Dependency) string { return d.Version }),
	} {
		if len(clash.Says) < 2 {
			continue
		}
		merged.fault = cmp.Or(merged.fault, "waits for "+clash.String()+": keep one")
		if !known && len(p.Clashes) < maxClashes {
			p.Clashes = append(p.Clashes, clash)
		}
	}
	return one
}

// clashOf lists the different values for one object, each with its first path. Empty values are left out.
func clashOf(same []*Dependency, rule verdict.RuleID, what string, says func(d *Dependency) string) Clash {
	c := Clash{Ref: same[0].Ref, Rule: rule, What: what}
	for i := range same {
		if what := says(same[i]); what != "" && !slices.Contains(c.Says, what) && len(c.Says) < 5 {
			c.Says, c.Paths = append(c.Says, what), append(c.Paths, same[i].Path)
		}
	}
	return c
}

// String returns "Policy shop/db in states Compliant (spec.dependencies[0]) and NonCompliant (spec.dependencies[1])".
func (c *Clash) String() string {
	parts := make([]string, len(c.Says))
	for i := range c.Says {
		parts[i] = text.Name(c.Says[i]) + " (" + c.Paths[i] + ")"
	}
	return c.Ref.String() + " in " + c.What + " " + strings.Join(parts, " and ")
}

// scope removes the namespace of a cluster-scoped object.
func (r *Ref) scope(cluster func(group, kind string) bool) {
	if cluster(r.Group, r.Kind) {
		r.Namespace = ""
	}
}

// Scoped returns a Policy that was read, or what Read returns of it where cluster reports kinds as cluster-scoped: Read
// knows the scope of only a few.
func (p *Policy) Scoped(written *policyv1.Policy, cluster func(group, kind string) bool) *Policy {
	concerns := func(r Ref) bool { return r.Namespace != "" && cluster(r.Group, r.Kind) }
	for i := range p.Templates {
		t := &p.Templates[i]
		if concerns(t.Ref) || slices.ContainsFunc(t.Dependencies, func(d *Dependency) bool { return concerns(d.Ref) }) {
			return read(written, cluster)
		}
	}
	return p
}
