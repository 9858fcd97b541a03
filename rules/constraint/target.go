package constraint

import (
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
)

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
