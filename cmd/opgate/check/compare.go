package check

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// effect is what a change of policies does to an object.
type effect string

// The effects, in the order in which they are printed.
const (
	newlyRefused effect = "refused"
	newlyAllowed effect = "allowed"
	changed      effect = "changed"
)

var (
	effects  = []effect{newlyRefused, newlyAllowed, changed}
	headings = map[effect]string{newlyRefused: "newly refused", newlyAllowed: "newly allowed", changed: "changed"}
)

// difference is an object on which two sets of policies have different verdicts.
type difference struct {
	effect effect
	// before is nil for an object that the old input does not have: it refused nothing.
	before, after *judgement
}

// comparison is what differs between two reports.
type comparison struct {
	*report
	differences []difference
	count       map[effect]int
	same        int
}

// comparisonFormats write comparisons.
var comparisonFormats = map[string]func(io.Writer, *comparison) error{
	"text": printComparison, "json": printComparisonJSON,
}

// judgeTwice judges everything with the old and then with the new policies, and prints what differs.
func (o *options) judgeTwice(ctx context.Context, how [2]judging, stdin io.Reader, stdout io.Writer) error {
	names := [2]string{o.old, o.new}
	input := []byte(nil)
	if slices.Contains(o.named(), cli.StandardInput) {
		var err error
		if input, err = io.ReadAll(io.LimitReader(stdin, manifests.MaxInput+1)); err != nil {
			return self.Unusable("nothing was judged: read standard input: %v", err)
		}
	}
	if o.live { // the objects of the other policies are not in force
		for i := range names {
			in, err := o.gather(nil, names[1-i:2-i], bytes.NewReader(input))
			if err != nil {
				return self.Usage("%v", err)
			}
			for _, u := range in.Units {
				how[i].gone = append(how[i].gone, u.Stored()...)
			}
		}
	}
	var reports [2]*report
	for i, name := range names {
		var err error
		if reports[i], err = o.judgeFiles(ctx, o.files, append([]string{name}, o.policies...), &how[i],
			bytes.NewReader(input)); err != nil {
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
	return exit(c.code)
}

// compare returns the differences, by effect and then in the order of the input. roots are the names of the old and the
// new policies.
func compare(before, after *report, roots [2]string) *comparison {
	c := &comparison{report: after, count: map[effect]int{}}
	for _, p := range before.problems {
		c.problem(p)
	}
	was := map[string]*judgement{}
	for key, j := range before.keys(roots[0]) {
		was[key] = j
	}
	for key, j := range after.keys(roots[1]) {
		switch old := was[key]; {
		case old == nil && j.outcome() == verdict.Allow.String():
		case old != nil && sameVerdict(old, j):
			c.same++
		default:
			e := effectOf(old, j)
			c.count[e]++
			c.differences = append(c.differences, difference{e, old, j})
		}
	}
	slices.SortStableFunc(c.differences, func(a, b difference) int {
		return cmp.Compare(slices.Index(effects, a.effect), slices.Index(effects, b.effect))
	})
	switch {
	case before.code == exitUnusable || after.code == exitUnusable:
		c.code = exitUnusable
	case len(c.differences) > 0:
		c.code = exitRefused
	default:
		c.code = 0
	}
	return c
}

// keys identifies the judged objects in two reports: by their names and what built them, wherever the policies are.
func (r *report) keys(root string) func(func(string, *judgement) bool) {
	return func(yield func(string, *judgement) bool) {
		times := map[string]int{}
		for i := range r.judged {
			j := &r.judged[i]
			overlay := j.Kustomization
			if rest, below := strings.CutPrefix(overlay, filepath.ToSlash(filepath.Clean(root))); below {
				overlay = rest
			}
			key := fmt.Sprintf("%q", []string{j.Kind, j.Key(), overlay, j.Via})
			times[key]++
			if !yield(fmt.Sprint(key, times[key]), j) {
				return
			}
		}
	}
}

func effectOf(old, now *judgement) effect {
	allow := verdict.Allow.String()
	refused := old != nil && old.outcome() != allow
	switch {
	case !refused && now.outcome() != allow:
		return newlyRefused
	case refused && now.outcome() == allow:
		return newlyAllowed
	}
	return changed
}

// sameVerdict reports whether two verdicts refuse for the same reasons and warn of the same. The warnings about a
// policy itself are previews of what is compared.
func sameVerdict(a, b *judgement) bool {
	before, after := sideOf(a), sideOf(b)
	if a.isPolicy() {
		before.Warnings, after.Warnings = nil, nil
	}
	return reflect.DeepEqual(before, after)
}

func (c *comparison) counts() string {
	return fmt.Sprintf("%d newly refused, %d newly allowed, %d changed, %d the same", c.count[newlyRefused],
		c.count[newlyAllowed], c.count[changed], c.same)
}

// sentences are what differs, without what is on both sides.
func (d *difference) sentences() (before, now []string) {
	sides := [2][]string{}
	for i, j := range []*judgement{d.before, d.after} {
		if j == nil {
			continue
		}
		for _, why := range j.reasons() {
			sides[i] = append(sides[i], why.Message)
		}
		if j.isPolicy() {
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

// printComparison writes a block for each effect, with the objects on which the verdict differs and the sentences that
// differ.
func printComparison(w io.Writer, c *comparison) error {
	out := bufio.NewWriter(w)
	last := effect("")
	for i := range c.differences {
		d := &c.differences[i]
		if d.effect != last {
			last = d.effect
			fmt.Fprintf(out, "%s:\n", headings[last])
		}
		fmt.Fprintf(out, "%-5s %s  (%s)\n", d.after.outcome(), d.after.title(), d.after.Short())
		before, now := d.sentences()
		for _, line := range now {
			fmt.Fprintln(out, "  "+text.Escape(line))
		}
		for _, line := range before {
			fmt.Fprintln(out, "  before: "+text.Escape(line))
		}
	}
	if len(c.differences) > 0 {
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, c.counts())
	c.printRest(out)
	return out.Flush()
}

// differenceItem is one element of the JSON output of --diff.
type differenceItem struct {
	Change effect `json:"change"`
	located
	Before side `json:"before"`
	After  side `json:"after"`
}

func printComparisonJSON(w io.Writer, c *comparison) error {
	items := make([]differenceItem, len(c.differences))
	for i, d := range c.differences {
		items[i] = differenceItem{d.effect, d.after.located(), sideOf(d.before), sideOf(d.after)}
	}
	return cli.JSON(w, documentOf(c.report, items))
}
