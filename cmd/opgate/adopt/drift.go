package adopt

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// written is a policy of the directory.
type written struct {
	*operatorpolicy.Policy
	place string
	found bool
}

// compare prints how the policies of the directory differ from what is installed: a policy may allow more than that.
func (o *options) compare(found []*installed, scope string, stdout, stderr io.Writer, now time.Time) error {
	unit, err := manifests.Read([]string{o.check}, bytes.NewReader(nil), stderr, manifests.Options{})
	if err != nil {
		return err
	}
	policies := map[string]*written{}
	for _, object := range unit.Objects {
		if policy, ok := object.Value.(*policyv1beta2.OperatorPolicy); ok {
			if p := rules.NewOperatorPolicy(policy); !p.MustNotHave && p.Package != "" {
				policies[p.TargetNamespace+"/"+p.Package] = &written{Policy: p, place: object.Short()}
			}
		}
	}
	var lines []string
	for _, in := range found {
		for _, what := range in.unsaid {
			if o.selector == "" {
				fmt.Fprintln(stderr, "not compared: "+text.Name(in.namespace)+": "+what)
			}
		}
		for i := range in.operators {
			op := &in.operators[i]
			lines = append(lines, policies[in.namespace+"/"+op.pkg].differences(in.namespace, op, now)...)
		}
	}
	for key, p := range policies {
		if !p.found && o.selector == "" && (scope == "" || scope == p.TargetNamespace) {
			lines = append(lines, fmt.Sprintf("%s: nothing is installed of it (%s)", text.Escape(key), p.place))
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		if _, err := fmt.Fprintln(stdout, line); err != nil {
			return err
		}
	}
	if len(lines) > 0 {
		return &cli.ExitError{Code: exitDrift}
	}
	return nil
}

// differences returns how an operator differs from its policy; nil is none.
func (w *written) differences(namespace string, op *operator, now time.Time) (lines []string) {
	key := text.Name(namespace) + "/" + text.Name(op.pkg)
	if w == nil {
		return []string{fmt.Sprintf("%s: %s is installed, and no policy names it", key, text.Name(op.csv))}
	}
	w.found = true
	if ok, accepted := bundle.Covers(w.Policy, op.csv, op.version, now); !ok {
		lines = append(lines, fmt.Sprintf("%s: %s is installed, and %s (%s)", key, text.Name(op.csv), accepted, w.place))
	}
	spec := &op.subscription.Spec
	for _, f := range []struct{ name, is, want string }{
		{"channel", spec.Channel, w.Channel},
		{"source", spec.Source, w.Catalog.Name},
		{"sourceNamespace", spec.SourceNamespace, w.Catalog.Namespace},
	} {
		if f.is != f.want && f.want != "" {
			lines = append(lines, fmt.Sprintf("%s: Subscription %s has spec.%s %s, and the policy %s (%s)", key,
				text.Name(op.subscription.Metadata.Name), f.name, cmp.Or(text.Name(f.is), "(none)"), text.Name(f.want), w.place))
		}
	}
	return lines
}
