package constraint

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/opgate/opgate/olm"
)

// Write is a write of an object that is not a bundle, as rules see it.
type Write struct {
	On Target
	// Update reports whether there is a stored object.
	Update bool
	// User is the name of the user who writes, and Groups are those of the user.
	User   string
	Groups []string
	// UserUnknown is set where neither is known.
	UserUnknown bool
	// Unknown are further attributes that are not known: SourceFields and SourceImage.
	Unknown Attributes
	// Source is the catalog as it would be stored, OldSource the stored one; nil if there is none. Of a ClusterCatalog of
	// OLM v1 it has what that has.
	Source, OldSource *olm.CatalogSource
	// Group is the OperatorGroup as it would be stored, OldGroup the stored one; nil if there is none. Others is the number
	// of other OperatorGroups in the namespace.
	Group, OldGroup *olm.OperatorGroup
	Others          int
}

// The names of the variables of writes.
const (
	varOperation = "operation"
	varUserName  = "user.name"
	varGroups    = "user.groups"
	prefixSource = "source."
	prefixGroup  = "group."
	prefixOld    = "old."
)

// aroundFields are the keys of the variables that are not about the object.
var aroundFields = map[string][]string{
	varCluster:                 {"version", "openshift", "properties"},
	varNamespace:               {"metadata"},
	varNamespace + ".metadata": {"name", "labels"},
}

// writeVariables are the variables of every write.
func writeVariables() []variable {
	return []variable{
		{name: varOperation, declared: cel.StringType, write: func(w *Write) ref.Val {
			if w.Update {
				return seen("UPDATE")
			}
			return seen("CREATE")
		}},
		{name: varUserName, declared: cel.StringType, attribute: Writer,
			write: func(w *Write) ref.Val { return seen(w.User) }},
		{name: varGroups, declared: cel.ListType(cel.StringType), attribute: Writer,
			write: func(w *Write) ref.Val { return list(w.Groups) }},
		namespaceVariable, clusterVariable,
	}
}

// attributeOfSource is unknown when the variable for a field of a catalog is; 0 for a field that is always known.
var attributeOfSource = map[string]Attributes{
	"namespace": SourceFields, "sourceType": SourceFields, "address": SourceFields, "configMap": SourceFields,
	"publisher": SourceFields, "image": SourceImage, "registry": SourceImage, "digest": SourceImage,
}

// sourceVariables are the variables of rules on CatalogSources: each field of the object, and of the stored one.
func sourceVariables() []variable {
	var all []variable
	add := func(name string, declared *cel.Type, read func(*olm.CatalogSource) ref.Val) {
		attribute := attributeOfSource[name]
		all = append(all,
			variable{name: prefixSource + name, declared: declared, attribute: attribute,
				write: func(w *Write) ref.Val { return read(w.Source) }},
			variable{name: prefixOld + name, declared: declared, attribute: attribute,
				write: func(w *Write) ref.Val { return read(cmp.Or(w.OldSource, &olm.CatalogSource{})) }})
	}
	for name, field := range map[string]func(*olm.CatalogSource) string{
		"name":       func(s *olm.CatalogSource) string { return s.Metadata.Name },
		"namespace":  func(s *olm.CatalogSource) string { return s.Metadata.Namespace },
		"sourceType": func(s *olm.CatalogSource) string { return s.Spec.SourceType },
		"image":      func(s *olm.CatalogSource) string { return s.Spec.Image },
		"registry":   func(s *olm.CatalogSource) string { return s.Spec.Registry() },
		"digest":     func(s *olm.CatalogSource) string { return s.Spec.ImageDigest() },
		"address":    func(s *olm.CatalogSource) string { return s.Spec.Address },
		"configMap":  func(s *olm.CatalogSource) string { return s.Spec.ConfigMap },
		"publisher":  func(s *olm.CatalogSource) string { return s.Spec.Publisher },
	} {
		add(name, cel.StringType, func(s *olm.CatalogSource) ref.Val { return seen(field(s)) })
	}
	add("priority", cel.IntType, func(s *olm.CatalogSource) ref.Val { return types.Int(s.Spec.Priority) })
	return sortedVariables(all)
}

// groupVariables are the variables of rules on OperatorGroups.
func groupVariables() []variable {
	var all []variable
	type field = func(*Write, *olm.OperatorGroup) ref.Val
	add := func(name string, declared *cel.Type, absent ref.Val, read field) {
		all = append(all,
			variable{name: prefixGroup + name, declared: declared,
				write: func(w *Write) ref.Val { return read(w, w.Group) }},
			variable{name: prefixOld + name, declared: declared, write: func(w *Write) ref.Val {
				if w.OldGroup == nil {
					return absent
				}
				return read(w, w.OldGroup)
			}})
	}
	for name, text := range map[string]func(*olm.OperatorGroup) string{
		"name":               func(g *olm.OperatorGroup) string { return g.Metadata.Name },
		"namespace":          func(g *olm.OperatorGroup) string { return g.Metadata.Namespace },
		"serviceAccountName": func(g *olm.OperatorGroup) string { return g.Spec.ServiceAccount },
		"upgradeStrategy":    func(g *olm.OperatorGroup) string { return g.Spec.UpgradeStrategy },
	} {
		add(name, cel.StringType, seen(""), func(_ *Write, g *olm.OperatorGroup) ref.Val { return seen(text(g)) })
	}
	add("targetNamespaces", cel.ListType(cel.StringType), list(nil),
		func(_ *Write, g *olm.OperatorGroup) ref.Val { return list(g.Spec.TargetNamespaces) })
	add("allNamespaces", cel.BoolType, types.False,
		func(_ *Write, g *olm.OperatorGroup) ref.Val { return types.Bool(g.Spec.AllNamespaces()) })
	add("selector", cel.BoolType, types.False,
		func(_ *Write, g *olm.OperatorGroup) ref.Val { return types.Bool(g.Spec.Selects()) })
	add("others", cel.IntType, types.IntZero,
		func(w *Write, _ *olm.OperatorGroup) ref.Val { return types.Int(w.Others) })
	return sortedVariables(all)
}

// newWriteActivation returns the variables of a write.
func newWriteActivation(w *Write, around *surroundings) *activation {
	a := &activation{vocabulary: vocabularies[w.On], bundle: &Bundle{}, around: around,
		unknown:  around.unknownAttributes,
		patterns: append([]*interpreter.AttributePattern{}, around.unknown...)}
	a.values = make([]ref.Val, len(a.vocabulary.variables))
	missing := w.Unknown
	if w.UserUnknown {
		missing |= Writer
	}
	a.unknown |= missing
	for i := range a.vocabulary.variables {
		v := &a.vocabulary.variables[i]
		if v.write != nil {
			a.values[i] = v.write(w)
		}
		if missing&v.attribute != 0 {
			a.patterns = append(a.patterns, interpreter.NewAttributePattern(v.name))
		}
	}
	return a
}

// JudgeWrite returns the constraints on the target of a write that the write does not satisfy, as Judge does for
// bundles. Unlike bundles, the same objects are not written again and again, so nothing is cached.
func (s *Set) JudgeWrite(w *Write, ns Namespace, budget *Budget) []Result {
	if s == nil {
		return nil
	}
	around := s.around.in(ns)
	own, end := budget.ofBundle()
	defer end()
	judged := &judged{bundle: &Bundle{}, around: &around, budget: own}
	var found []Result
	for _, d := range s.definitions {
		if fault := d.fault(); fault != nil {
			found = append(found, d.failed(fault))
			continue
		}
		for _, c := range d.OnWrites {
			if c.On != w.On {
				continue
			}
			if judged.activation == nil {
				judged.activation = newWriteActivation(w, &around)
			}
			if f, _ := c.judge(d, judged); f.Outcome != Satisfied {
				found = append(found, f)
			}
		}
	}
	return found
}

// targetOf returns the target of a name; "" is OnBundle.
func targetOf(name string) (Target, bool) {
	if name == "" {
		return OnBundle, true
	}
	i := slices.Index(targetNames[:], name)
	return Target(max(i, 0)), i >= 0 //nolint:gosec // there are few targets
}

// sortedVariables sorts variables by name, and adds those of every write.
func sortedVariables(of []variable) []variable {
	slices.SortFunc(of, func(a, b variable) int { return strings.Compare(a.name, b.name) })
	return append(of, writeVariables()...)
}

// Target is the kind of object that a constraint judges.
type Target uint8

// The targets.
const (
	// OnBundle judges every incoming bundle.
	OnBundle Target = iota
	// OnCatalogSource judges every write of a CatalogSource, by which operators are offered.
	OnCatalogSource
	// OnOperatorGroup judges every write of an OperatorGroup, by which operators get their rights.
	OnOperatorGroup
)

// targetNames are the values of field `on`, in the order of the constants.
var targetNames = [...]string{OnBundle: "bundle", OnCatalogSource: "catalogSource", OnOperatorGroup: "operatorGroup"}

// String returns the value of field `on`.
func (t Target) String() string { return targetNames[t] }

// vocabulary is the set of variables that the rules of one target have.
type vocabulary struct {
	variables []variable
	// index has the position of each variable, and attributes its attribute, by name.
	index      map[string]int
	attributes map[string]Attributes
	// fields are the keys of the map variables with fixed keys. CEL would report a misspelled one only at run time.
	fields map[string][]string
	// environment returns the compiler, which is created on first use.
	environment func() (*cel.Env, error)
}

// vocabularies are those of the targets, in the order of the constants.
var vocabularies = [...]*vocabulary{
	OnBundle:        newVocabulary(variables, bundleFields),
	OnCatalogSource: newVocabulary(sourceVariables(), aroundFields),
	OnOperatorGroup: newVocabulary(groupVariables(), aroundFields),
}

func newVocabulary(variables []variable, fields map[string][]string) *vocabulary {
	v := &vocabulary{variables: variables, fields: fields, index: make(map[string]int, len(variables)),
		attributes: make(map[string]Attributes, len(variables))}
	for i := range variables {
		v.index[variables[i].name], v.attributes[variables[i].name] = i, variables[i].attribute
	}
	v.environment = sync.OnceValues(v.newEnvironment)
	return v
}

// options declares the variables to the compiler.
func (v *vocabulary) options() []cel.EnvOption {
	options := make([]cel.EnvOption, len(v.variables))
	for i := range v.variables {
		options[i] = cel.Variable(v.variables[i].name, v.variables[i].declared)
	}
	return options
}

// names returns the names for messages. It omits the fields of a variable that is a map.
func (v *vocabulary) names() []string {
	var names []string
	for i := range v.variables {
		name := v.variables[i].name
		base, _, dotted := strings.Cut(name, ".")
		if _, known := v.index[base]; !dotted || !known {
			names = append(names, name)
		}
	}
	return names
}

// fieldsOf returns the keys of a variable, those that are variables themselves included.
func (v *vocabulary) fieldsOf(owner string) []string {
	fields := slices.Clip(v.fields[owner])
	for i := range v.variables {
		if field, ok := strings.CutPrefix(v.variables[i].name, owner+"."); ok {
			fields = append(fields, field)
		}
	}
	return fields
}
