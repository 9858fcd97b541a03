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
)

// compare prints how the policies of the directory differ from what is installed: a policy may allow more than that.
func (o *options) compare(found []*installed, scope string, stdout, stderr io.Writer, now time.Time) error {
	unit, err := manifests.Read([]string{o.check}, bytes.NewReader(nil), stderr, manifests.Options{})
	if err != nil {
		return err
	}
	operators := map[string]*operator{}
	for _, in := range found {
		for _, what := range in.unsaid {
			if o.selector == "" {
				fmt.Fprintln(stderr, "not compared: "+text.Name(in.namespace)+": "+what)
			}
		}
		for i := range in.operators {
			operators[in.namespace+"/"+in.operators[i].pkg] = &in.operators[i]
		}
	}
	var lines []string
	described := map[string]bool{}
	for _, object := range unit.Objects {
		policy, ok := object.Value.(*policyv1beta2.OperatorPolicy)
		if !ok {
			continue
		}
		p := rules.NewOperatorPolicy(policy)
		key := p.TargetNamespace + "/" + p.Package
		differs := func(format string, args ...any) {
			lines = append(lines, text.Escape(key)+": "+fmt.Sprintf(format, args...)+" ("+object.Short()+")")
		}
		op := operators[key]
		switch {
		case p.MustNotHave || p.Package == "":
			continue
		case op == nil && o.selector == "" && (scope == "" || scope == p.TargetNamespace):
			differs("nothing is installed of it")
		}
		if described[key] = true; op == nil {
			continue
		}
		if ok, accepted := bundle.Covers(p, op.csv, op.version, now); !ok {
			differs("%s is installed, and %s", text.Name(op.csv), accepted)
		}
		spec := &op.subscription.Spec
		for _, f := range []struct{ name, is, want string }{
			{"channel", spec.Channel, p.Channel},
			{"source", spec.Source, p.Catalog.Name},
			{"sourceNamespace", spec.SourceNamespace, p.Catalog.Namespace},
		} {
			if f.is != f.want && f.want != "" {
				differs("Subscription %s has spec.%s %s, and the policy %s", text.Name(op.subscription.Metadata.Name), f.name,
					cmp.Or(text.Name(f.is), "(none)"), text.Name(f.want))
			}
		}
	}
	for key, op := range operators {
		if !described[key] {
			lines = append(lines, fmt.Sprintf("%s: %s is installed, and no policy names it", text.Escape(key), text.Name(op.csv)))
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
