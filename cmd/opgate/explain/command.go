// Package explain is `opgate explain`: the rules that a refusal names, and where docs/rules.md has more.
package explain

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
)

const (
	// document is the page with a section for each rule.
	document = "https://github.com/opgate/opgate/blob/main/docs/rules.md"
	// maxInput bounds what is read of a refusal, in bytes: the API server's messages are far shorter.
	maxInput = 4 << 20
)

// rule is what is printed of a rule.
type rule struct {
	Rule     string `json:"rule"`
	Outcome  string `json:"outcome"`
	Summary  string `json:"summary"`
	Override bool   `json:"override"`
	Backstop bool   `json:"backstop"`
	// Address is that of the rule's section, with an example and what to do.
	Address string `json:"address"`
}

// Command returns `opgate explain`.
func Command() *cobra.Command {
	var output string
	var list []rule
	var completions []cobra.Completion
	for _, r := range slices.Concat(rules.GateRules(), rules.Rules()) {
		id := string(r.ID)
		list = append(list, rule{id, r.Outcomes.String(), r.Summary, r.Override, r.Backstop,
			document + "#" + strings.ReplaceAll(id, "/", "")})
		completions = append(completions, cobra.CompletionWithDesc(id, r.Summary))
	}
	cmd := &cobra.Command{
		Use:   "explain [RULE|PREFIX/|REFUSAL]...",
		Short: "Say what a rule in a refusal means",
		Long: `Say when rules apply, and where the documentation has an example and what to do about them.

A rule is named as refusals name it, bundle/version or (bundle/version). plan/ stands for all rules whose names begin
so, and a text, such as a whole refusal, for all rules that it names in parentheses; "-" is that on standard input.
Without an argument all rules are listed.`,
		Example: `  # the rule in "etcdoperator.v0.9.4 is not allowed by OperatorPolicy policies/etcd (bundle/version)"
  opgate explain bundle/version

  # all rules in a refusal
  kubectl apply -f subscription.yaml 2>&1 | opgate explain -`,
		ValidArgs: completions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.Name(cmd.Name()).CheckOutput(output, []string{"json", "text"}); err != nil {
				return err
			}
			found := list
			if len(args) > 0 {
				var err error
				if found, err = selected(list, args, cmd.InOrStdin()); err != nil {
					return &cli.ExitError{Code: cli.ExitUnusable, Message: err.Error()}
				}
			}
			if output == "json" {
				return cli.JSON(cmd.OutOrStdout(), found)
			}
			for _, r := range found {
				if err := r.print(cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cli.OutputVar(cmd, &output, []string{"json", "text"})
	return cmd
}

// selected returns the rules that arguments stand for, each once. An argument that names none is an error.
func selected(list []rule, args []string, stdin io.Reader) (found []rule, err error) {
	for _, arg := range args {
		if arg == cli.StandardInput {
			data, err := io.ReadAll(io.LimitReader(stdin, maxInput))
			if err != nil {
				return nil, fmt.Errorf("read the refusal on standard input: %w", err)
			}
			arg = string(data)
		}
		arg = strings.ToLower(arg)
		ids := inParentheses(arg)
		if len(ids) == 0 {
			ids = []string{strings.TrimSpace(arg)}
		}
		named := slices.DeleteFunc(slices.Clone(list), func(r rule) bool { return !slices.Contains(ids, r.Rule) })
		if start := strings.TrimSuffix(ids[0], "*"); len(named) == 0 && start != "" {
			named = slices.DeleteFunc(slices.Clone(list), func(r rule) bool { return !strings.HasPrefix(r.Rule, start) })
		}
		if len(named) == 0 {
			return nil, unknown(list, ids[0])
		}
		for _, r := range named {
			if !slices.Contains(found, r) {
				found = append(found, r)
			}
		}
	}
	return found, nil
}

// inParentheses returns what a text names as messages name rules: (kind/name).
func inParentheses(text string) (ids []string) {
	for _, part := range strings.Split(text, "(")[1:] {
		id, _, closed := strings.Cut(part, ")")
		if closed && strings.Contains(id, "/") && !strings.ContainsAny(id, " \n") {
			ids = append(ids, id)
		}
	}
	return ids
}

// unknown says that a rule does not exist, and which is spelled alike, as cobra suggests commands.
func unknown(list []rule, id string) error {
	spellings := &cobra.Command{SuggestionsMinimumDistance: 3}
	for _, r := range list {
		spellings.AddCommand(&cobra.Command{Use: r.Rule, Run: func(*cobra.Command, []string) {}})
	}
	if near := spellings.SuggestionsFor(id); len(near) > 0 {
		return fmt.Errorf("there is no rule %s; did you mean %s?", text.Quote(id), near[0])
	}
	if strings.Contains(id, " ") {
		return errors.New("the text names no rule in parentheses, such as (bundle/version), as every refusal of Opgate does")
	}
	return fmt.Errorf(`there is no rule %s; "opgate explain" lists all, and %s#earlier-ids has those of before`,
		text.Quote(id), document)
}

func (r *rule) print(out io.Writer) error {
	words := r.Outcome
	if r.Override {
		words += "; a user with the verb override may set it aside"
	}
	if r.Backstop {
		words += "; the API server holds a part of it by itself"
	}
	_, err := fmt.Fprintf(out, "%s  (%s)\n  %s\n  %s\n", r.Rule, words, r.Summary, r.Address)
	return err
}
