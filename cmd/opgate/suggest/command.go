// Package suggest is `opgate suggest`: it edits OperatorPolicies in files, so that the next version of an operator may be
// installed. Of a file it changes nothing else, and on a cluster nothing at all.
package suggest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/snapshot"
)

// self is the name of the command.
const self cli.Name = "suggest"

// exitSuggests is for --exit-code if something is suggested.
const exitSuggests = 3

const long = `Suggest the edits of policies in files that let InstallPlans pass that wait for approval: the smallest change of spec.versions
and spec.versionRange of each OperatorPolicy that governs them, also in Policies, in lists and in patches of
kustomizations. The output is a diff that "git apply" takes in the same directory; with --write the files are changed.
What a template, an anchor or another program makes cannot be edited in place: it is named, and all else is suggested.

The plans are those of a cluster or of files. With --path what "opgate plan -o json" prints takes their place, and --to
says how far along it: the next version, all patches of the installed minor version, or the newest. spec.consent is
edited only with --accept-changes, which adds the digests of the changes that it holds: review them first ("opgate diff").

Exit codes:
  0  what is suggested was printed or written, or there is nothing
  2  the command line or the input cannot be used, the cluster cannot be read, or a policy cannot be edited in place
  3  with --exit-code, something is suggested`

const example = `  # what would let the plans pass that wait on the cluster, as a change of the files in git
  opgate suggest -A policies/ | git apply

  # in a pipeline: a branch with a pull request, if there is something
  opgate suggest -A policies/ --write --body body.md --exit-code

  # all patches that a catalog has, before OLM makes plans for them
  opgate plan etcd -n shop -o json | opgate suggest --path - --to patch policies/`

// options are the flags.
type options struct {
	cluster.Input
	// path is a file with JSON of "opgate plan", to is how far along it.
	path, to string
	// write changes the files, body is a file for the text of a pull request.
	write         bool
	body          string
	acceptChanges bool
	exitCode      bool
}

// Command returns `opgate suggest`. now is the clock that plans are judged at.
func Command(now func() time.Time) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "suggest [-n NAMESPACE | -A | -f FILE|DIR|-]... FILE|DIR...",
		Short:   "Suggest the edits of policies in files that let waiting plans pass",
		Long:    long,
		Example: example,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := o.validate(names); err != nil {
				return err
			}
			steps, err := o.steps(cmd.Context(), now(), cmd.InOrStdin(), cmd.ErrOrStderr())
			if err == nil {
				err = o.run(names, steps, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return self.Failed(err)
		},
	}
	flags := self.Flags(cmd)
	flags.BoolVarP(&o.All, "all-namespaces", "A", false, "look at all namespaces, not at that of -n or the context")
	o.RegisterNamespace(cmd)
	cli.FilesVar(flags, &o.Files)
	flags.Lookup("filename").Usage = `file or directory with InstallPlans and Subscriptions, "-" for standard input; repeatable`
	flags.StringVar(&o.path, "path", "", `JSON of "opgate plan", a file or "-" (default: the plans that wait)`)
	o.to = toNext
	cli.ChoiceVar(cmd, &o.to, "to", "", "how far along a path: next, patch or newest", toNext, toPatch, toNewest)
	flags.BoolVar(&o.write, "write", false, "change the files (default: print a diff)")
	flags.StringVar(&o.body, "body", "", "file to write the text of a pull request to (default: none)")
	flags.BoolVar(&o.acceptChanges, "accept-changes", false, "add the digests of held changes to spec.consent.accepted, too")
	flags.BoolVar(&o.exitCode, "exit-code", false, "exit with 3 if something is suggested")
	o.Register(cmd)
	return cmd
}

// validate checks the command line.
func (o *options) validate(names []string) error {
	switch {
	case len(names) == 0:
		return self.Usage("no policies: name files or directories with the policies to edit")
	case slices.Contains(names, cli.StandardInput):
		return self.Usage("- cannot be edited: name files or directories with the policies to edit")
	case o.All && o.Overrides.Context.Namespace != "":
		return self.Usage(cli.AllOrOne)
	case o.path != "" && len(o.Files) > 0:
		return self.Usage("--path takes the place of plans: leave out -f")
	case o.to != toNext && o.path == "":
		return self.Usage("--to %s is along a path: name one with --path", o.to)
	}
	return self.CheckFiles(slices.Concat(names, o.Files))
}

// steps returns what is to be opened.
func (o *options) steps(ctx context.Context, now time.Time, stdin io.Reader, stderr io.Writer) ([]step, error) {
	if o.path != "" {
		return readPath(o.path, stdin, o.to)
	}
	read, err := o.Read(ctx, cluster.Options{}, stdin, stderr)
	if err != nil {
		return nil, err
	}
	for _, note := range read.Notes {
		fmt.Fprintln(stderr, "warning: "+text.Escape(note))
	}
	return waiting(read.Snapshot, now), nil
}

// Write edits the policies in files so that a plan may pass, and prints what it edits. It accepts no changes. What
// cannot be edited is an error; all else is written.
func Write(names []string, state *snapshot.Snapshot, plan types.NamespacedName, now time.Time, stderr io.Writer) error {
	steps := slices.DeleteFunc(waiting(state, now), func(s step) bool { return s.Source != sourceOf(plan) })
	return self.Failed((&options{write: true}).run(names, steps, nil, stderr))
}

// run suggests edits, and prints or writes them.
func (o *options) run(names []string, steps []step, stdout, stderr io.Writer) error {
	found, err := suggest(names, steps, o.acceptChanges)
	if err != nil {
		return err
	}
	done := ""
	if o.write {
		done = "written: "
	}
	for _, s := range found.steps {
		fmt.Fprintln(stderr, done+s.Title()+": "+strings.Join(s.Changes, "; "))
		for _, why := range s.Remaining {
			fmt.Fprintln(stderr, "  still held: "+why)
		}
	}
	for _, line := range slices.Concat(found.warnings, found.faults) {
		fmt.Fprintln(stderr, line)
	}
	for _, at := range found.files {
		if bytes.Equal(at.after, at.before) {
			continue
		}
		if o.write {
			err = os.WriteFile(at.name, at.after, 0o600) // it exists, and keeps its mode
		} else {
			// without the line that names a command, by which git would look for the file at the top of the repository
			_, unified, _ := strings.Cut(string(diff.Diff("a/"+inDiff(at.name), at.before, "b/"+inDiff(at.name), at.after)), "\n")
			_, err = io.WriteString(stdout, unified)
		}
		if err != nil {
			return err
		}
	}
	if o.body != "" && len(found.steps) > 0 {
		var written bytes.Buffer
		if err := cmp.Or(body.Execute(&written, found.steps), os.WriteFile(o.body, written.Bytes(), 0o600)); err != nil {
			return err
		}
	}
	switch {
	case len(found.faults) > 0:
		return &cli.ExitError{Code: cli.ExitUnusable}
	case o.exitCode && len(found.steps) > 0:
		return &cli.ExitError{Code: exitSuggests}
	}
	return nil
}

// inDiff returns the name of a file for a diff: relative to the current directory where the file is below it.
func inDiff(name string) string {
	if directory, err := os.Getwd(); err == nil && filepath.IsAbs(name) {
		if relative, err := filepath.Rel(directory, name); err == nil && filepath.IsLocal(relative) {
			return filepath.ToSlash(relative)
		}
	}
	return name
}
