package admission

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/conversion"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// mutateOperatorPolicy sets defaults and the mark of the author; what does not decode, has no spec to fill, or
// has unknown fields, which the patch would drop before validation could refuse them, passes unchanged as in
// mutateSubscription.
func (g *Gate) mutateOperatorPolicy(
	ctx context.Context, _ *snapshot.Snapshot, req *request[json.RawMessage, json.RawMessage],
) verdict.Verdict {
	var head struct {
		Spec *struct{} `json:"spec"`
	}
	p, err := decodePolicies(req)
	if err != nil || len(p.strict) > 0 || kjson.UnmarshalCaseSensitivePreserveInts(*req.Object, &head) != nil ||
		head.Spec == nil {
		return verdict.Verdict{Object: "operatorpolicy"}
	}
	if sub := &p.policy.Spec.Subscription; !operatorpolicy.DependsOnCluster(p.policy) { // as for a Subscription
		g.offered(sub.Name, olm.Catalog{Namespace: sub.SourceNamespace, Name: sub.Source})
	}
	v := verdict.Verdict{Object: rules.OperatorPolicyObject(p.policy), Changes: rules.NormalizeOperatorPolicy(p.policy,
		p.old)}
	v.Changes = append(v.Changes, g.markAuthor(ctx, req, &p)...)
	return v
}

func (g *Gate) validateOperatorPolicy(
	ctx context.Context, s *snapshot.Snapshot, req *request[json.RawMessage, json.RawMessage],
) verdict.Verdict {
	p, err := decodePolicies(req)
	if err != nil {
		return unreadable("operatorpolicy", err)
	}
	in := rules.OperatorPolicyInput{Policy: rules.NewOperatorPolicy(p.policy), Strict: p.strict, Namespace: s.Namespace,
		Package: g.offered, Copied: s.Copied, Grants: g.Grants, Unbacked: g.Unbacked, Now: g.Now()}
	var before operatorpolicy.Exceptions
	if p.old != nil {
		in.Old = rules.NewOperatorPolicy(p.old)
		before = in.Old.Exceptions()
	}
	v, widened := rules.JudgeOperatorPolicy(in), in.Policy.Exceptions().Widened(before)
	concerns, update := in.Policy.Concerns(), req.update()
	written := &metav1.ObjectMeta{Namespace: p.policy.Namespace, Name: p.policy.Name, UID: p.policy.UID,
		Generation: p.policy.Generation}
	if needs := g.needsOfPolicy(req, &p, widened, &v); v.Decision == verdict.Allow && len(needs) > 0 {
		// A user without a right sees what is of the policy alone.
		in.Namespace, in.Copied = func(string) *state.Namespace { return nil }, nil
		redacted := rules.JudgeOperatorPolicy(in)
		in = rules.OperatorPolicyInput{}
		p.drop(req)
		if missing := g.missing(ctx, req.caller(), needs); len(missing.needs) > 0 || missing.questions > 0 {
			v = redacted // also where the object is not refused for that
			missing.refuse(&v)
		}
	}
	if v.Decision == verdict.Allow && req.stores() && concerns != "" {
		g.awaited(s, snapshot.OperatorPolicies, snapshot.InNamespace(concerns), written, !update)
	}
	return v
}

// decodedPolicies are the two sides of a review of an OperatorPolicy, which is decoded in full.
type decodedPolicies struct {
	policy, old *policyv1beta2.OperatorPolicy
	strict      []error
}

func decodePolicies(req *request[json.RawMessage, json.RawMessage]) (p decodedPolicies, err error) {
	if p.policy, p.strict, err = decodeOperatorPolicy(*req.Object); err != nil {
		return p, err
	}
	if req.OldObject != nil {
		// A stored policy that does not decode counts as none: then the new one is judged in full.
		if old, _, err := decodeOperatorPolicy(*req.OldObject); err == nil {
			p.old = old
		}
	}
	return p, nil
}

// decodeOperatorPolicy decodes a policy, also one of v1beta1, which the API server sends where another program owns the
// definition.
func decodeOperatorPolicy(raw []byte) (*policyv1beta2.OperatorPolicy, []error, error) {
	raw, err := conversion.Current(raw)
	if err != nil {
		return nil, nil, err
	}
	return rules.DecodeOperatorPolicy(raw)
}

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

// drop releases the policies, and the memory that is reserved for judging them.
func (p *decodedPolicies) drop(req *request[json.RawMessage, json.RawMessage]) {
	*p = decodedPolicies{}
	req.drop()
}

// needsOfPolicy returns what the author of a write of an OperatorPolicy needs rights to, of which some exceptions are
// widened, and what they need to see another namespace in warnings. Exceptions need a right also of Opgate, which has it not.
func (g *Gate) needsOfPolicy(req *request[json.RawMessage, json.RawMessage], p *decodedPolicies, widened []string,
	v *verdict.Verdict) (needs []dependency.Need) {
	op, old := p.policy, p.old
	source := verdict.PolicyRef{Kind: verdict.KindOperatorPolicy, Namespace: op.Namespace, Name: op.Name}
	needs = rules.ExceptionNeeds(rules.RuleOperatorPolicyExceptionRight, source, rightTo(VerbOverride, source), widened)
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
