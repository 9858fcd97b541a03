package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	kjson "sigs.k8s.io/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// templateField is the member of a Policy that is kept as JSON.
const templateField = "objectDefinition"

// mutatePolicy marks a Policy whose author has the rights to all that it creates and depends on. The validating webhook
// refuses missing rights and every other mark. What does not decode passes unchanged as in mutateSubscription.
func (g *Gate) mutatePolicy(
	ctx context.Context, _ *snapshot.Snapshot, req *request[json.RawMessage, json.RawMessage],
) verdict.Verdict {
	unchanged := verdict.Verdict{Object: "policy"}
	policy, old := &policyv1.Policy{}, (*policyv1.Policy)(nil)
	strict, err := kjson.UnmarshalStrict(*req.Object, policy)
	if err != nil {
		return unchanged
	}
	unchanged.Object = dependency.ObjectName("policy", &policy.ObjectMeta)
	var known []error
	if req.OldObject != nil {
		// A stored one that does not decode counts as none: then the author needs the rights to all of the new one.
		stored := &policyv1.Policy{}
		if known, err = kjson.UnmarshalStrict(*req.OldObject, stored); err == nil {
			old = stored
		}
	}
	if old == nil || !reflect.DeepEqual(old.Spec, policy.Spec) || fmt.Sprint(known) != fmt.Sprint(strict) {
		dependency.WarnUnknown(&unchanged, strict)
	}
	key := g.Key()
	digest, err := dependency.DigestOf(policy)
	if err != nil || policy.DeletionTimestamp != nil || policy.Name == "" || len(key) == 0 {
		return unchanged
	}
	needs, signed := needsOf(key, policy, old), unsigned(policy)
	req.drop()
	missing := g.missing(ctx, req.caller(), needs)
	if missing.refuses() {
		return unchanged
	}
	mark := dependency.Sign(key, signed, digest, dependency.NarrowKinds(missing.needs))
	unchanged.Changes = dependency.MarkChange(signed.Annotations, mark)
	return unchanged
}

// unsigned returns what signing needs of a Policy, beside its digest, and nothing else.
func unsigned(p *policyv1.Policy) *policyv1.Policy {
	out := &policyv1.Policy{}
	out.Namespace, out.Name = p.Namespace, p.Name
	if p.Annotations != nil {
		out.Annotations = map[string]string{}
		if mark, ok := p.Annotations[metakey.Verified]; ok {
			out.Annotations[metakey.Verified] = mark
		}
	}
	return out
}

// validatePolicy judges a Policy, and whether its author has the rights to what it creates and depends on. It checks
// again although a valid mark states so: a mark is evidence for later readers of the Policy, not for the present write.
func (g *Gate) validatePolicy(
	ctx context.Context, s *snapshot.Snapshot, req *request[policyv1.Policy, policyv1.Policy],
) verdict.Verdict {
	policy, old := req.Object, req.OldObject
	in := dependency.PolicyInput{Policy: policy, Old: old, Graph: s.Graph(), Grants: g.Grants}
	if policy.DeletionTimestamp != nil || old != nil && reflect.DeepEqual(old.Spec, policy.Spec) &&
		sameMark(old, policy) {
		return dependency.JudgePolicy(in)
	}
	key := g.Key()
	if len(key) == 0 {
		return notReady("policy")
	}
	digest, err := dependency.DigestOf(policy)
	if err != nil {
		return unreadable("policy", err)
	}
	_, marked := dependency.Verify(key, policy, digest)
	needs, generated := needsOf(key, policy, old), policy.GenerateName != ""
	v := dependency.JudgePolicy(in)
	redacted := v
	if slices.ContainsFunc(v.Reasons,
		func(r verdict.Reason) bool { return r.Rule == dependency.RulePolicyDependencyCycle }) {
		// a cycle shows the dependencies of other Policies, which a user without the right to get them must not see
		in.Graph = nil
		redacted = dependency.JudgePolicy(in)
	}
	req.drop()
	missing := g.missing(ctx, req.caller(), needs)
	if missing.refuses() {
		v = redacted
	}
	if !missing.refuses() && !marked && v.Decision == verdict.Allow {
		dependency.RefuseUnmarked(&v, generated)
	}
	missing.refuse(&v)
	return v
}

// sameMark reports whether the mark is unchanged: a user who changes or removes it needs the rights of the Policy's
// author.
func sameMark(a, b *policyv1.Policy) bool {
	before, marked := a.Annotations[metakey.Verified]
	now, still := b.Annotations[metakey.Verified]
	return before == now && marked == still
}

// needsOf returns what the author of a Policy needs rights to. What is stored is left out only if its mark is valid.
func needsOf(key []byte, policy, old *policyv1.Policy) []dependency.Need {
	if old == nil {
		return dependency.Needs(policy, nil, dependency.Verification{}, authorNeeds)
	}
	var known dependency.Verification
	digest, err := dependency.DigestOf(old)
	ok := err == nil
	if ok {
		known, ok = dependency.Verify(key, old, digest)
	}
	if !ok {
		old = nil
	}
	return dependency.Needs(policy, old, known, authorNeeds)
}

// missing are the needs for which a user has no right. Unknown holds for each whether the check failed.
type missing struct {
	needs   []*dependency.Need
	unknown []bool
	// questions is how many are known to be necessary where these are too many, else 0.
	questions int
	// unauthenticated: the request does not come from the API server, so that nothing was checked.
	unauthenticated bool
}

// refuses reports whether something is missing that a Policy cannot be stored without.
func (m *missing) refuses() bool {
	return m.questions > 0 || m.unauthenticated || slices.ContainsFunc(m.needs,
		func(n *dependency.Need) bool { return n.Narrow == nil })
}

// refuse refuses an object for what it cannot be stored without.
func (m *missing) refuse(v *verdict.Verdict) {
	if m.questions > 0 {
		dependency.RefuseTooManyQuestions(v, m.questions)
	}
	for i, need := range m.needs {
		if need.Narrow == nil {
			dependency.RefuseLacking(v, need, m.unknown[i])
		}
	}
}

// missing returns the rights that a user does not have. It checks each right once, those of all needs at the same time,
// and stops once one is missing that refuses the Policy. An error is never a yes. Without a user that the API server
// authenticated, all are missing.
func (g *Gate) missing(ctx context.Context, user *authenticationv1.UserInfo, needs []dependency.Need) missing {
	var m missing
	if user == nil {
		for i := range needs {
			m.needs, m.unknown = append(m.needs, &needs[i]), append(m.unknown, true)
		}
		m.unauthenticated = true
		return m
	}
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	answers := map[dependency.Right]*answer{}
	open := make([]*dependency.Need, len(needs))
	for i := range needs {
		open[i] = &needs[i]
	}
	for attempt := 0; len(open) > 0; attempt++ {
		var asked []dependency.Right
		for _, need := range open {
			if right := need.Rights[attempt]; answers[right] == nil {
				answers[right] = &answer{}
				asked = append(asked, right)
			}
		}
		if len(answers) > dependency.MaxQuestions {
			m.questions = len(answers)
			return m
		}
		g.ask(ctx, user, asked, answers)
		var rest []*dependency.Need
		for _, need := range open {
			switch got := answers[need.Rights[attempt]]; {
			case got.allowed:
			case attempt+1 < len(need.Rights) && !got.unknown:
				rest = append(rest, need)
			default:
				m.needs, m.unknown = append(m.needs, need), append(m.unknown, got.unknown)
			}
		}
		if m.refuses() {
			return m
		}
		open = rest
	}
	return m
}

type answer struct{ allowed, unknown bool }

// ask checks rights concurrently.
func (g *Gate) ask(ctx context.Context, user *authenticationv1.UserInfo, asked []dependency.Right,
	answers map[dependency.Right]*answer) {
	var asking sync.WaitGroup
	for _, right := range asked {
		answer := answers[right]
		asking.Go(func() {
			allowed, err := g.Authorizer.May(ctx, user, &authorizationv1.ResourceAttributes{
				Verb: right.Verb, Group: right.Group, Resource: right.Resource, Namespace: right.Namespace,
				Name: right.Name})
			if err != nil {
				g.Log.Error(err, "right not checked", "verb", right.Verb, "user", user.Username)
			}
			answer.allowed, answer.unknown = allowed && err == nil, err != nil
		})
	}
	asking.Wait()
}

// rightsTimeout bounds a SubjectAccessReview within the 5 s that the API server waits for a webhook.
const rightsTimeout = 3 * time.Second

// SubjectAccessReviews is the olmidentity.Authorizer that asks the API server.
type SubjectAccessReviews struct {
	Client authorizationclient.SubjectAccessReviewInterface
}

// May creates one SubjectAccessReview and returns its answer.
func (a SubjectAccessReviews) May(
	ctx context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes,
) (bool, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	answer, err := a.Client.Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra, ResourceAttributes: what,
		}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether %s may %s %s: %w", user.Username, what.Verb, what.Resource, err)
	}
	return answer.Status.Allowed && !answer.Status.Denied, nil
}
