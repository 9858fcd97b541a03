package admission

import (
	"context"
	"encoding/json"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/verdict"
)

// markLookups marks an OperatorPolicy whose author has the right to get what its templates look up. Without a mark,
// they look up what is in the policy's own namespace only. What Opgate writes is the template of a Policy, of which the
// author was verified; what others wrote into the same object before was not. The policy is dropped before rights are
// asked about.
func (g *Gate) markLookups(ctx context.Context, req *request[json.RawMessage, json.RawMessage],
	p *decodedPolicies) []verdict.Change {
	op, old, key := p.policy, p.old, g.Key()
	lookups := rules.Lookups(op)
	mark := rules.SignLookups(key, op)
	if len(lookups) == 0 || len(lookups) > rules.MaxLookups || mark == "" || op.DeletionTimestamp != nil {
		return nil
	}
	verified := old != nil && rules.LookupsVerified(key, old)
	unchanged := old != nil && rules.SameTemplates(old, op)
	switch {
	case verified && unchanged:
	case unchanged && old.Annotations[metakey.Verified] == op.Annotations[metakey.Verified]:
		return nil // a controller that touches all objects does not answer for what others have written
	case req.authenticated && g.byOpgate(&req.User):
		if !verified && (old == nil && req.update() || old != nil && (unchanged || len(rules.Lookups(old)) > 0)) {
			return nil
		}
	default:
		change, needs := dependency.MarkChange(op.Annotations, mark), rules.LookupNeeds(lookups)
		p.drop(req)
		if missing := g.missing(ctx, req.caller(), needs); missing.refuses() {
			return nil
		}
		return change
	}
	return dependency.MarkChange(op.Annotations, mark)
}

// drop releases the policies, and the memory that is reserved for judging them, but for what an event on
// the stored one needs.
func (p *decodedPolicies) drop(req *request[json.RawMessage, json.RawMessage]) {
	old := p.old
	*p = decodedPolicies{}
	req.drop()
	if old == nil {
		return
	}
	head, err := json.Marshal(map[string]any{"metadata": map[string]any{"namespace": old.Namespace, "name": old.Name,
		"uid": old.UID}})
	if err == nil {
		req.OldObject = (*json.RawMessage)(&head)
	}
}

// judgeLookups refuses an OperatorPolicy whose author may not get what its templates look up. Templates
// that do not change were judged for their own author; a user who changes the mark needs the rights of that author. The
// policy is dropped before these are asked about.
func (g *Gate) judgeLookups(ctx context.Context, req *request[json.RawMessage, json.RawMessage], p *decodedPolicies,
	v *verdict.Verdict) {
	op, old := p.policy, p.old
	lookups := rules.Lookups(op)
	if len(lookups) == 0 || op.DeletionTimestamp != nil || req.authenticated && g.byOpgate(&req.User) {
		return
	}
	if old != nil && rules.SameTemplates(old, op) &&
		old.Annotations[metakey.Verified] == op.Annotations[metakey.Verified] {
		return
	}
	if len(lookups) > rules.MaxLookups {
		rules.RefuseTooManyLookups(v, len(lookups))
		return
	}
	needs := rules.LookupNeeds(lookups)
	p.drop(req)
	missing := g.missing(ctx, req.caller(), needs)
	for i, need := range missing.needs {
		dependency.RefuseLacking(v, need, missing.unknown[i])
	}
}
