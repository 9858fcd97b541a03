package admission

import (
	"context"
	"encoding/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/verdict"
)

// authorNeeds implements dependency.Authors, for all versions of an OperatorPolicy. One that does not decode is not stored.
func authorNeeds(policy *policyv1.Policy, raw []byte) []dependency.Need {
	op, _, err := decodeOperatorPolicy(raw)
	if err != nil {
		return nil
	}
	if op.Namespace = policy.Namespace; policy.Spec.RemediationAction != "" {
		op.Spec.RemediationAction = policyv1beta2.RemediationAction(policy.Spec.RemediationAction)
	}
	return rules.AuthorNeeds(op)
}

// markAuthor marks an OperatorPolicy whose author has the rights that it needs. Without a mark, templates look up what
// is in the policy's own namespace only, and what else was stored before stays. What Opgate writes is the template of a
// Policy, of which the author was verified; what others wrote into the same object before was not. The policy is dropped
// before rights are asked about.
func (g *Gate) markAuthor(ctx context.Context, req *request[json.RawMessage, json.RawMessage],
	p *decodedPolicies) []verdict.Change {
	op, old, key := p.policy, p.old, g.Key()
	mark, lookups := rules.SignAuthor(key, op), len(rules.Lookups(op))
	if lookups+len(rules.AuthorNeeds(op)) == 0 || lookups > rules.MaxLookups || mark == "" || op.DeletionTimestamp != nil {
		return nil
	}
	verified := old != nil && rules.AuthorVerified(key, old)
	needs, all := rules.NewNeeds(key, op, old)
	switch {
	case !all:
		return nil // a controller that touches all objects does not answer for what others have written
	case verified && rules.SignAuthor(key, op) == old.Annotations[metakey.Verified]:
	case req.authenticated && g.byOpgate(&req.User):
		if !verified && (old == nil && req.update() || old != nil &&
			len(rules.Lookups(old))+len(rules.AuthorNeeds(old)) > 0) {
			return nil
		}
	default:
		change := dependency.MarkChange(op.Annotations, mark)
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

// needsOfPolicy returns what the author of a write of an OperatorPolicy needs rights to, of which some exceptions are
// widened, and what they need to see another namespace in warnings. Exceptions need a right also of Opgate, which has it not.
func (g *Gate) needsOfPolicy(req *request[json.RawMessage, json.RawMessage], p *decodedPolicies, widened []string,
	v *verdict.Verdict) (needs []dependency.Need) {
	op, old := p.policy, p.old
	source := verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: op.Namespace, Name: op.Name}
	needs = rules.ExceptionNeeds(rules.RuleOperatorPolicyExceptionRight, source, rightToOverride(source), widened)
	if op.DeletionTimestamp != nil || req.authenticated && g.byOpgate(&req.User) {
		return needs
	}
	more, _ := rules.NewNeeds(g.Key(), op, old)
	if n := len(rules.Lookups(op)); n > rules.MaxLookups && len(more) > 0 && more[0].Rule == rules.RuleOperatorPolicyLookup {
		rules.RefuseTooManyLookups(v, n) // lookups come first, and of equal rights one is asked for
	}
	if needs = append(needs, more...); len(v.Warnings) > 0 {
		needs = append(needs, rules.Preview(op)...)
	}
	return needs
}
