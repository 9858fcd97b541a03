package check

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// effect is what a change of policies does to an object.
type effect string

// The effects, in the order in which they are printed.
const (
	newlyRefused effect = "refused"
	newlyAllowed effect = "allowed"
	changed      effect = "changed"
)

var effects = []effect{newlyRefused, newlyAllowed, changed}

// difference is an object on which two sets of policies have different verdicts.
type difference struct {
	effect effect
	// before is nil for an object that the old input does not have: it refused nothing.
	before, after *judgement
}

// comparison is what differs between two reports.
type comparison struct {
	differences []difference
	count       map[effect]int
	same        int
	notes       []manifests.Note
}

// judgeTwice judges everything with the old and then with the new policies, and prints what differs.
func (o *options) judgeTwice(ctx context.Context, how [2]judging, stdin io.Reader, stdout, stderr io.Writer) error {
	names := [2]string{o.old, o.new}
	input := []byte(nil)
	if slices.Contains(append([]string{o.old, o.new}, o.files...), cli.StandardInput) {
		var err error
		if input, err = io.ReadAll(io.LimitReader(stdin, manifests.MaxInput+1)); err != nil {
			return self.Unusable("nothing was judged: read standard input: %v", err)
		}
	}
	if o.cluster {
		var err error
		if how[0].gone, how[1].gone, err = o.others(input); err != nil {
			return err
		}
	}
	var reports [2]*report
	for i, name := range names {
		var err error
		if reports[i], err = o.judgeFiles(ctx, append([]string{name}, o.files...), &how[i], bytes.NewReader(input),
			stderr); err != nil {
			return err
		}
	}
	c := compare(reports[0], reports[1], names)
	if o.summary {
		c.differences = nil
	}
	if err := comparisonFormats[o.output](stdout, c); err != nil {
		return fmt.Errorf("write differences: %w", err)
	}
	if !slices.Contains(withNotes, o.output) {
		printNotes(stderr, c.notes)
	}
	if c.count[newlyRefused]+c.count[newlyAllowed]+c.count[changed] > 0 {
		return &cli.ExitError{Code: exitRefused}
	}
	return nil
}

// others returns the objects of the new policies, and those of the old ones: on the cluster, the others are not in
// force.
func (o *options) others(input []byte) (ofNew, ofOld []*snapshot.Object, err error) {
	var found [2][]*snapshot.Object
	for i, name := range []string{o.new, o.old} {
		in, err := manifests.Gather([]string{name}, bytes.NewReader(input), o.reading())
		if err != nil {
			return nil, nil, self.Usage("%v", err)
		}
		for m := range in.Sets() { // faults are found when it is judged
			found[i] = append(found[i], m.Stored()...)
		}
	}
	return found[0], found[1], nil
}

// judgedKey identifies a judged object in two reports: by its name and the overlay that made it, wherever the policies
// are.
type judgedKey struct{ kind, key, overlay, with string }

func keyIn(j *judgement, root string) judgedKey {
	overlay := j.Kustomization
	if rest, below := strings.CutPrefix(overlay, filepath.ToSlash(filepath.Clean(root))); below {
		overlay = rest
	}
	return judgedKey{j.Kind, j.Key(), overlay, j.with}
}

// compare returns the differences, by effect and then in the order of the input. roots are the names of the old and the
// new policies.
func compare(before, after *report, roots [2]string) *comparison {
	c := &comparison{count: map[effect]int{}, notes: after.notes}
	was, is := index(before, roots[0]), index(after, roots[1])
	add := func(old, now *judgement) {
		switch {
		case now == nil || old == nil && now.Decision == verdict.Allow:
		case old != nil && sameVerdict(old, now):
			c.same++
		default:
			e := effectOf(old, now)
			c.count[e]++
			c.differences = append(c.differences, difference{e, old, now})
		}
	}
	for i := range after.judged {
		j := &after.judged[i]
		key := keyIn(j, roots[1])
		add(cmp.Or(was[key], was[key.alone()]), j)
	}
	for i := range before.judged { // an overlay that made a difference only with the old policies
		j := &before.judged[i]
		if key := keyIn(j, roots[0]); j.with != "" && is[key] == nil {
			add(j, is[key.alone()])
		}
	}
	slices.SortStableFunc(c.differences, func(a, b difference) int {
		return cmp.Compare(slices.Index(effects, a.effect), slices.Index(effects, b.effect))
	})
	return c
}

// alone is the key where no overlay makes a difference.
func (k judgedKey) alone() judgedKey {
	k.with = ""
	return k
}

func index(r *report, root string) map[judgedKey]*judgement {
	found := map[judgedKey]*judgement{}
	for i := range r.judged {
		found[keyIn(&r.judged[i], root)] = &r.judged[i]
	}
	return found
}

func effectOf(old, now *judgement) effect {
	refused := old != nil && old.Decision != verdict.Allow
	switch {
	case !refused && now.Decision != verdict.Allow:
		return newlyRefused
	case refused && now.Decision == verdict.Allow:
		return newlyAllowed
	}
	return changed
}

// sameVerdict reports whether two verdicts refuse for the same reasons and warn of the same. The warnings about a
// policy itself are previews of what is compared.
func sameVerdict(a, b *judgement) bool {
	return a.Decision == b.Decision && slices.Equal(inspect.Reasons(&a.Verdict), inspect.Reasons(&b.Verdict)) &&
		(!a.plain() || slices.Equal(warnings(a), warnings(b)))
}

// plain reports whether it is an object that policies judge.
func (j *judgement) plain() bool {
	switch j.Value.(type) {
	case *policyv1beta2.OperatorPolicy, *constraintv1.Constraint, *policyv1.Policy, *policyv1beta1.PolicySet:
		return false
	}
	return true
}

func (c *comparison) counts() string {
	return fmt.Sprintf("%d newly refused, %d newly allowed, %d changed, %d the same", c.count[newlyRefused],
		c.count[newlyAllowed], c.count[changed], c.same)
}

// sentences are what differs, without what stands on both sides.
func (d *difference) sentences() (before, now []string) {
	sides := [2][]string{}
	for i, j := range []*judgement{d.before, d.after} {
		if j == nil {
			continue
		}
		for _, why := range j.Reasons {
			sides[i] = append(sides[i], why.Message)
		}
		if !j.plain() {
			continue
		}
		for _, f := range findings(j) {
			sides[i] = append(sides[i], "warning: "+brief(f))
		}
	}
	in := func(list []string) func(string) bool { return func(s string) bool { return slices.Contains(list, s) } }
	return slices.DeleteFunc(slices.Clone(sides[0]), in(sides[1])),
		slices.DeleteFunc(slices.Clone(sides[1]), in(sides[0]))
}
