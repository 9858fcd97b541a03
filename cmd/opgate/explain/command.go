// Package explain is `opgate explain`: what docs/rules.md says of the rules that a refusal names.
package explain

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/cli"
)

// maxInput bounds what is read of a refusal, in bytes: the API server's messages are far shorter.
const maxInput = 4 << 20

const long = `Say what rules mean: when they refuse, an example, what to do about it, and a sample to try.

A rule is named as refusals name it, bundle/version or (bundle/version). plan/ stands for all rules whose names begin
so. A text with rules in parentheses, such as a whole refusal, stands for all rules in it, as an argument or on
standard input. Without an argument, and with nothing on standard input, all rules are listed.`

const example = `  # all rules, and those on InstallPlans
  opgate explain
  opgate explain plan/

  # the rule in "etcdoperator.v0.9.4 is not allowed by OperatorPolicy policies/etcd (bundle/version)"
  opgate explain bundle/version

  # all rules in a refusal
  kubectl apply -f subscription.yaml 2>&1 | opgate explain`

// Command returns `opgate explain`.
func Command() *cobra.Command {
	var output string
	list := all()
	cmd := &cobra.Command{
		Use:       "explain [RULE|PREFIX/|REFUSAL|-]...",
		Short:     "Say what a rule in a refusal means",
		Long:      long,
		Example:   example,
		ValidArgs: completions(list),
		RunE: func(cmd *cobra.Command, args []string) error {
			write, ok := formats[output]
			if !ok {
				return cli.Usage(cmd, "unknown output format %q: use text, json or markdown", output)
			}
			found, listed, err := selected(list, args, cmd.InOrStdin())
			if err != nil {
				return &cli.ExitError{Code: cli.ExitUnusable, Message: err.Error()}
			}
			return write(cmd.OutOrStdout(), found, listed, cli.Width(cmd.OutOrStdout()))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "output format: text, json or markdown")
	cli.Complete(cmd, "output", []string{"text", "json", "markdown"})
	return cmd
}

func completions(list []rule) (ids []cobra.Completion) {
	for _, r := range list {
		ids = append(ids, cobra.CompletionWithDesc(string(r.ID), r.Summary))
	}
	return ids
}

// selected returns the rules that the arguments, or without any the text on standard input, stand for, each once.
// listed is set where they are an overview.
func selected(list []rule, args []string, stdin io.Reader) (found []rule, listed bool, err error) {
	if len(args) == 0 {
		if !piped(stdin) {
			return list, true, nil
		}
		refusal, err := readAll(stdin)
		if err != nil {
			return nil, false, err
		}
		if strings.TrimSpace(refusal) == "" {
			return list, true, nil
		}
		found, err = mentioned(list, refusal)
		return found, false, err
	}
	for _, arg := range args {
		var more []rule
		var overview bool
		if arg == cli.StandardInput {
			refusal, err := readAll(stdin)
			if err != nil {
				return nil, false, err
			}
			more, err = mentioned(list, refusal)
			if err != nil {
				return nil, false, err
			}
		} else if more, overview, err = find(list, arg); err != nil {
			return nil, false, err
		}
		listed = listed || overview
		for _, r := range more {
			if !slices.ContainsFunc(found, func(other rule) bool { return other.ID == r.ID }) {
				found = append(found, r)
			}
		}
	}
	return found, listed, nil
}

// piped reports whether a text comes on standard input: it is neither a terminal nor /dev/null.
func piped(stdin io.Reader) bool {
	file, ok := stdin.(*os.File)
	if !ok {
		return true
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

func readAll(r io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err == nil && len(data) > maxInput {
		err = errors.New("it is larger than 4 MiB")
	}
	if err != nil {
		return "", fmt.Errorf("read the refusal on standard input: %w", err)
	}
	return string(data), nil
}
