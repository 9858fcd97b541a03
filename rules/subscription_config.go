package rules

import (
	"cmp"
	"maps"
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// maxConfigText bounds the config of a policy in a message, in bytes.
const maxConfigText = 512

// foreignConfig judges spec.config, which exchanges images after a plan was judged: OLM puts it into force
// without another plan. Where the policy sets a config, it has to be that one; else it may be anything that keeps the
// images, the volumes, the sources of variables and the annotations of the pods. What is stored for the same package
// already stays, and OLM sets none itself.
func foreignConfig(in *SubscriptionInput, p *operatorpolicy.Policy) verdict.Finding {
	config, before := &in.Subscription.Spec.Config, in.configBefore()
	switch {
	case *config == before && (in.keepsPackage() || in.ByOLM):
		return verdict.Finding{}
	case p.Config.Fault != "":
		return verdict.OnHold("spec.config", "waits until spec.subscription.config of the policy can be read: "+
			text.Escape(p.Config.Fault)+"; "+orOverride).At("spec.config")
	case p.Config.JSON != "" && config.Written == p.Config.Written:
		return verdict.Finding{}
	case p.Config.JSON != "":
		return otherConfig(config.Read(), &p.Config)
	}
	reserved, fault := config.Reserved()
	if fault != "" {
		return unreadableConfig(fault)
	}
	had, _ := before.Reserved()
	maps.DeleteFunc(reserved, func(part, value string) bool { return had[part] == value })
	if len(reserved) == 0 {
		return verdict.Finding{}
	}
	return verdict.NotAllowed("spec.config with "+text.Names(slices.Sorted(maps.Keys(reserved)), verdict.MaxListed),
		"let spec.subscription.config of the policy set it, "+orOverride).At("spec.config")
}

func unreadableConfig(fault string) verdict.Finding {
	return verdict.OnHold("spec.config", "it cannot be read: "+text.Escape(fault)+"; correct it, "+orOverride).
		At("spec.config")
}

// otherConfig refuses a config that does not have the effect of the one of the policy.
func otherConfig(config olm.SubscriptionConfig, want *olm.SubscriptionConfig) verdict.Finding {
	what := "spec.config is not allowed"
	switch fields := config.Parts().Fields; {
	case config.Fault != "":
		return unreadableConfig(config.Fault)
	case config.JSON == want.JSON:
		return verdict.Finding{}
	case config.JSON == "":
		what = "leaving out spec.config is not allowed"
	case !slices.Equal(fields, want.Parts().Fields):
		what = "spec.config with " + text.Names(fields, verdict.MaxListed) + " is not allowed"
	}
	return verdict.Finding{Decision: verdict.Deny, Field: "spec.config", What: what,
		Accepted: "allowed is " + text.Escape(text.Truncate(want.JSON, maxConfigText)) + ", " + orOverride}
}

// judgeInstalled judges the installed ClusterServiceVersions with a config that is written, by the Constraints that
// read it and have not spoken: OLM puts the config into force without a plan. What was violated before is excused only
// if the images of the config stay as they are: else one violation would cover all.
func (in *SubscriptionInput) judgeInstalled(
	spoken map[*constraint.Constraint]bool, budget *constraint.Budget, v *verdict.Verdict,
) {
	set, before := in.Namespace.Constraints(), in.configBefore()
	if in.Subscription.Spec.Config == before {
		return
	}
	config, before := in.Subscription.Spec.Config.Read(), before.Read()
	had, has := before.Parts(), config.Parts()
	excused := config.Fault == "" && slices.Equal(had.Images(), has.Images())
	for _, c := range in.Namespace.Installed() {
		if c.Package != in.Subscription.Spec.Package || c.Spec == nil {
			continue
		}
		was, is := c.ForConstraints(in.Namespace), c.ForConstraints(in.Namespace)
		was.Config, is.Config = before, config
		was.Unknown &^= constraint.Config
		if is.Unknown &^= constraint.Config; config.Fault != "" {
			is.Unknown |= constraint.Config
		}
		known := set.Judge(was, in.Namespace.ForConstraints(), budget)
		for _, f := range set.Judge(is, in.Namespace.ForConstraints(), budget) {
			same := func(k constraint.Result) bool { return sameConstraint(&k, &f) }
			if f.Constraint == nil || f.Constraint.Uses()&constraint.Config == 0 || spoken[f.Constraint] ||
				excused && slices.ContainsFunc(known, same) || f.Outcome == constraint.Undecided &&
				f.Attributes&constraint.Config == 0 {
				continue
			}
			state.RecordConstraint(v, RuleSubscriptionConstraint, "spec.config for "+text.Name(c.Name), &f)
		}
	}
}

// configBefore returns the config that is stored for the same package; none for a new Subscription.
func (in *SubscriptionInput) configBefore() olm.SubscriptionConfig {
	if !in.keepsPackage() {
		return olm.SubscriptionConfig{}
	}
	return in.Old.Spec.Config
}

// keepsPackage reports whether an update leaves the Subscription to its package.
func (in *SubscriptionInput) keepsPackage() bool {
	return in.Old != nil && in.Old.Spec.Package == in.Subscription.Spec.Package
}

// OverrideAsked returns the override that a write adds.
func (in *SubscriptionInput) OverrideAsked() Override {
	return overrideAsked(RuleSubscriptionOverride, &in.Subscription.Metadata,
		&cmp.Or(in.Old, &olm.Subscription{}).Metadata, in.Now)
}
