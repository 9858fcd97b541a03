package constraint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
)

// Set is all Definitions of the cluster and the facts about it. It is immutable except for its cache: judging depends
// on values only, so the same bundle in the same namespace has the same findings.
type Set struct {
	definitions []*Definition
	cluster     facts.Cluster
	properties  []olm.Property
	around      surroundings
	judged      boundedMap[factsKey, []Result]
	binds       boundedMap[factsKey, []*Definition]
}

// memoryLimit bounds the cache of a Set, in bytes, approximately.
const memoryLimit = 32 << 20

// factsKey is the digest of a bundle and a namespace.
type factsKey [sha256.Size]byte

// NewSet returns the Set of definitions. A nil *Set has no constraints.
func NewSet(definitions []*Definition, cluster facts.Cluster) *Set {
	s := &Set{definitions: slices.Clone(definitions), cluster: cluster}
	slices.SortStableFunc(s.definitions, func(a, b *Definition) int { return strings.Compare(a.Name, b.Name) })
	for _, d := range s.definitions {
		s.properties = append(s.properties, d.Properties...)
	}
	if cluster.Version != "" {
		value, err := json.Marshal(map[string]string{"version": cluster.Version})
		for _, automatic := range automaticTypes {
			if err == nil && !hasType(s.properties, automatic) {
				s.properties = append(s.properties, olm.Property{Type: automatic, Raw: value})
			}
		}
	}
	s.around = clusterValues(&s.cluster, s.properties)
	return s
}

// With returns a Set that judges by d alone, on the cluster as it would be with d added to the definitions of s or
// replacing the one of its name. It is for the preview of a definition during admission.
func (s *Set) With(d *Definition) *Set {
	definitions, given := []*Definition{d}, facts.Cluster{}
	if s != nil {
		given = s.cluster
		for _, other := range s.definitions {
			if other.Name != d.Name {
				definitions = append(definitions, other)
			}
		}
	}
	with := NewSet(definitions, given)
	with.definitions = []*Definition{d}
	return with
}

// Definitions returns the definitions sorted by name. They must not be changed.
func (s *Set) Definitions() []*Definition {
	if s == nil {
		return nil
	}
	return s.definitions
}

// Properties returns those of the cluster: those of the definitions, and olm.k8s and olm.kubeversion with the
// Kubernetes version unless a definition sets that type itself. They must not be changed.
func (s *Set) Properties() []olm.Property {
	if s == nil {
		return nil
	}
	return s.properties
}

// Differs returns the attributes that depend on facts which are not those of the Set.
func (s *Set) Differs(facts *facts.Cluster) Attributes {
	if s == nil {
		return ClusterVersion
	}
	return differ(&s.cluster, facts)
}

// Reads reports whether judging depends on attributes: on the version of the cluster always, on others if a constraint
// reads them.
func (s *Set) Reads(attributes Attributes) bool {
	all := ClusterVersion
	for _, d := range s.Definitions() {
		for _, c := range d.Constraints {
			all |= c.Uses()
		}
	}
	return all&attributes != 0
}

// Depends reports whether the verdict on a bundle of which nothing is known depends on attributes in a namespace.
func (s *Set) Depends(attributes Attributes, ns Namespace) bool {
	around := s.around.in(ns)
	anything := &judged{bundle: &Bundle{Unknown: OfBundle}, around: &around, budget: NewBudget(nil)}
	return slices.ContainsFunc(s.definitions, func(d *Definition) bool {
		return d.fault() == nil && slices.ContainsFunc(d.Constraints, func(c *Constraint) bool {
			return c.Uses()&attributes != 0 && c.check.judge(anything).outcome != Satisfied
		})
	})
}

// Empty reports whether there is neither a constraint nor a faulty definition, so that every bundle passes.
func (s *Set) Empty() bool {
	if s == nil {
		return true
	}
	for _, d := range s.definitions {
		if len(d.Constraints) > 0 || d.fault() != nil {
			return false
		}
	}
	return true
}

// Judge returns the constraints that a bundle does not satisfy, those that only warn among them, in the order of
// definitions and constraints. The findings are shared and must not be changed.
func (s *Set) Judge(b *Bundle, ns Namespace, budget *Budget) []Result {
	if s.Empty() {
		return nil
	}
	key := digest(b, ns)
	if found, ok := s.judged.get(key); ok {
		return found
	}
	own, end := budget.ofBundle()
	defer end()
	around := s.around.in(ns)
	judged := &judged{bundle: b, around: &around, budget: own}
	var found []Result
	transient := false
	weight := int64(256)
	for _, d := range s.definitions {
		if fault := d.fault(); fault != nil {
			found = append(found, d.failed(fault))
			continue
		}
		for _, c := range d.Constraints {
			f, lasting := c.judge(d, judged)
			if f.Outcome == Satisfied {
				continue
			}
			transient = transient || !lasting
			found = append(found, f)
			weight += int64(256 + len(f.Message) + len(f.Why))
		}
	}
	found = slices.Clip(found)
	if !transient {
		s.judged.put(key, found, weight, memoryLimit)
	}
	return found
}

// failed returns the finding on a faulty definition.
func (d *Definition) failed(fault *Fault) Result {
	return Result{Definition: d, Outcome: Failed, Why: fault.Path + " " + fault.Message}
}

// judge returns the finding on a bundle. It is not lasting if judging was interrupted.
func (c *Constraint) judge(d *Definition, s *judged) (f Result, lasting bool) {
	v := c.check.judge(s)
	f = Result{Definition: d, Constraint: c, Outcome: v.outcome, Message: c.Message, Rule: v.rule,
		Costly: v.costly, Attributes: v.attributes}
	if v.outcome == Satisfied {
		return f, true
	}
	f.Why = v.reason(s.bundle)
	if f.Message == "" {
		f.Message = v.message
	}
	text, lasting := c.expressed(v.outcome, s)
	if text != "" {
		f.Message = text
	}
	return f, !v.transient && (lasting || text != "")
}

// expressed evaluates messageExpression. Like Kubernetes, it does so for violations only: in other cases the result may
// depend on unknown values. If it fails, message is used. The result is not lasting if it was interrupted.
func (c *Constraint) expressed(outcome Outcome, s *judged) (message string, lasting bool) {
	if c.expression == nil || outcome != Violated {
		return "", true
	}
	r := c.expression.eval(s.vars(), s.budget)
	if r.value == nil {
		return "", !r.transient
	}
	message, _ = r.value.Value().(string)
	return text.Truncate(strings.TrimSpace(message), messageShown), true
}

// Applies reports whether some required constraint, or a faulty definition, could refuse a bundle in a namespace.
func (s *Set) Applies(ns Namespace) bool { return len(s.Applicable(ns)) > 0 }

// Applicable returns the definitions that could refuse a bundle in a namespace: faulty ones, and those with a required
// constraint that is not satisfied there for an unknown bundle. They are sorted by name and must not be changed.
func (s *Set) Applicable(ns Namespace) []*Definition {
	if s.Empty() {
		return nil
	}
	anything := &Bundle{Unknown: OfBundle}
	key := digest(anything, ns)
	if binding, ok := s.binds.get(key); ok {
		return binding
	}
	around := s.around.in(ns)
	judged := &judged{bundle: anything, around: &around, budget: NewBudget(nil)}
	var binding []*Definition
	lasting := true
	for _, d := range s.definitions {
		binds, transient := d.couldRefuse(judged)
		if binds {
			binding = append(binding, d)
		}
		lasting = lasting && !transient
	}
	if lasting {
		s.binds.put(key, binding, int64(256+8*len(binding)), memoryLimit/16)
	}
	return binding
}

func (d *Definition) couldRefuse(anything *judged) (binds, transient bool) {
	if d.fault() != nil {
		return true, false
	}
	for _, c := range d.Constraints {
		if c.Action != Require {
			continue
		}
		if v := c.check.judge(anything); v.outcome != Satisfied {
			return true, v.transient
		}
	}
	return false, false
}

// digest covers everything that judging depends on besides the Set. Each part is prefixed with its length, so that
// different inputs never write the same bytes.
func digest(b *Bundle, ns Namespace) factsKey {
	size := 256
	for _, p := range b.Properties {
		size += 32 + len(p.Type) + len(p.Raw)
	}
	buffer := make([]byte, 0, size)
	text := func(parts ...string) {
		for _, part := range parts {
			buffer = binary.AppendUvarint(buffer, uint64(len(part)))
			buffer = append(buffer, part...)
		}
	}
	text(b.Name, b.Package, b.Version, b.Release, b.Channel, b.Catalog.Namespace, b.Catalog.Name, ns.Name,
		b.Deprecated.Package, b.Deprecated.Channel, b.Deprecated.Version)
	if b.Change != nil {
		text(b.Change.Digest, b.Change.From)
	}
	text(b.Config.Written, b.Config.JSON, b.Config.Fault)
	unknown := b.Unknown
	if ns.Unknown {
		unknown |= NamespaceLabels
	}
	buffer = binary.AppendUvarint(buffer, uint64(unknown))
	if b.Manifest != nil {
		manifest := b.Manifest.Digest()
		text(string(manifest[:]))
	} else {
		text("")
	}
	buffer = binary.AppendUvarint(buffer, uint64(len(b.Properties)))
	for _, p := range b.Properties {
		text(p.Type)
		buffer = binary.AppendUvarint(buffer, uint64(len(p.Raw)))
		buffer = append(buffer, p.Raw...)
	}
	keys := make([]string, 0, len(ns.Labels))
	for k := range ns.Labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		text(k, ns.Labels[k])
	}
	return sha256.Sum256(buffer)
}

// Deletion is spec.deletion of a Constraint that restricts deletions.
type Deletion struct {
	// Action is Confirm or Deny.
	Action policyv1beta2.DeletionAction
	// Packages are those of the operators that are protected; none for all.
	Packages []string
	// Catalogs are protected by name.
	Catalogs []olm.Catalog
}

// newDeletion returns nil for a spec that restricts nothing.
func newDeletion(spec *constraintv1.ConstraintSpec) *Deletion {
	action := spec.EffectiveDeletion()
	if action == policyv1beta2.DeletionAllow {
		return nil
	}
	d := &Deletion{Action: action, Packages: spec.Deletion.Packages}
	for _, c := range spec.Deletion.Catalogs {
		d.Catalogs = append(d.Catalogs, olm.Catalog{Namespace: c.SourceNamespace, Name: c.Source})
	}
	return d
}

// Of reports whether the operators of a package are protected; "" is one that is not known.
func (d *Deletion) Of(pkg string) bool {
	return d != nil && (len(d.Packages) == 0 || slices.Contains(d.Packages, pkg))
}
