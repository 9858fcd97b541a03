// Package admission answers the API server's admission reviews. A handler decodes a review once, straight into the
// fields that rules read, takes the namespace from an immutable snapshot, calls rules and writes the answer. It
// compiles nothing for the review of an object of OLM, and lists nothing; the review of a Constraint compiles that
// Constraint.
//
// Two things take longer. A review waits for up to a second for what was admitted for its namespace and the snapshot
// does not show yet. SubjectAccessReviews decide about overrides and consent, about what the author of a Policy, or of
// an OperatorPolicy with templates, may look up and create, and about a user who writes as OLM does. Their number is
// bounded.
//
// Errors are always answers: what cannot be read is refused in an AdmissionReview of its own.
package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/admission/olmidentity"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// Options configure a Gate.
type Options struct {
	// Store holds the snapshot. Required.
	Store *snapshot.Store
	// Metrics count decisions. Required.
	Metrics *Metrics
	// Budget bounds the memory for reviews. Required.
	Budget *inflight.Budget
	// Panics records panics of judging. Required.
	Panics *panics.Recorder
	// Authorizer answers what users may do. Required.
	Authorizer olmidentity.Authorizer
	// Authenticated reports whether a request comes from the API server. Of others, answers carry no names and no
	// warnings, and the Authorizer is not asked for them. Default: no request does.
	Authenticated func(*http.Request) bool
	// Exposed records a request of the API server that may have failed on its way, so that its URL was shown to a user.
	// Default: none is.
	Exposed func(*http.Request)
	// Key returns the key that marks are signed with, nil while it is not known: then Policies are held. Default:
	// it is never known.
	Key func() []byte
	// OLM is the account that OLM writes as. Any user who can write as OLM can start a plan past the gate, so it counts
	// only while it is verified. Required.
	OLM *olmidentity.Identity
	// Candidates are users that write as OLM does and are not configured as OLM. Default: none is reported.
	Candidates *olmidentity.Candidates
	// Identity returns the user name that Opgate itself writes as, "" while it is not known; no other user writes
	// virtual operators. Default: no user does.
	Identity func() string
	// Catalogs are the packages of catalogs. Default: none is known.
	Catalogs Catalogs
	// ApprovalMode is whether a wrong installPlanApproval is changed or denied. Default: rules.MutateApproval.
	ApprovalMode rules.ApprovalMode
	// Grants are the rights that the installation withholds: policies that need them are warned. Default: none is
	// withheld.
	Grants grant.Set
	// Unbacked is why the API server judges no deletions by itself, and what would change that: policies and
	// Constraints that restrict deletions are warned. Default: it does judge them.
	Unbacked string
	// Events records refusals of updates and approvals by users on the objects. Default: none.
	Events *events.Recorder
	// Log receives refusals at V(0) and every request at V(1). Default: none.
	Log logr.Logger
	// Now is the clock, for durations and approval windows. Required.
	Now func() time.Time
}

// Gate is the state that all endpoints share.
type Gate struct {
	Options
	admitted admitted
}

// New returns a gate.
func New(o Options) *Gate {
	if o.Key == nil {
		o.Key = func() []byte { return nil }
	}
	if o.ApprovalMode == "" {
		o.ApprovalMode = rules.MutateApproval
	}
	return &Gate{Options: o}
}

// Paths of the endpoints, as the webhook configurations name them.
const (
	PathMutateSubscriptions        = "/mutate/subscriptions"
	PathMutateOperatorPolicies     = "/mutate/operatorpolicies"
	PathMutatePolicies             = "/mutate/policies"
	PathValidateSubscriptions      = "/validate/subscriptions"
	PathValidateInstallPlans       = "/validate/installplans"
	PathValidateInstallPlansStatus = "/validate/installplans-status"
	PathValidateOperatorPolicies   = "/validate/operatorpolicies"
	PathValidateCSVs               = "/validate/clusterserviceversions"
	PathValidateCatalogSources     = "/validate/catalogsources"
	PathValidateOperatorGroups     = "/validate/operatorgroups"
	PathValidateConstraints        = "/validate/constraints"
	PathValidatePolicies           = "/validate/policies"
	PathValidatePolicySets         = "/validate/policysets"
	PathValidateClusterExtensions  = "/validate/clusterextensions"
	PathValidateClusterCatalogs    = "/validate/clustercatalogs"

	// The endpoints for what OLM writes as steps of plans.
	PathMutateGeneratedSubscriptions   = "/mutate/generated-subscriptions"
	PathValidateGeneratedSubscriptions = "/validate/generated-subscriptions"
	PathValidateStepCSVs               = "/validate/steps-clusterserviceversions"
)

// IsStep reports whether an endpoint is for steps of plans. It answers every request with an AdmissionReview, also of
// callers that are not authenticated: its webhooks have failurePolicy Ignore.
func IsStep(path string) bool {
	return path == PathMutateGeneratedSubscriptions || path == PathValidateGeneratedSubscriptions ||
		path == PathValidateStepCSVs
}

// Handlers returns the handler of each path.
func (g *Gate) Handlers() map[string]http.Handler {
	handlers := map[string]http.Handler{
		PathMutateSubscriptions: &endpoint[json.RawMessage, json.RawMessage]{gate: g, kind: "subscription",
			governed: true, judge: g.mutateSubscription},
		PathValidateSubscriptions: &endpoint[olm.Subscription, olm.Subscription]{gate: g, kind: "subscription",
			governed: true, stored: storedSubscription, judge: g.validateSubscription},
		PathValidateInstallPlans: &endpoint[olm.InstallPlanHead, olm.InstallPlan]{gate: g, kind: "installplan",
			governed: true, stored: storedPlan[olm.InstallPlanHead], form: planForm, judge: g.validatePlan},
		PathValidateInstallPlansStatus: &endpoint[olm.InstallPlan, olm.InstallPlan]{gate: g, kind: "installplan",
			governed: true, stored: storedPlan[olm.InstallPlan], form: planStatusForm, judge: g.validatePlanStatus},
		PathMutateOperatorPolicies: &endpoint[json.RawMessage, json.RawMessage]{gate: g, kind: "operatorpolicy",
			judge: g.mutateOperatorPolicy},
		PathValidateOperatorPolicies: &endpoint[json.RawMessage, json.RawMessage]{gate: g, kind: "operatorpolicy",
			stored: storedOperatorPolicy, judge: g.validateOperatorPolicy},
		PathValidateCSVs: &endpoint[olm.CSV, olm.CSV]{gate: g, kind: "clusterserviceversion", raw: "spec",
			governed: true, judge: g.validateCSV},
		PathValidateCatalogSources: &endpoint[olm.CatalogSource, olm.CatalogSource]{gate: g, kind: "catalogsource",
			governed: true, judge: g.validateCatalogSource},
		PathValidateOperatorGroups: &endpoint[olm.OperatorGroup, olm.OperatorGroup]{gate: g, kind: "operatorgroup",
			governed: true, judge: g.validateOperatorGroup},
		PathValidateConstraints: &endpoint[json.RawMessage, json.RawMessage]{gate: g, kind: "constraint",
			judge: g.validateConstraint},
		PathMutatePolicies: &endpoint[json.RawMessage, json.RawMessage]{gate: g, kind: "policy",
			raw: templateField, judge: g.mutatePolicy},
		PathValidatePolicies: &endpoint[policyv1.Policy, policyv1.Policy]{gate: g, kind: "policy",
			raw: templateField, judge: g.validatePolicy},
		PathValidatePolicySets: &endpoint[json.RawMessage, policyv1beta1.PolicySet]{gate: g, kind: "policyset",
			judge: g.validatePolicySet},
		// What the objects of OLM v1 are judged by is in the review and in the snapshot: nothing is watched for them.
		PathValidateClusterExtensions: &endpoint[olm.ClusterExtension, olm.ClusterExtension]{gate: g,
			kind: "clusterextension", governed: true, judge: g.validateClusterExtension,
			concerns: func(req *clusterExtensionRequest) string { return req.Object.Spec.Namespace }},
		PathValidateClusterCatalogs: &endpoint[olm.ClusterCatalog, olm.ClusterCatalog]{gate: g, kind: "clustercatalog",
			governed: true, judge: g.validateClusterCatalog},
		// Steps of plans are judged as other writes are.
		PathMutateGeneratedSubscriptions: &endpoint[json.RawMessage, json.RawMessage]{gate: g, kind: "subscription",
			step: true, governed: true, judge: g.mutateSubscription},
		PathValidateGeneratedSubscriptions: &endpoint[olm.Subscription, olm.Subscription]{gate: g, kind: "subscription",
			step: true, governed: true, judge: g.validateSubscription},
		PathValidateStepCSVs: &endpoint[olm.CSV, olm.CSV]{gate: g, kind: "clusterserviceversion", step: true,
			raw: "spec", governed: true, judge: g.validateCSV},
	}
	for _, handler := range handlers {
		handler.(interface{ expectPanics() }).expectPanics()
	}
	return handlers
}

// mutateSubscription only changes: other faults may still be corrected by a later mutating
// webhook, and the validating one sees the final object. The Subscriptions that OLM generates for
// dependencies are changed in either mode: OLM would repeat a refused one for ever. So is the annotation with what was
// requested, which Opgate has written itself.
//
// Mutating webhooks run before the API server checks the schema. What does not decode passes them unchanged:
// the schema refuses it with a better message, and the validating webhook in any case.
func (g *Gate) mutateSubscription(
	ctx context.Context, s *snapshot.Snapshot, req *request[json.RawMessage, json.RawMessage],
) verdict.Verdict {
	unchanged := verdict.Verdict{Object: "subscription"}
	sub, err := olm.Decode[olm.Subscription](*req.Object)
	if err != nil {
		return unchanged
	}
	var old *olm.Subscription
	if req.OldObject != nil {
		if old, err = olm.Decode[olm.Subscription](*req.OldObject); err != nil {
			return unchanged
		}
	}
	in := g.subscriptionInput(ctx, s, sub, old, &req.User, rules.MutateApproval)
	in.AppliesManual = rules.MayHideManual(sub, old) && appliesManual(req)
	v := verdict.Verdict{Object: "subscription " + sub.Metadata.Key()}
	if g.ApprovalMode == rules.MutateApproval || in.ByOLM {
		v.Changes = rules.JudgeSubscription(in).Changes
	}
	if !g.byOpgate(&req.User) {
		rules.NoteRequest(&in, &v)
	}
	return v
}

func (g *Gate) validateSubscription(
	ctx context.Context, s *snapshot.Snapshot, req *request[olm.Subscription, olm.Subscription],
) verdict.Verdict {
	in := g.subscriptionInput(ctx, s, req.Object, req.OldObject, &req.User, rules.DenyApproval)
	v := rules.JudgeSubscription(in)
	return g.override(ctx, &v, in.Namespace, req.caller(), in.OverrideAsked())
}

// subscriptionInput gathers what a Subscription is judged by.
func (g *Gate) subscriptionInput(
	ctx context.Context, s *snapshot.Snapshot, sub, old *olm.Subscription, user *authenticationv1.UserInfo,
	mode rules.ApprovalMode,
) rules.SubscriptionInput {
	in := rules.SubscriptionInput{
		New: sub, Old: old, Namespace: s.Namespace(sub.Metadata.Namespace), ByOLM: g.OLM.Is(user),
		Mode: mode, Interrupt: ctx.Done(), Now: g.Now(),
		InstalledElsewhere: s.Copied(sub.Spec.Package, sub.Metadata.Namespace),
	}
	if source := sub.Catalog(); source.Name != "" && source.Namespace != "" && (old == nil || old.Spec != sub.Spec) {
		offered := g.offered(sub.Spec.Package, source) // asked for while mutating, so that it is known while validating
		if mode == rules.DenyApproval {
			in.Offered = offered
		}
	}
	return in
}

func (g *Gate) validatePlan(
	ctx context.Context, s *snapshot.Snapshot, req *request[olm.InstallPlanHead, olm.InstallPlan],
) verdict.Verdict {
	ns := s.Namespace(req.Object.Metadata.Namespace)
	if !req.update() {
		return rules.JudgePlanCreate(rules.PlanCreateInput{New: req.Object, Namespace: ns, ByOLM: g.OLM.Is(&req.User)})
	}
	in := rules.PlanUpdateInput{New: req.Object, Old: req.OldObject, Namespace: ns, User: req.User.Username,
		Interrupt: ctx.Done(), Now: g.Now()}
	in.ConsentRefused = g.mayConsent(ctx, &in, req.caller())
	v := rules.JudgePlanUpdate(in)
	if in.ConsentAsked() && v.Decision == verdict.Allow {
		g.Log.WithValues(objectKeys(&v)...).Info("consent given", "user", req.User.Username,
			"digests", in.New.Metadata.Annotations.Consent)
	}
	return g.override(ctx, &v, ns, req.caller(), in.OverrideAsked())
}

func (g *Gate) validatePlanStatus(
	ctx context.Context, s *snapshot.Snapshot, req *request[olm.InstallPlan, olm.InstallPlan],
) verdict.Verdict {
	if !req.update() {
		return unexpected("installplan", req.Operation, req.SubResource)
	}
	return rules.JudgePlanStatusUpdate(rules.PlanStatusInput{New: req.Object, Old: req.OldObject,
		Namespace: s.Namespace(req.OldObject.Metadata.Namespace), ByOLM: g.OLM.Is(&req.User),
		ByOpgate: g.byOpgate(&req.User), Interrupt: ctx.Done(), Now: g.Now()})
}

// byOpgate reports whether a request comes from Opgate's own identity.
func (g *Gate) byOpgate(user *authenticationv1.UserInfo) bool {
	return g.Identity != nil && user.Username != "" && user.Username == g.Identity()
}

func (g *Gate) validateCSV(ctx context.Context, s *snapshot.Snapshot, req *request[olm.CSV, olm.CSV]) verdict.Verdict {
	return rules.JudgeCSV(rules.CSVInput{New: req.Object, Old: req.OldObject,
		Namespace: s.Namespace(req.Object.Metadata.Namespace),
		ByOLM:     g.OLM.Is(&req.User), ByOpgate: g.byOpgate(&req.User), User: req.User.Username, Now: g.Now(),
		Interrupt: ctx.Done()})
}

func (g *Gate) validateConstraint(
	ctx context.Context, s *snapshot.Snapshot, req *request[json.RawMessage, json.RawMessage],
) verdict.Verdict {
	in := rules.ConstraintInput{Constraints: s.Constraints(), Interrupt: ctx.Done(), Grants: g.Grants,
		Unbacked: g.Unbacked, Now: g.Now()}
	if req.authenticated { // no other caller is shown what is installed, so it is not judged for them either
		in.Namespaces = s.All()
	}
	var err error
	if in.Constraint, in.Strict, err = rules.DecodeConstraint(*req.Object); err != nil {
		return unreadable("constraint", err)
	}
	if req.OldObject != nil {
		// A stored one that does not decode counts as none: then the new one is judged in full.
		if old, _, err := rules.DecodeConstraint(*req.OldObject); err == nil {
			in.Old = old
		}
	}
	v := rules.JudgeConstraint(in)
	widened := rules.WidenedConstraintExceptions(in.Constraint, in.Old)
	if len(widened) > 0 && v.Decision == verdict.Allow {
		source := verdict.PolicyRef{Kind: verdict.KindConstraint, Name: in.Constraint.Name}
		missing := g.missing(ctx, req.caller(), rules.ExceptionNeeds(rules.RuleConstraintExceptionRight, source,
			rightTo(VerbOverride, source), widened))
		missing.refuse(&v)
	}
	if v.Decision == verdict.Allow && req.stores() {
		g.awaited(s, snapshot.Constraints, snapshot.InCluster(), in.Constraint, !req.update())
	}
	return v
}

func (g *Gate) validatePolicySet(
	_ context.Context, s *snapshot.Snapshot, req *request[json.RawMessage, policyv1beta1.PolicySet],
) verdict.Verdict {
	set := &policyv1beta1.PolicySet{}
	strict, err := kjson.UnmarshalStrict(*req.Object, set)
	if err != nil {
		return unreadable("policyset", err)
	}
	return dependency.JudgePolicySet(dependency.PolicySetInput{Set: set, Old: req.OldObject, Strict: strict,
		Graph: s.Graph()})
}

func unreadable(kind string, err error) verdict.Verdict {
	return byGate(kind, verdict.Deny, rules.RuleGateUnreadable, "it cannot be read", text.Truncate(err.Error(), maxQuoted))
}

// unexpected refuses what the webhook configuration does not send: a newer API server may.
func unexpected(kind string, operation, subresource string) verdict.Verdict {
	return byGate(kind, verdict.Deny, rules.RuleGateUnexpected, fmt.Sprintf(
		"operation %q on subresource %q is not one that opgate knows, and is refused", operation, subresource), "")
}
