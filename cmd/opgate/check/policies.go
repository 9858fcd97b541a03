package check

import (
	"fmt"
	"io"
	"slices"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
)

// Policies reads the OperatorPolicies in files, directories or "-", standard input, as `opgate check --strict` does: a policy that is
// skipped would hold nothing. What it cannot use it prints, and returns an error with an exit code. Of namespace are policies that name none.
func Policies(files []string, namespace string, stdin io.Reader, stderr io.Writer) ([]*rules.OperatorPolicy, error) {
	search, err := newSearch(true, nil)
	if err != nil {
		return nil, err
	}
	gathered := gather(files, stdin, search)
	loaded := load(gathered.inputs, namespace)
	if problems := slices.Concat(gathered.problems, loaded.problems); len(problems) > 0 {
		if err := printProblems(stderr, problems); err != nil {
			return nil, fmt.Errorf("write problems: %w", err)
		}
		return nil, &cli.ExitError{Code: exitUnusable, Message: counted(len(problems), "problem") + " in the input"}
	}
	var policies []*rules.OperatorPolicy
	for ns := range inFiles(loaded, state.Cluster{}).All() {
		policies = append(policies, ns.Policies()...)
	}
	return policies, nil
}
