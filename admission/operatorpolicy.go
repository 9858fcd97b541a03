package admission

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/conversion"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
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
	raw, err := conversion.Current(*req.Object)
	if err != nil {
		return p, err
	}
	if p.policy, p.strict, err = rules.DecodeOperatorPolicy(raw); err != nil {
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
