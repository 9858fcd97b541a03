package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/opgate/opgate/internal/text"
)

// StandardInput is the name that stands for standard input on the command line.
const StandardInput = "-"

// ExitUnusable is the exit code for a command line or an input that cannot be used.
const ExitUnusable = 2

// Name is the name of a command, which begins its errors.
type Name string

// Unusable returns an error with ExitUnusable.
func (n Name) Unusable(format string, args ...any) error {
	return &ExitError{Code: ExitUnusable, Message: string(n) + ": " + fmt.Sprintf(format, args...)}
}

// Usage returns an error about the command line, with ExitUnusable, which refers to the help.
func (n Name) Usage(format string, args ...any) error {
	return n.Unusable(format+`; see "opgate %s --help"`, append(args, string(n))...)
}

// Failed returns an error of a command with its exit code: that which it has, else ExitUnusable.
func (n Name) Failed(err error) error {
	if _, coded := errors.AsType[*ExitError](err); coded || err == nil {
		return err
	}
	return n.Unusable("%s", text.Escape(err.Error()))
}

// Usage returns an error about the command line of a command, with ExitUnusable, which refers to its help.
func Usage(cmd *cobra.Command, format string, args ...any) error {
	return Name(cmd.Name()).Unusable("%s", fmt.Sprintf(format, args...)+`; see "`+cmd.CommandPath()+` --help"`)
}

// AllOrOne is the error about -A beside -n.
const AllOrOne = "-A looks at all namespaces, and -n at one: leave out one of them"

// Flags prepares a command that prints its errors itself, and returns its flags, which help lists in their order.
func (n Name) Flags(cmd *cobra.Command) *pflag.FlagSet {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return n.Usage("%v", err) })
	flags := cmd.Flags()
	flags.SortFlags = false
	return flags
}

// FilesVar adds --filename.
func FilesVar(flags *pflag.FlagSet, files *[]string) {
	flags.StringArrayVarP(files, "filename", "f", nil, `file or directory to read, "-" for standard input; repeatable`)
}

// choice is the value of a flag that is one of some words.
type choice struct {
	value *string
	words []string
}

// String implements pflag.Value.
func (c choice) String() string { return *c.value }

// Type implements pflag.Value.
func (c choice) Type() string { return "string" }

// Set implements pflag.Value.
func (c choice) Set(value string) error {
	if !slices.Contains(c.words, value) {
		return errors.New("use " + Alternatives(c.words))
	}
	*c.value = value
	return nil
}

// ChoiceVar adds a flag that is one of some words, which the shell completes. Its value so far is the default.
func ChoiceVar(cmd *cobra.Command, value *string, name, shorthand, usage string, words ...string) {
	cmd.Flags().VarP(choice{value, words}, name, shorthand, usage)
	Complete(cmd, name, words)
}

// OutputVar adds --output for formats by their names, of which text is the default.
func OutputVar[F any](cmd *cobra.Command, output *string, formats map[string]F) {
	*output = "text"
	names := slices.Sorted(maps.Keys(formats))
	ChoiceVar(cmd, output, "output", "o", "output format: "+Alternatives(names), names...)
}

// Complete completes the values of a flag.
func Complete(cmd *cobra.Command, flag string, values []string) {
	CompleteFunc(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteFunc completes a flag by a function.
func CompleteFunc(cmd *cobra.Command, flag string, with cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, with); err != nil {
		panic(err) // the flag exists
	}
}

// Alternatives lists values of which one is to be chosen: "json, markdown or text".
func Alternatives(values []string) string {
	if len(values) < 2 {
		return strings.Join(values, "")
	}
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// CheckFiles returns an error for names of files that cannot be read together.
func (n Name) CheckFiles(files []string) error {
	if slices.Contains(files, "") {
		return n.Usage("a name is empty: give a file, a directory or -")
	}
	stdin := 0
	for _, name := range files {
		if name == StandardInput {
			stdin++
		}
	}
	if stdin > 1 {
		return n.Usage("- is given %d times, and standard input can be read once", stdin)
	}
	return nil
}

// CheckNamespaces returns an error for the first name that is not one of a namespace.
func (n Name) CheckNamespaces(names ...string) error {
	for _, name := range names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return n.Usage("namespace %q: %s", name, strings.Join(problems, "; "))
		}
	}
	return nil
}

// End returns the time that a flag sets, as a duration from now or as in RFC 3339, in the latter form; "" for an empty one.
func End(value string, now func() time.Time) (string, error) {
	if d, err := time.ParseDuration(value); err == nil {
		return now().Add(d).UTC().Format(time.RFC3339), nil
	}
	_, err := Moment(value, now)
	if err != nil {
		err = fmt.Errorf("%w; or a duration, such as 2h", err)
	}
	return value, err
}

// Moment returns the time that a flag sets, as in RFC 3339; that of the clock if the flag is empty.
func Moment(value string, now func() time.Time) (time.Time, error) {
	if value == "" {
		return now(), nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return at, fmt.Errorf("%q is no time as in RFC 3339: write 2026-11-28T22:00:00Z, or with an offset, 2026-11-28T22:00:00+01:00", value)
	}
	return at, nil
}
