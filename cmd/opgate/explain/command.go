// Package explain is `opgate explain`: the rules that a refusal names, and where docs/rules.md has more.
package explain

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// document is the page with a section for each rule.
const document = "https://github.com/opgate/opgate/blob/main/docs/rules.md"

// ruleID is the name of a rule in a text.
var ruleID = regexp.MustCompile(`[a-z]+/[a-z0-9-]+`)

// Command returns `opgate explain`.
func Command() *cobra.Command {
	all := slices.Concat(rules.GateRules(), rules.Rules())
	var completions []cobra.Completion
	for _, r := range all {
		completions = append(completions, cobra.CompletionWithDesc(string(r.ID), r.Summary))
	}
	return &cobra.Command{
		Use:   "explain [RULE|REFUSAL|-]...",
		Short: "Say what a rule in a refusal means",
		Long: `Say when rules apply, and where the documentation has an example and what to do about them: rules by their names, all
of a kind, such as bundle, or those that a refusal names, which is read from standard input for "-". Without an argument all rules are listed.`,
		Example: `  # the rule in "etcdoperator.v0.9.4 is not allowed by OperatorPolicy policies/etcd (bundle/version)"
  opgate explain bundle/version

  # all rules in a refusal
  kubectl apply -f subscription.yaml 2>&1 | opgate explain -`,
		ValidArgs: completions,
		RunE: func(cmd *cobra.Command, args []string) error {
			said := strings.Join(args, " ")
			if said == cli.StandardInput {
				data, err := io.ReadAll(cmd.InOrStdin())
				if err != nil {
					return fmt.Errorf("read the refusal on standard input: %w", err)
				}
				said = string(data)
			}
			ids := ruleID.FindAllString(strings.ToLower(said), -1)
			named := slices.DeleteFunc(slices.Clone(all), func(r verdict.Rule) bool {
				kind, _, _ := strings.Cut(string(r.ID), "/")
				return len(args) > 0 && !slices.Contains(ids, string(r.ID)) &&
					!slices.ContainsFunc(args, func(arg string) bool { return strings.TrimRight(arg, "*/") == kind })
			})
			if len(named) == 0 {
				return &cli.ExitError{Code: cli.ExitUnusable, Message: fmt.Sprintf("%s names no rule: "+
					`"opgate explain" lists all, and %s#earlier-ids has the names of before`, text.Quote(said), document)}
			}
			for _, r := range named {
				properties := strings.ReplaceAll(string(r.Outcomes), ",", ", ")
				if r.Override {
					properties += ", override"
				}
				if r.Backstop {
					properties += ", backstop"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s  (%s)\n  %s\n  %s#%s\n", r.ID, properties, r.Summary, document,
					strings.ReplaceAll(string(r.ID), "/", ""))
			}
			return nil
		},
	}
}
