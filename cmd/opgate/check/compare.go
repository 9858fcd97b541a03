package check

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// compare judges everything with the old and then with the new policies, of which a cluster has neither, and returns
// what differs.
func (o *options) compare(
	ctx context.Context, state *cluster.State, versions facts.Cluster, stdin io.Reader,
) (*report, error) {
	var input []byte
	if slices.Contains(slices.Concat(o.policies, o.files, []string{o.old}), cli.StandardInput) {
		var err error
		if input, err = io.ReadAll(io.LimitReader(stdin, manifests.MaxInput+1)); err != nil {
			return nil, self.Unusable("nothing was judged: read standard input: %v", err)
		}
	}
	others := o.policies[:len(o.policies)-1]
	var inputs [2]*manifests.Input
	var gone []*snapshot.Object
	for i, policies := range [][]string{slices.Concat(others, []string{o.old}), o.policies} {
		in, err := o.gather(policies, bytes.NewReader(input))
		if err != nil {
			return nil, err
		}
		for _, u := range in.Units {
			gone = append(gone, u.Stored()...)
		}
		inputs[i] = in
	}
	if state != nil {
		var err error
		if state, err = state.Again(ctx, nil, gone); err != nil {
			return nil, self.Unusable("nothing was judged: %v", err)
		}
	}
	before, err := o.judgeAll(ctx, inputs[0], state, versions)
	if err != nil {
		return nil, err
	}
	now, err := o.judgeAll(ctx, inputs[1], state, versions)
	if err == nil {
		now.since(before)
	}
	return now, err
}

// since leaves what was judged otherwise before, and what is new and not allowed.
func (r *report) since(before *report) {
	for _, p := range before.problems {
		r.problems = once(r.problems, p)
	}
	was := map[string]*judgement{}
	for key, j := range before.keyed() {
		was[key] = j
	}
	var differ []judgement
	for key, j := range r.keyed() {
		said, now := was[key].sentences(), j.sentences()
		switch {
		case said == nil && j.outcome() == verdict.Allow.String(): // a policy that is new
		case slices.Equal(said, now):
			r.same++
		default:
			j.before = slices.DeleteFunc(said, func(s string) bool { return slices.Contains(now, s) })
			differ = append(differ, *j)
		}
	}
	r.judged, r.differ = differ, len(differ)
}

// keyed are the judged objects by what identifies them in another report, wherever the policies are.
func (r *report) keyed() iter.Seq2[string, *judgement] {
	times := map[string]int{}
	return func(yield func(string, *judgement) bool) {
		for i := range r.judged {
			key := r.judged[i].title() + r.judged[i].Via
			if times[key]++; !yield(fmt.Sprint(key, times[key]), &r.judged[i]) {
				return
			}
		}
	}
}

// sentences are the outcome, why, and what is warned of. Warnings about a policy itself preview what is compared.
func (j *judgement) sentences() (all []string) {
	if j == nil {
		return nil
	}
	all = append(all, j.outcome())
	for _, why := range j.reasons() {
		all = append(all, why.Message)
	}
	if !j.IsPolicy() {
		for _, f := range findings(j) {
			all = append(all, "warning: "+brief(f))
		}
	}
	return all
}
