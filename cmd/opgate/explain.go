package main

import (
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/rules"
)

func explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [RULE]",
		Short: "Say what a rule in a refusal means",
		Example: `  # all rules
  opgate explain
  # the rule in "etcdoperator.v0.9.4 is not allowed by OperatorPolicy policies/etcd (plan/version)"
  opgate explain plan/version`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list := slices.Concat(rules.GateRules(), rules.Rules())
			if len(args) == 1 {
				i := slices.IndexFunc(list, func(r rules.Rule) bool { return string(r.ID) == args[0] })
				if i < 0 {
					return fmt.Errorf("there is no rule %q; \"opgate explain\" lists them", args[0])
				}
				list = list[i : i+1]
			}
			out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(out, "RULE\tGIVES\tWHEN")
			for _, r := range list {
				fmt.Fprintf(out, "%s\t%s\t%s\n", r.ID, r.Outcome, r.Summary)
			}
			return out.Flush()
		},
	}
}
