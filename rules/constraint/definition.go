package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/constraints"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// Action is the consequence of a violated constraint.
type Action string

// The actions.
const (
	Require Action = "require"
	Warn    Action = "warn"
)

// Meta names a Constraint object.
type Meta struct {
	Name, UID  string
	Generation int64
	// Pending names the Policy that has suspended the Constraint until its dependencies are met; empty for none.
	Pending string
}

// Definition is one Constraint object, parsed and compiled. It is immutable.
type Definition struct {
	Name       string
	UID        string
	Generation int64
	// Pending is that of Meta, Waits a sentence on what is waited for. Callers evaluate them; Set ignores them.
	Pending, Waits string
	// Constraints are the elements on bundles that could be parsed.
	Constraints []*Constraint
	// OnWrites are those on writes of other objects.
	OnWrites   []*Constraint
	Properties []olm.Property
	// Exceptions are those of the object. Callers evaluate them; Set ignores them.
	Exceptions operatorpolicy.Exceptions
	// Deletion is nil if the Constraint does not restrict deletions. Callers evaluate it; Set ignores it.
	Deletion *Deletion
	// Faults are the errors. If any is not a warning, the definition holds every bundle.
	Faults []Fault
}

// Constraint is one element of spec.constraints or spec.rules.
type Constraint struct {
	// Index counts the elements of spec.constraints from 0, then those of spec.rules.
	Index int
	// Path is the path of the element, such as "spec.rules[0]".
	Path string
	// On is what it judges.
	On     Target
	Action Action
	// Message is the author's, without messageExpression.
	Message string

	check      *check
	expression *program // messageExpression
}

// Uses returns the attributes that the constraint may read.
func (c *Constraint) Uses() Attributes { return c.check.uses() }

// Define reads a Constraint object. It is total: whatever cannot be read is a fault.
func Define(meta Meta, spec *constraintv1.ConstraintSpec) *Definition {
	d := &Definition{Name: meta.Name, UID: meta.UID, Generation: meta.Generation, Pending: meta.Pending,
		Deletion: newDeletion(spec)}
	var found faults
	if size := specSize(spec); size > maxObjectBytes {
		found.add(Size, "spec", "", fmt.Sprintf("has %d bytes, the limit is %d", size, maxObjectBytes))
		d.Faults = found
		return d
	}
	d.constraints(spec, &found)
	d.properties(spec, &found)
	d.Faults = found
	return d
}

// specSize returns the bytes of all that is written in a spec, without the names of fields.
func specSize(spec *constraintv1.ConstraintSpec) int {
	size := len(spec.Constraints) + len(spec.Properties)
	for i := range spec.Rules {
		r := &spec.Rules[i]
		size += len(r.Target) + len(r.Expression) + len(r.Message) + len(r.MessageExpression) + len(r.Action)
	}
	for i := range spec.Offers {
		size += len(spec.Offers[i].Type) + len(spec.Offers[i].Value.Raw)
	}
	return size
}

// constraints reads spec.constraints and spec.rules.
func (d *Definition) constraints(spec *constraintv1.ConstraintSpec, found *faults) {
	add := func(c *Constraint) {
		switch {
		case c == nil:
		case c.On == OnBundle:
			d.Constraints = append(d.Constraints, c)
		default:
			d.OnWrites = append(d.OnWrites, c)
		}
	}
	text := &document{text: spec.Constraints, path: "spec.constraints", faults: found}
	for _, e := range text.elements(maxConstraints, "the constraint is required") {
		add(text.constraint(e))
	}
	if !found.room("spec.rules", text.length, len(spec.Rules), maxConstraints) {
		return
	}
	for i := range spec.Rules {
		add(text.rule(text.length+i, fmt.Sprintf("spec.rules[%d]", i), writtenRule(&spec.Rules[i])))
	}
}

// fault returns the first fault that is not a warning, or nil.
func (d *Definition) fault() *Fault {
	if i := slices.IndexFunc(d.Faults, func(f Fault) bool { return !f.Warning() }); i >= 0 {
		return &d.Faults[i]
	}
	return nil
}

// WithFault returns a copy with one more fault.
func (d *Definition) WithFault(f Fault) *Definition {
	other := *d
	other.Faults = append(slices.Clip(other.Faults), f)
	return &other
}

// The keys of the two syntaxes, and of the parts of OLM's.
var (
	seedKeys     = []string{"evaluator", "on", "rule", "message", "messageExpression", "action"}
	olmKeys      = []string{"failureMessage", "gvk", "package", "all", "any", "not", "cel"}
	compoundKeys = []string{"constraints"}
)

// constraint reads one element; nil if it has faults that are not warnings.
func (d *document) constraint(e element) *Constraint {
	before := len(*d.faults)
	if size := e.node.end - e.node.start; size > maxConstraintBytes {
		d.faults.add(Size, e.path, "", fmt.Sprintf("is %d bytes, the limit of a constraint is %d", size,
			maxConstraintBytes))
		return nil
	}
	path := e.path + ".value"
	switch {
	case e.kind != olm.TypeConstraint:
		d.faults.add(Syntax, e.path+".type", e.kind, "is not a type of constraint; "+olm.TypeConstraint+" is accepted")
		return nil
	case e.value.kind != objectNode:
		d.faults.add(Syntax, path, string(d.raw(e.value)),
			fmt.Sprintf("is %s; an object with rule, or with one of cel, package, gvk, all, any and not is required",
				e.value.kind))
		return nil
	}
	var c *Constraint
	if isOLM(e.value) {
		c = &Constraint{Index: e.index, Path: e.path, Action: Require}
		d.olm(c, e.value, path)
	} else if r := d.seed(e.value, path); r != nil {
		c = d.rule(e.index, e.path, r)
	}
	if hasFault((*d.faults)[before:]) {
		return nil
	}
	return c
}

// isOLM reports whether a constraint is in OLM's syntax, not in the proposal's.
func isOLM(value *node) bool {
	return slices.ContainsFunc(value.keys, func(key string) bool { return slices.Contains(olmKeys, key) })
}

// written is a rule in CEL as it is written, in either form. Its texts may be empty, where that means the
// default.
type written struct {
	on, expression, message, messageExpression, action string
	// fields are the paths of the texts below the element.
	fields writtenFields
}

type writtenFields struct{ on, expression, messageExpression, action string }

// The names of the fields in spec.constraints and in spec.rules.
var (
	seedFields = writtenFields{on: ".value.on", expression: ".value.rule",
		messageExpression: ".value.messageExpression",
		action:            ".value.action.id"}
	ruleFields = writtenFields{on: ".target", expression: ".expression", messageExpression: ".messageExpression",
		action: ".action"}
)

func writtenRule(r *constraintv1.ConstraintRule) *written {
	return &written{on: r.Target, expression: r.Expression, message: r.Message, messageExpression: r.MessageExpression,
		action: r.Action, fields: ruleFields}
}

// seed reads {"evaluator":{"id":"cel"},"on","rule","message","messageExpression","action":{"id":"require"|"warn"}}; nil
// if the rule or what it is on cannot be read.
func (d *document) seed(value *node, path string) *written {
	if len(value.keys) == 0 {
		d.faults.add(Rule, path, "{}", "is empty; rule, or one of cel, package, gvk, all, any and not is required")
		return nil
	}
	r := &written{fields: seedFields}
	d.onlyKeys(value, path, seedKeys...)
	if id, ok := d.id(value, path, "evaluator"); ok && id != "cel" && id != "" {
		d.faults.add(Syntax, path+".evaluator.id", id, "is not an evaluator; cel is accepted")
	}
	r.action, _ = d.id(value, path, "action")
	knownTarget := true
	if value.get("on") != nil {
		r.on, knownTarget = d.str(value, path, "on", true)
	}
	r.message, _ = d.str(value, path, "message", false)
	r.messageExpression, _ = d.str(value, path, "messageExpression", false)
	var ok bool
	if r.expression, ok = d.str(value, path, "rule", true); !ok || !knownTarget {
		return nil
	}
	return r
}

// rule compiles a rule; nil if it has faults.
func (d *document) rule(index int, path string, r *written) *Constraint {
	before := len(*d.faults)
	c := &Constraint{Index: index, Path: path, Action: Require, Message: text.Truncate(r.message, messageShown)}
	if r.action != "" {
		if c.Action = Action(r.action); c.Action != Require && c.Action != Warn {
			d.faults.add(Syntax, path+r.fields.action, r.action, "is not an action; require and warn are accepted")
		}
	}
	on, known := targetOf(r.on)
	if c.On = on; !known {
		d.faults.add(Syntax, path+r.fields.on, r.on, "is not a target; "+strings.Join(targetNames[:], ", ")+
			" are accepted")
		return nil
	}
	if r.expression == "" {
		d.faults.add(Syntax, path+r.fields.expression, `""`, "is empty")
		return nil
	}
	program, err := d.compile(r.expression, c.On, false)
	if err != nil {
		d.faults.add(Rule, path+r.fields.expression, r.expression, err.Error())
		return nil
	}
	c.check = &check{kind: celCheck, program: program, text: text.Truncate(r.expression, ruleShown), message: c.Message}
	if r.messageExpression != "" {
		if c.expression, err = d.compile(r.messageExpression, c.On, true); err != nil {
			d.faults.add(Rule, path+r.fields.messageExpression, r.messageExpression, err.Error())
		}
	}
	if len(*d.faults) > before {
		return nil
	}
	return c
}

// compile compiles an expression, unless the object exceeds the limit for expressions.
func (d *document) compile(source string, on Target, text bool) (*program, error) {
	if d.rules += len(source); d.rules > maxRulesBytes {
		return nil, fmt.Errorf("is more CEL than one object may have (%d bytes); use several Constraint objects",
			maxRulesBytes)
	}
	return compileCached(source, on, text)
}

// id reads {"id": "..."}; absent is empty.
func (d *document) id(value *node, path, key string) (string, bool) {
	v := value.get(key)
	if v == nil {
		return "", true
	}
	if v.kind != objectNode {
		d.faults.add(Syntax, path+"."+key, string(d.raw(v)), fmt.Sprintf(`is %s; {"id": "..."} is required`, v.kind))
		return "", false
	}
	d.onlyKeys(v, path+"."+key, "id")
	return d.str(v, path+"."+key, "id", true)
}

// olm reads OLM's syntax with OLM's own parser, so that both agree, after checking for input that OLM's parser accepts
// but reads differently from how it looks.
func (d *document) olm(c *Constraint, value *node, path string) {
	before := len(*d.faults)
	d.olmKeys(value, path, 0)
	if len(*d.faults) > before && hasFault((*d.faults)[before:]) {
		return
	}
	written, err := json.Marshal(d.tree(value)) // with the keys that olmKeys has replaced
	if err != nil {
		d.faults.add(Syntax, path, "", "cannot be read: "+err.Error())
		return
	}
	parsed, err := constraints.Parse(written)
	if err != nil {
		d.faults.add(Syntax, path, "", "cannot be read: "+strings.TrimPrefix(err.Error(), "json: "))
		return
	}
	c.check, err = newCheck(parsed, path, func(rule string) (*program,
		error) {
		return d.compile(rule, OnBundle, false)
	})
	if err != nil {
		d.checkFault(err)
		return
	}
	c.Message = text.Truncate(parsed.FailureMessage, messageShown)
	c.check.message = c.Message
}

func hasFault(all []Fault) bool {
	return slices.ContainsFunc(all, func(f Fault) bool { return !f.Warning() })
}

func (d *document) checkFault(err error) {
	var at *faultAt
	if errors.As(err, &at) {
		d.faults.add(Rule, at.path, at.value, at.err.Error())
		return
	}
	d.faults.add(Rule, d.path, "", err.Error())
}

// olmKeys checks the keys of a constraint in OLM's syntax and of its parts, and warns of ineffective ones.
func (d *document) olmKeys(n *node, path string, depth int) {
	if n.kind != objectNode {
		d.faults.add(Syntax, path, string(d.raw(n)),
			fmt.Sprintf("is %s; an object with one of cel, package, gvk, all, any and not is required", n.kind))
		return
	}
	var kinds []string
	for _, key := range olmKeys[1:] {
		if v := n.get(key); v != nil && v.kind != nullNode {
			kinds = append(kinds, key)
		}
	}
	for i, key := range n.keys {
		switch child := n.children[i]; {
		case !slices.Contains(olmKeys, key) && slices.Contains(seedKeys, key):
			d.faults.add(Syntax, path+"."+key, string(d.raw(child)), "cannot be combined with "+
				strings.Join(append(kinds, "failureMessage")[:1], "")+
				": it belongs to the form with rule and evaluator")
		case !slices.Contains(olmKeys, key):
			d.faults.add(Syntax, path+"."+text.Truncate(key, valueShown), string(d.raw(child)),
				"is not known; known are "+strings.Join(olmKeys, ", "))
		}
	}
	if len(kinds) == 0 {
		d.faults.add(Rule, path, string(d.raw(n)), errEmpty.Error())
		return
	}
	if len(kinds) > 1 {
		d.faults.add(Ineffective, path+"."+kinds[1], "",
			fmt.Sprintf("has no effect beside %s: only one of gvk, package, all, any, not and cel counts, in this order; use all for several", kinds[0]))
	}
	kind := kinds[0]
	v, below := n.get(kind), path+"."+kind
	switch kind {
	case "gvk":
		d.olmFields(v, below, []string{"group", "version", "kind"}, []string{"version", "kind"})
	case "package":
		d.packageName(v, below)
		d.olmFields(v, below, []string{"packageName", "versionRange"}, []string{"packageName", "versionRange"})
	case "cel":
		d.olmFields(v, below, []string{"rule"}, []string{"rule"})
	default:
		d.olmCompound(kind, v, below, depth)
	}
}

// packageName replaces key name by packageName: OLM's manual prints name in the examples of compound constraints, and
// OLM itself does not read it.
func (d *document) packageName(n *node, path string) {
	i := slices.Index(n.keys, "name")
	if i < 0 || n.get("packageName") != nil {
		return
	}
	n.keys[i] = "packageName"
	d.faults.add(Ineffective, path+".name", string(d.raw(n.children[i])),
		"is read as packageName; OLM does not, and a bundle with it is never resolved: write packageName")
}

// olmFields checks an object of strings.
func (d *document) olmFields(n *node, path string, known, required []string) {
	if n.kind != objectNode {
		d.faults.add(Syntax, path, string(d.raw(n)),
			fmt.Sprintf("is %s; an object with %s is required", n.kind, strings.Join(known, ", ")))
		return
	}
	d.onlyKeys(n, path, known...)
	for _, key := range known {
		d.str(n, path, key, slices.Contains(required, key))
	}
}

func (d *document) olmCompound(kind string, n *node, path string, depth int) {
	if n.kind != objectNode {
		d.faults.add(Syntax, path, string(d.raw(n)), fmt.Sprintf(`is %s; {"constraints": [...]} is required`, n.kind))
		return
	}
	d.onlyKeys(n, path, compoundKeys...)
	list := n.get("constraints")
	if list == nil || list.kind == nullNode {
		list = &node{kind: listNode}
	}
	if list.kind != listNode {
		d.faults.add(Syntax, path+".constraints", string(d.raw(list)),
			fmt.Sprintf("is %s; a list is required", list.kind))
		return
	}
	switch {
	case len(list.children) == 0 && kind == "any":
		d.faults.add(Ineffective, path+".constraints", "",
			"is empty: any of nothing is never satisfied, so every operator is refused")
	case len(list.children) == 0:
		d.faults.add(Ineffective, path+".constraints", "", "is empty: "+kind+" of nothing is always satisfied")
	case kind == "not" && depth == 0:
		d.faults.add(Ineffective, path, "",
			"is used alone: it refuses what matches and requires nothing else; in a bundle OLM would read it as \"some other bundle does not match\", so put it into all, beside what is asked for, unless a ban is what you want")
	}
	for i, child := range list.children {
		d.olmKeys(child, fmt.Sprintf("%s.constraints[%d]", path, i), depth+1)
	}
}
