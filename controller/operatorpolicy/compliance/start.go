package compliance

import (
	"cmp"
	"slices"
	"strings"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
)

// optionalFields are the fields of a Subscription that are removed with those of the policy. OLM requires the others.
var optionalFields = []string{"channel", "config", "startingCSV"}

// completeFields adds to what the policy wants of a Subscription that it creates or has created: the version to start
// with, unless the policy names one, and the removal of what the policy does not set any more.
func (e *evaluation) completeFields() {
	var written, installed string
	if sub := e.subscription; sub != nil {
		if sub.Metadata.Annotations.PolicyFields == nil {
			return
		}
		written, installed = *sub.Metadata.Annotations.PolicyFields, sub.Status.InstalledCSV
	}
	if !e.enforced || e.Policy.Spec.ComplianceType != policyv1beta2.MustHave {
		return
	}
	want, before := e.wanted.subscription, strings.Split(written, ",")
	if want["channel"] == nil && slices.Contains(before, "channel") && e.manifest != nil {
		e.channel = cmp.Or(e.manifest.DefaultChannel, e.channel)
	}
	if want["startingCSV"] == nil {
		put(want, "startingCSV", e.offered(installed).StartingCSV())
	}
	var fields []string
	for _, field := range optionalFields {
		switch {
		case want[field] != nil:
			fields = append(fields, field)
		case !slices.Contains(before, field):
		case field == "channel":
			want[field] = e.channel // as for a Subscription that is created
		default:
			want[field] = nil
		}
	}
	e.wanted.fields = new(strings.Join(fields, ","))
}

// offered is what the catalog offers to the Subscription.
func (e *evaluation) offered(installed string) *rules.Offered {
	return &rules.Offered{Namespace: e.Namespace, Policy: e.Rules, Package: e.manifest, Channel: e.channel,
		InstalledCSV: installed}
}

// startOfOthers returns, as a sentence, the spec.startingCSV that a Subscription which the policy did not create needs;
// "" if it needs none.
func (e *evaluation) startOfOthers() string {
	sub := e.subscription
	if sub.Metadata.Annotations.PolicyFields != nil && e.enforced || e.Policy.Spec.Subscription.StartingCSV != "" {
		return ""
	}
	start := e.offered(sub.Status.InstalledCSV).StartingCSV()
	if start == "" || start == sub.Spec.StartingCSV || start == sub.Status.CurrentCSV {
		return ""
	}
	return "OLM plans " + text.Name(start) + ", which is allowed, if spec.startingCSV of the Subscription " +
		named(&sub.Metadata) +
		" names it: the policy did not create that Subscription"
}
